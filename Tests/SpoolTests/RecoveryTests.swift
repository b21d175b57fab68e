// Recovery after a crash or power failure, by a walk or the next request, on failing disks.

import Foundation
import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import Testing

@testable import SpoolgateSpool

@Suite("Recovery")
struct RecoveryTests {
    /// An upload with a durable first part and more content.
    private func upload(
        in directory: TemporarySpool,
        _ id: UploadID = .random(),
        attempt: Bool = false
    ) throws -> UploadID {
        let upload = try directory.open().create(.sample(id), requestRelease: {})
        try upload.append("promised")
        try upload.sync()
        if attempt { try upload.beginAttempt() } else { try upload.append(", more") }
        upload.files.close()
        return id
    }

    private func offset(_ id: UploadID, _ spool: Spool) throws -> Int64? {
        try spool.lock(id)?.state.offset
    }

    @Test("continues after an upload that cannot be repaired, and says so")
    func goesOn() throws {
        let directory = TemporarySpool()
        let ids = try (0..<5).map { _ in try upload(in: directory, attempt: true) }
        let scripted = ScriptedDisk()
        let spool = try directory.open(scripted.disk)
        scripted.refuse(.write, on: "/\(ids[2])", errno: SystemError.lost)
        var findings: [Recovery.Finding] = []
        let recovery = spool.recover { findings.append($0) }
        #expect((recovery.interrupted, recovery.failed, recovery.uploads) == (4, 1, 5))
        guard case .leftAlone(ids[2], .disk)? = findings.first, findings.count == 1 else {
            Issue.record("\(findings)")
            return
        }
        #expect(directory.queue(of: ids[2]) == .active)
        // It was reported already.
        let again = spool.recoverAgain(after: recovery) { _ in Issue.record("found again") }
        #expect(again == Recovery(failed: 1, uploads: 1, skipped: [ids[2]]))
        scripted.allow()
        #expect(try spool.lock(ids[2])?.state.phase == .deferred)
        #expect(spool.recover() == Recovery(uploads: 5))
    }

    @Test("a directory that cannot be read stays counted until a whole recovery reads it")
    func unreadDirectory() throws {
        let directory = TemporarySpool()
        let spool = try directory.open()
        // What is open as this directory is then none, so that root cannot read it either.
        let opened = try #require(OpenDescriptors.of { $0 == "\(directory.path)/uploads/v" }.first)
        let null = open("/dev/null", O_RDONLY | O_CLOEXEC)
        defer { close(null) }
        try #require(dup2(null, opened.number) >= 0)
        var findings: [Recovery.Finding] = []
        let recovery = spool.recover { findings.append($0) }
        guard case .leftAlone(nil, .disk)? = findings.first, findings.count == 1 else {
            Issue.record("\(findings)")
            return
        }
        #expect((recovery.failed, recovery.unread) == (1, 1))
        let again = spool.recoverAgain(after: recovery)
        #expect((again.failed, again.unread) == (1, 1))
    }

    @Test("returns to an upload that was locked, and repairs it once it is free")
    func comesBack() throws {
        let directory = TemporarySpool()
        let id = try upload(in: directory, attempt: true)
        // Like a reading command or an older program, which repair nothing.
        let other = try directory.open()
        let files = try #require(try other.openUnused(id))
        let spool = try directory.open()
        var recovery = spool.recover()
        #expect(recovery == Recovery(uploads: 1, skipped: [id]))
        recovery = spool.recoverAgain(after: recovery)
        #expect(recovery == Recovery(uploads: 1, skipped: [id]))
        files.close()
        recovery = spool.recoverAgain(after: recovery)
        #expect(recovery == Recovery(interrupted: 1, uploads: 1))
        #expect(directory.queue(of: id) == .deferred)
    }

    @Test("an upload that is gone when the walk returns is not counted")
    func comesBackTooLate() throws {
        let directory = TemporarySpool()
        let id = try upload(in: directory)
        let spool = try directory.open()
        #expect(spool.recoverAgain(after: Recovery(skipped: [id])) == Recovery(uploads: 1))
        try spool.lock(id)?.remove()
        #expect(spool.recoverAgain(after: Recovery(skipped: [id])) == Recovery())
    }

