// A spool that several hosts share: trust between nodes, and the end of a fenced process.

import Foundation
import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import Testing

@testable import SpoolgateSpool

/// What a crashed node has left of an upload, as long as the sizes of its files are not known.
enum Unsettled: CaseIterable {
    case noRecord, noRecordWithContent, partial, deferred, attempt, onlyAttempt

    var isForgotten: Bool { [.noRecord, .noRecordWithContent].contains(self) }

    /// The upload's queue in the end.
    var queue: Queue? {
        switch self {
        case .noRecord, .noRecordWithContent: nil
        case .partial: .incoming
        case .deferred, .attempt: .deferred
        case .onlyAttempt: .hold
        }
    }

    func make(in spool: Spool) throws -> Upload {
        let creation = UploadCreation.sample(repeatable: self != .onlyAttempt)
        let upload = try spool.create(creation, requestRelease: {})
        if self == .noRecord { return upload }
        try upload.append("content")
        try upload.sync()
        if [.attempt, .onlyAttempt].contains(self) {
            try upload.setLength(7)
            try upload.beginAttempt()
        }
        if self == .deferred { try upload.postpone(reason: nil, .queue(WallTime(seconds: 5))) }
        return upload
    }
}

/// Who continues a recovery that had to skip an upload.
enum Continuation: CaseIterable {
    case itself, nextProcess, otherNode
}

@Suite("A shared spool")
struct SharedSpoolTests {
    private let directory = TemporarySpool()

    private struct Daemon {
        let spool: Spool
        let disk = ScriptedDisk()
        /// The errors with which it was fenced.
        let signs = Monitor<[SystemError]>([])
        var wasFenced: Bool { signs.update { !$0.isEmpty } }

        init(
            _ node: String,
            in directory: TemporarySpool,
            settling: Duration = SpoolOptions().settling
        ) throws {
            spool = try directory.open(disk.disk, node: node, settling: settling)
            spool.onFenced { [signs] error in signs.update { $0.append(error) } }
            try spool.enter()
        }

        /// Crashes while it uses these uploads.
        func die(using uploads: [Upload] = []) {
            disk.die(after: 0)
            for upload in uploads { upload.files.close() }
            spool.leave()
        }

        /// Ends as `serve` does.
        func stop() { if spool.isAfterDeath { die() } else { spool.leave() } }
    }

    @Test(
        "one node continues with offsets that the other reported, also if only a URL was reported"
    )
    func takeOver() throws {
        let one = try Daemon("n1", in: directory).spool
        let two = try Daemon("n2", in: directory).spool
        let (full, empty) = (UploadCreation.sample(), UploadCreation.sample())
        let upload = try one.create(full, requestRelease: {})
        try upload.append("first ")
        upload.unlock()
        try one.create(empty, requestRelease: {}).unlock()
        // The walk leaves a running node's uploads alone.
        _ = two.recover()
        #expect(try two.lock(empty.id)?.state.offset == 0)
        let next = try #require(try two.lock(full.id))
        #expect(try next.content() == Array("first ".utf8))
        #expect(directory.state(of: full.id)?.writer.hasPrefix("n2.") == true)
        try next.append("second")
        next.unlock()
        #expect(try one.lock(full.id)?.content() == Array("first second".utf8))
    }

    @Test(
        "promised data of a crashed node counts, and the next node that finds it repairs the rest"
    )
    func death() throws {
        let one = try Daemon("n1", in: directory).spool
        let two = try Daemon("n2", in: directory)
        func create(repeatable: Bool, promised: Bool = true) throws -> Upload {
            let upload = try two.spool.create(.sample(repeatable: repeatable), requestRelease: {})
            try upload.append("durable")
            if promised { try upload.sync() }
            return upload
        }
        let partial = try create(repeatable: true)
        try partial.append(", more")
        let (once, again) = (try create(repeatable: false), try create(repeatable: true))
        for upload in [once, again] {
            try upload.setLength(7)
            try upload.beginAttempt()
        }
        let unpromised = try create(repeatable: true, promised: false)
        let all = [partial, once, again, unpromised]
        #expect(!one.findsDead())
        #expect(try one.nodes().map(\.isAlive) == [true, true])
        two.die(using: all)
        #expect(one.findsDead())
        let recovery = one.recover()
        #expect(recovery.interrupted == 2 && recovery.corrupt == 0)
        #expect(try one.nodes().map(\.name) == ["n1"])
        #expect(try one.lock(partial.id)?.content() == Array("durable".utf8))
        #expect(directory.queue(of: once.id) == .hold)
        #expect(directory.queue(of: again.id) == .deferred)
        #expect(directory.queue(of: unpromised.id) == nil)
    }

