// A clean stop, which makes every upload durable, and processes that see another boot of the machine.

import Foundation
import SpoolgatePosix
import SpoolgateUploadProtocol
import Testing

@testable import SpoolgateSpool

/// An upload as it is before a stop.
struct StopCase: CustomTestStringConvertible, Sendable {
    let testDescription: String
    /// The content that a restart of the machine must keep.
    var content = "content"
    let make: @Sendable (Upload) throws -> Void

    static let all: [StopCase] = [
        StopCase(testDescription: "empty", content: "") { _ in },
        StopCase(testDescription: "partial") { try $0.append("content") },
        StopCase(testDescription: "partial, with an acknowledged offset") { upload in
            try upload.append("con")
            try upload.sync()
            try upload.append("tent")
        },
        StopCase(testDescription: "content that was not verified", content: "con") { upload in
            try upload.append("con")
            try upload.beginUnverified()
            try upload.append("tent")
        },
        StopCase(testDescription: "deferred for its client") { upload in
            try upload.append("content")
            try upload.postpone(reason: nil, .client(.now))
        },
        StopCase(testDescription: "deferred for the queue") { upload in
            try upload.append("content")
            try upload.postpone(reason: "not reached", .queue(WallTime(seconds: 5)))
        },
        StopCase(testDescription: "on hold") { upload in
            try upload.append("content")
            try upload.hold(.held, reason: "wait")
        },
    ]
}

@Suite("A clean stop")
struct StopTests {
    private func make(
        _ row: StopCase,
        _ promise: UploadPromise,
        in spool: Spool
    ) throws -> UploadID {
        let upload = try spool.create(.sample(promise: promise), requestRelease: {})
        try row.make(upload)
        upload.unlock()
        return upload.creation.id
    }

    @Test(
        "keeps every upload over a restart of the machine, whatever its promise",
        arguments: StopCase.all,
        UploadPromise.allCases
    )
    func restart(_ row: StopCase, promise: UploadPromise) throws {
        for hasCrashed in [false, true] {
            let directory = TemporarySpool()
            var spool = try directory.open()
            let id = try make(row, promise, in: spool)
            if hasCrashed {
                // The next daemon finds the upload by its walk.
                spool = try directory.open()
                _ = spool.recover()
            }
            let queue = directory.queue(of: id)
            try spool.makeAllDurable()
            directory.restart()
            let next = try directory.open()
            #expect(next.recover() == Recovery(uploads: 1))
            let upload = try #require(try next.lock(id))
            #expect(directory.queue(of: id) == queue)
            #expect(try String(decoding: upload.content(), as: UTF8.self) == row.content)
            // A second restart keeps it as well.
            upload.unlock()
            try next.makeAllDurable()
            directory.restart()
            #expect(try directory.open().lock(id)?.state.offset == Int64(row.content.utf8.count))
        }
    }