    @Test(
        "the next request after a power failure creates the name in the queue again, during a walk too"
    )
    func nameBesideWalk() throws {
        let directory = TemporarySpool()
        let creation = UploadCreation.sample()
        let before = try directory.open()
        let upload = try before.create(creation, requestRelease: {})
        try upload.append("content")
        try upload.postpone(reason: nil, .queue(WallTime(seconds: 5)))
        try upload.sync()
        upload.unlock()
        // btrfs: the record is durable, its earlier name is not.
        let name = QueueName(WallTime(seconds: 5), creation.id).text
        try FileManager.default.removeItem(atPath: "\(directory.path)/queue/\(name)")
        directory.cutPower()
        let spool = try directory.open()
        let locked = try #require(try spool.lock(creation.id))
        #expect(spool.recover().uploads == 1)
        locked.unlock()
        #expect(directory.queueTimes(of: creation.id) == [WallTime(seconds: 5)])
    }

    @Test("a held upload whose later response a power failure destroyed is held for everyone")
    func responseOfHeld() throws {
        let directory = TemporarySpool()
        let creation = UploadCreation.sample(promise: .process)
        let scripted = ScriptedDisk()
        let before = try directory.open(scripted.disk)
        let upload = try before.create(creation, requestRelease: {})
        try upload.append("content")
        try upload.hold(.held, reason: "wait")
        upload.unlock()
        try before.makeAllDurable()
        // Nothing from here on is durable.
        let again = try #require(try before.lock(creation.id))
        try again.requeue(at: .now)
        try again.beginAttempt()
        scripted.refuse(.sync, errno: SystemError.lost)
        #expect(throws: SpoolError.self) { try again.finish(with: .sample) }
        again.files.close()
        try directory.edit(directory.record(creation.id)) { $0[$0.count - 30] ^= 1 }
        directory.cutPower()
        let spool = try directory.open()
        #expect(spool.recover() == Recovery(uploads: 1))
        #expect(directory.queue(of: creation.id) == .hold)
        // A queue run removes the names that the file does not need.
        var causes: [HoldCause?] = []
        try spool.forEachWaiting({ _, _ in true }, { causes.append($0.cause) })
        #expect(causes == [.held])
        #expect(directory.queueTimes(of: creation.id) == [QueueName.never])
        #expect(spool.recover() == Recovery(uploads: 1))
    }

    @Test("unpromised content after a power failure is truncated once, by the next user")
    func nextRequest() throws {
        let directory = TemporarySpool()
        let id = try upload(in: directory)
        directory.cutPower()
        let scripted = ScriptedDisk()
        let spool = try directory.open(scripted.disk)
        #expect(spool.recover() == Recovery(uploads: 1))
        #expect(directory.content(of: id)?.count == 14)
        scripted.refuse(.truncate, errno: SystemError.lost)
        // Never content that the power failure may have damaged.
        #expect(throws: SpoolError.self) { try spool.lock(id) }
        scripted.allow()
        let upload = try #require(try spool.lock(id))
        #expect(upload.state.offset == 8)
        try upload.append(", again")
        // As after a crash: this content is not durable.
        upload.files.close()
        #expect(try offset(id, directory.open()) == 15)
    }

    @Test(
        "finds files that no request uses: names, content without a record, unpromised uploads"
    )
    func leftOvers() throws {
        let directory = TemporarySpool()
        let queued = UploadCreation.sample()
        let before = try directory.open()
        let upload = try before.create(queued, requestRelease: {})
        try upload.append("content")
        try upload.postpone(reason: nil, .queue(WallTime(seconds: 5)))
        try upload.sync()
        upload.unlock()
        let unpromised = try before.create(.sample(), requestRelease: {})
        unpromised.unlock()
        let orphan = UploadID.random()
        try Data("left".utf8).write(to: URL(filePath: directory.data(orphan)))
        let unwritten = UploadID.random()
        try Data().write(to: URL(filePath: directory.record(unwritten)))
        try FileManager.default.removeItem(
            atPath: "\(directory.path)/queue/\(QueueName(WallTime(seconds: 5), queued.id).text)"
        )
        directory.cutPower()
        let spool = try directory.open()
        let recovery = spool.recover()
        #expect((recovery.uploads, recovery.orphans, recovery.forgotten) == (1, 1, 1))
        #expect(directory.queueTimes(of: queued.id) == [WallTime(seconds: 5)])
        #expect(recovery.corrupt == 1 && directory.data(orphan).contains("/corrupt/"))
        #expect(try spool.summaries().map(\.id) == [queued.id, orphan])
        #expect(spool.recover() == Recovery(uploads: 1))
    }