    @Test(
        "the next writer's name is durable before any unsynced content, so that no living one trusts it"
    )
    func handover() throws {
        let one = try Daemon("n1", in: directory).spool
        let two = try Daemon("n2", in: directory)
        let upload = try one.create(.sample(), requestRelease: {})
        try upload.append("first")
        upload.unlock()
        two.disk.forget()
        let next = try #require(try two.spool.lock(upload.id))
        #expect(two.disk.places == ["sync record", "write record", "sync record"])
        try next.append(" lost with its host")
        two.die(using: [next])
        #expect(try one.lock(upload.id)?.content() == Array("first".utf8))
    }

    @Test(
        "an error of the file system is a sign of being shut out",
        arguments: [EIO, ESHUTDOWN, ENOTCONN, ESTALE]
    )
    func errors(number: Int32) throws {
        let one = try Daemon("n1", in: directory)
        let upload = try one.spool.create(.sample(), requestRelease: {})
        try upload.append("content")
        one.disk.refuse(.sync, errno: number)
        #expect(throws: SpoolError.self) { try upload.sync() }
        #expect(one.wasFenced)
    }

    @Test("a full disk is not a sign, nor a failing disk of a single host")
    func noSign() throws {
        let one = try Daemon("n1", in: directory)
        let upload = try one.spool.create(.sample(), requestRelease: {})
        try upload.append("content")
        one.disk.refuse(.sync, errno: ENOSPC)
        #expect(throws: SpoolError.self) { try upload.sync() }
        #expect(!one.wasFenced)
        let other = TemporarySpool()
        let broken = ScriptedDisk()
        let alone = try other.open(broken.disk)
        alone.onFenced { _ in Issue.record("fenced") }
        let its = try alone.create(.sample(), requestRelease: {})
        try its.append("content")
        broken.refuse(.sync, errno: EIO)
        #expect(throws: SpoolError.self) { try its.sync() }
    }

    /// Runs `body` on a thread subject to file permissions, even as root.
    private func withoutPrivileges(_ body: @escaping @Sendable () -> Void) throws {
        let isEnded = Monitor(false)
        // Glibc's module does not declare it.
        typealias SetUser = @convention(c) (uid_t) -> Int32
        let symbol = try #require(dlsym(nil, "setfsuid"))
        let setUser = unsafeBitCast(symbol, to: SetUser.self)
        try SpoolgatePosix.Thread.start(name: "user", stackSize: 1 << 20) {
            _ = setUser(65_534)
            body()
            isEnded.update { $0 = true }
        }
        #expect(isEnded.wait(until: .after(.seconds(300))) { $0 ? true : nil } == true)
    }