    @Test(
        "keeps what a crashed daemon has left, also if its recovery has not ended",
        arguments: StopCase.all,
        UploadPromise.allCases
    )
    func unrecovered(_ row: StopCase, promise: UploadPromise) throws {
        let directory = TemporarySpool()
        var daemon: Spool? = try directory.open()
        try daemon?.enter()
        let id = try make(row, promise, in: #require(daemon))
        // The kernel closes the files of a crashed process.
        daemon = nil
        let next = try directory.open()
        try next.enter()
        #expect(next.isAfterDeath)
        try next.makeAllDurable()
        directory.restart()
        let last = try directory.open()
        #expect(last.recover() == Recovery(uploads: 1))
        let upload = try #require(try last.lock(id))
        #expect(try String(decoding: upload.content(), as: UTF8.self) == row.content)
    }

    @Test("a power failure without a clean stop removes what its promise does not cover")
    func withoutStop() throws {
        let directory = TemporarySpool()
        let id = try make(StopCase.all[4], .process, in: directory.open())
        directory.cutPower()
        #expect(try directory.open().recover().forgotten == 1)
        #expect(directory.queue(of: id) == nil && directory.content(of: id) == nil)
    }

    @Test("syncs the content before a state says that it is durable, and then the state")
    func order() throws {
        let (directory, scripted) = (TemporarySpool(), ScriptedDisk())
        let spool = try directory.open(scripted.disk)
        for _ in 0..<3 { _ = try make(StopCase.all[1], .process, in: spool) }
        scripted.forget()
        try spool.makeAllDurable()
        let sync = Disk.Call.syncFileSystem
        #expect(scripted.calls == [sync, .write, .write, .write, sync])
        scripted.forget()
        try spool.makeAllDurable()
        #expect(scripted.calls.isEmpty, "nothing has changed since")
    }

    @Test("a failed sync leaves no state that says so")
    func failedSync() throws {
        let (directory, scripted) = (TemporarySpool(), ScriptedDisk())
        let spool = try directory.open(scripted.disk)
        let id = try make(StopCase.all[1], .process, in: spool)
        scripted.refuse(.syncFileSystem, errno: SystemError.lost)
        #expect(throws: SpoolError.self) { try spool.makeAllDurable() }
        #expect(directory.state(of: id)?.durable == nil)
    }

    @Test("leaves alone an upload in use, and a delivered one")
    func others() throws {
        let (directory, scripted) = (TemporarySpool(), ScriptedDisk())
        let spool = try directory.open(scripted.disk)
        let delivered = try spool.create(.sample(promise: .process), requestRelease: {})
        try delivered.append("content")
        try delivered.beginAttempt()
        try delivered.finish(with: .sample)
        delivered.unlock()
        let used = try spool.create(.sample(promise: .process), requestRelease: {})
        try used.append("content")
        scripted.forget()
        try spool.makeAllDurable()
        #expect(scripted.calls.isEmpty)
        directory.restart()
        used.files.close()
        let next = try directory.open()
        // The stored response needs no durable state.
        #expect(next.recover().forgotten == 1)
        #expect(try next.lock(delivered.creation.id)?.response() == .sample)
    }

    @Test("a removed upload is not looked for")
    func removed() throws {
        let directory = TemporarySpool()
        let spool = try directory.open()
        let id = try make(StopCase.all[1], .process, in: spool)
        #expect(spool.undurable.all == [id])
        try spool.lock(id)?.remove()
        #expect(spool.undurable.all.isEmpty)
    }

    // MARK: Another view of the boot

    @Test(
        "a command that sees another boot removes no upload, whether a daemon runs or not",
        arguments: StopCase.all,
        [true, false]
    )
    func otherBoot(_ row: StopCase, isRunning: Bool) throws {
        let directory = TemporarySpool()
        let daemon = try directory.open()
        if isRunning { try daemon.enter() }
        let id = try make(row, .process, in: daemon)
        let before = directory.queue(of: id)
        // Its writer is the real boot.
        let command = try Spool(existing: directory.path)
        if isRunning {
            #expect {
                try command.checkBoot()
            } throws: { error in
                guard case .otherBoot(_, "boot0", let own) = error as? SpoolError else {
                    return false
                }
                return own == command.writer
            }
        } else {
            try command.checkBoot()
        }
        if directory.state(of: id)?.durable == nil {
            #expect(throws: SpoolError.unrecovered(id)) { try command.tryLock(id) }
        }
        #expect(directory.queue(of: id) == before)
        #expect(try daemon.lock(id)?.state.offset == Int64(row.content.utf8.count))
        daemon.leave()
    }

    @Test(
        "daemons start, and commands change uploads, while another recovers those of the last boot"
    )
    func afterBoot() throws {
        let directory = TemporarySpool()
        do {
            let dead = try Spool(directory: directory.path) { $0.writer = "before" }
            try dead.enter()
        }
        let first = try directory.open()
        try first.enter()
        #expect(first.isAfterDeath)
        let second = try directory.open()
        try second.enter()
        #expect(!second.isAfterDeath)
        try directory.open().checkBoot()
        first.leave()
        // Its uploads are not recovered yet, so the other one does that.
        #expect(second.findsDead())
        second.leave()
    }

    @Test("a daemon that sees another boot than a running one does not start")
    func otherDaemon() throws {
        let directory = TemporarySpool()
        let first = try directory.open()
        try first.enter()
        let other = try Spool(directory: directory.path) { $0.writer = "another" }
        #expect(throws: SpoolError.self) { try other.enter() }
        // It has left, and one that sees the same boot starts.
        let second = try directory.open()
        try second.enter()
        #expect(!second.isAfterDeath)
        second.leave()
        first.leave()
        try other.enter()
        other.leave()
    }
}