    @Test("a name that no state needs is removed when its time has come")
    func staleName() throws {
        let directory = TemporarySpool()
        let (id, gone) = (try upload(in: directory), UploadID.random())
        for id in [id, gone] {
            let name = QueueName(WallTime(seconds: 7), id).text
            try Data().write(to: URL(filePath: "\(directory.path)/queue/\(name)"))
        }
        let spool = try directory.open()
        try spool.forEachWaiting({ $1 == WallTime(seconds: 6) }, { _ in })
        #expect(directory.queueTimes(of: id).count == 1)
        try spool.forEachWaiting({ $1 == WallTime(seconds: 7) }, { _ in })
        #expect(directory.queueTimes(of: id).isEmpty && directory.queueTimes(of: gone).isEmpty)
    }

    @Test("a crashed daemon is known by its file until another has recovered the spool")
    func daemons() throws {
        let directory = TemporarySpool()
        func files() throws -> Int {
            try FileManager.default.contentsOfDirectory(atPath: "\(directory.path)/daemons").count
        }
        do {
            let first = try directory.open()
            try first.enter()
            #expect(!first.isAfterDeath)
            let beside = try directory.open()
            try beside.enter()
            // The other process runs.
            #expect(!beside.isAfterDeath)
            beside.leave()
            #expect(try files() == 1)
        }
        let next = try directory.open()
        try next.enter()
        #expect(next.isAfterDeath)
        #expect(try files() == 2)
        _ = next.recover()
        #expect(!next.isAfterDeath)
        #expect(try files() == 1)
        next.leave()
        #expect(try files() == 0)
    }

    @Test("a command wakes each daemon once", arguments: [true, false])
    func waking(isInMemory: Bool) throws {
        let directory = TemporarySpool(isInMemory: isInMemory)
        let daemons = [try directory.open(), try directory.open()]
        for daemon in daemons { try daemon.enter() }
        #expect(daemons.allSatisfy { !$0.isWoken() })
        let command = try Spool(existing: directory.path)
        for _ in 0..<3 {
            command.wake()
            #expect(daemons.allSatisfy { $0.isWoken() })
            #expect(daemons.allSatisfy { !$0.isWoken() })
            // Twice between two checks: the second file may get the first one's inode number.
            command.wake()
            command.wake()
            #expect(daemons.allSatisfy { $0.isWoken() })
        }
        for daemon in daemons { daemon.leave() }
    }

    @Test(
        "an unreadable subdirectory stops nothing else",
        // root can read everything.
        .enabled(if: geteuid() != 0)
    )
    func unreadable() throws {
        let directory = TemporarySpool()
        let id = try upload(in: directory, UploadID(high: 0, low: 1))
        let other = try upload(in: directory, UploadID(high: 1 << 63, low: 1))
        let shard = "\(directory.path)/uploads/0"
        let broken = try directory.open()
        try #require(chmod(shard, 0) == 0)
        var findings: [Recovery.Finding] = []
        let recovery = broken.recover { findings.append($0) }
        #expect(recovery.failed == 1, "\(findings)")
        #expect(try offset(other, broken) == 14)
        try #require(chmod(shard, 0o700) == 0)
        #expect(try directory.open().recover() == Recovery(uploads: 2))
        #expect(try offset(id, broken) == 14)
    }

    @Test("a spool of an unknown format is refused, and both versions are named")
    func format() throws {
        for format in ["spoolgate-spool 1\n", "spoolgate-spool 3\n", "", "something else"] {
            let directory = TemporarySpool()
            let id = try upload(in: directory)
            let record = FileManager.default.contents(atPath: directory.record(id))
            try Data(format.utf8).write(to: URL(filePath: "\(directory.path)/format"))
            for isExisting in [false, true] {
                #expect {
                    _ = isExisting ? try Spool(existing: directory.path) : try directory.open()
                } throws: { error in
                    guard case .unusable(_, let reason, _) = error as? SpoolError else {
                        return false
                    }
                    return reason.contains("'spoolgate-spool 2'")
                        && reason.contains("'\(format.split(separator: "\n").first ?? "")'")
                }
            }
            #expect(FileManager.default.contents(atPath: directory.record(id)) == record)
        }
    }
}