    @Test("a host that may not open the spool is shut out; one denied upload is no sign")
    func denied() throws {
        let one = try Daemon("n1", in: directory)
        let upload = try one.spool.create(.sample(), requestRelease: {})
        try upload.append("content")
        upload.unlock()
        let (spool, id) = (one.spool, upload.id)
        // All users may traverse the directories; record and content are unreadable.
        for path in try #require(FileManager.default.subpaths(atPath: directory.path)) {
            let place = "\(directory.path)/\(path)"
            let isDirectory = try URL(fileURLWithPath: place).resourceValues(
                forKeys: [.isDirectoryKey]
            ).isDirectory
            chmod(place, isDirectory == true ? 0o755 : path == "format" ? 0o644 : 0)
        }
        chmod(directory.path, 0o755)
        try withoutPrivileges {
            #expect(throws: SpoolError.self) { try spool.lock(id) }
            _ = spool.isWoken()
        }
        #expect(!one.wasFenced)
        chmod(directory.path, 0)
        try withoutPrivileges { _ = spool.isWoken() }
        #expect(one.wasFenced)
        chmod(directory.path, 0o755)
    }

    /// Truncates an upload's record or content, as if its size were not known yet; the result restores it.
    private func shorten(_ id: UploadID, suffix: String) throws -> @Sendable () -> Void {
        let paths = try #require(FileManager.default.subpaths(atPath: directory.path))
        let path = try #require(
            paths.first { $0.hasPrefix("uploads") && $0.hasSuffix("\(id)\(suffix)") }
        )
        let place = "\(directory.path)/\(path)"
        let bytes = try #require(FileManager.default.contents(atPath: place))
        #expect(truncate(place, 0) == 0)
        return {
            let file = fopen(place, "r+")
            _ = bytes.withUnsafeBytes { fwrite($0.baseAddress, 1, $0.count, file) }
            fclose(file)
        }
    }

    @Test(
        "an upload whose record or content is too short for a moment is neither removed nor set aside",
        arguments: ["", ".data"]
    )
    func sizeComesLater(suffix: String) throws {
        let one = try Daemon("n1", in: directory)
        let two = try Daemon("n2", in: directory)
        let upload = try one.spool.create(.sample(), requestRelease: {})
        try upload.append("content")
        try upload.sync()
        upload.unlock()
        let restore = try shorten(upload.id, suffix: suffix)
        try SpoolgatePosix.Thread.start(name: "size", stackSize: 1 << 20) {
            // Long enough for the other node to find it too short.
            SpoolgatePosix.Thread.pause(.milliseconds(300))
            restore()
        }
        #expect(try two.spool.lock(upload.id)?.state.offset == 7)
    }

    @Test("a walk does not wait for the size of a record, but returns to it")
    func sizeComesAfterWalk() throws {
        let one = try Daemon("n1", in: directory)
        let two = try Daemon("n2", in: directory)
        let upload = try one.spool.create(.sample(), requestRelease: {})
        try upload.append("content")
        try upload.sync()
        upload.unlock()
        let restore = try shorten(upload.id, suffix: "")
        let walk = two.spool.recover()
        #expect((walk.skipped, walk.orphans) == ([upload.id], 0))
        restore()
        #expect(two.spool.recoverAgain(after: walk).skipped.isEmpty)
        #expect(try two.spool.lock(upload.id)?.state.offset == 7)
    }

    @Test(
        "a crashed node's upload is repaired when its sizes are known, whoever is still there",
        arguments: Unsettled.allCases,
        Continuation.allCases
    )
    func sizeComesToAnother(left: Unsettled, continuation: Continuation) throws {
        let settling = Duration.milliseconds(500)
        let victim = try Daemon("n1", in: directory)
        let finder = try Daemon("n2", in: directory, settling: settling)
        let other =
            continuation == .otherNode
            ? try Daemon("n3", in: directory, settling: settling) : nil
        let upload = try left.make(in: victim.spool)
        victim.die(using: [upload])
        let restore = try shorten(upload.id, suffix: left.isForgotten ? "" : ".data")
        #expect(finder.spool.findsDead())
        var recovery = finder.spool.recover()
        var spool = finder.spool
        if continuation != .itself {
            finder.stop()
            spool = try other?.spool ?? Daemon("n2", in: directory, settling: settling).spool
            if let other { #expect(other.spool.findsDead()) }
            recovery = spool.recover()
        }
        #expect((recovery.skipped, recovery.corrupt) == ([upload.id], 0))
        if !left.isForgotten { restore() }
        try eventually("the upload is repaired") {
            recovery = spool.recoverAgain(after: recovery)
            return recovery.skipped.isEmpty
        }
        #expect(recovery.corrupt == 0)
        #expect(directory.queue(of: upload.id) == left.queue)
        #expect((directory.content(of: upload.id) == nil) == left.isForgotten)
        #expect(!spool.isAfterDeath)
        #expect(try spool.nodes().allSatisfy(\.isAlive))
    }

    @Test("a node that was taken for dead reports no offset and no missing upload")
    func takenForDead() throws {
        let one = try Daemon("n1", in: directory)
        let upload = try one.spool.create(.sample(), requestRelease: {})
        try upload.append("content")
        try upload.sync()
        #expect(try one.spool.lock(.random()) == nil && !one.wasFenced)
        let files = FileManager.default
        for name in try files.contentsOfDirectory(atPath: directory.path + "/daemons") {
            try files.removeItem(atPath: "\(directory.path)/daemons/\(name)")
        }
        #expect(throws: SpoolError.self) { try upload.sync() }
        #expect(throws: SpoolError.self) { try one.spool.lock(.random()) }
        #expect(throws: SpoolError.self) { try one.spool.checkMembership() }
        // The handler that ends the process is called once.
        #expect(one.signs.update(\.count) == 1)
    }

    @Test(
        "no daemon with its own spool serves next to those that share it",
        arguments: [nil, "n1"]
    )
    func mixed(node: String?) throws {
        let first = try directory.open(node: node)
        try first.enter()
        defer { first.leave() }
        let second = try directory.open(node: node == nil ? "n1" : nil)
        #expect(throws: SpoolError.self) { try second.enter() }
        #expect(!second.isDaemon)
        first.leave()
        try second.enter()
        second.leave()
    }
}
