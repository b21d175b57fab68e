// A complete upload whose attempt cannot begin: incoming -> deferred, by one state.

import SpoolgatePosix
import SpoolgateUploadProtocol
import Testing

@testable import SpoolgateSpool

@Suite("Deferral without an attempt")
struct DeferralTests {
    @Test("without a promise it needs no sync: content, name, state")
    func unpromised() throws {
        let directory = TemporarySpool()
        let scripted = ScriptedDisk()
        let upload = try directory.open(scripted.disk).create(.sample(), requestRelease: {})
        try upload.append("content")
        scripted.forget()
        try upload.postpone(reason: "no free place", .client(.now))
        #expect(
            scripted.places
                == [
                    "create data", "write data", "createEmpty queue", "syncDirectory queue",
                    "write record",
                ]
        )
        #expect(upload.state == UploadState(offset: 7, length: 7, phase: .deferred))
    }

    @Test("that the client received 202 is known after a restart, an attempt, a hold and a requeue")
    func accepted() throws {
        let directory = TemporarySpool()
        var spool = try directory.open()
        let upload = try spool.create(.sample(), requestRelease: {})
        let id = upload.creation.id
        try upload.append("content")
        try upload.sync()
        #expect(upload.accepted == nil)
        try upload.accept(at: WallTime(seconds: 5))
        try upload.sync()
        try upload.beginAttempt()
        try upload.postpone(reason: "not reached", .queue(WallTime(seconds: 6)))
        try upload.hold(.failed, reason: "refused")
        try upload.requeue(at: WallTime(seconds: 7))
        try upload.accept(at: WallTime(seconds: 8))
        upload.unlock()
        spool = try directory.open()
        let again = try #require(try spool.lock(id))
        #expect(again.accepted == WallTime(seconds: 5))
        again.unlock()
    }

    @Test("a reason that is too long for a state is cut between characters, and marked")
    func longReason() throws {
        let directory = TemporarySpool()
        let spool = try directory.open()
        for (reason, kept) in [
            (String(repeating: "a", count: 200), String(repeating: "a", count: 200)),
            (String(repeating: "a", count: 201), String(repeating: "a", count: 197) + "..."),
            (String(repeating: "€", count: 99), String(repeating: "€", count: 65) + "..."),
        ] {
            let upload = try spool.create(.sample(), requestRelease: {})
            try upload.append("content")
            try upload.postpone(reason: reason, .client(.now))
            upload.unlock()
            #expect(try spool.look(at: upload.creation.id)?.reason == kept)
        }
    }

    @Test(
        "after a promise, name, state and content are durable after it is promised again"
    )
    func promised() throws {
        let directory = TemporarySpool()
        let scripted = ScriptedDisk()
        let spool = try directory.open(scripted.disk)
        let upload = try spool.create(.sample(), requestRelease: {})
        try upload.append("content")
        try upload.sync()
        try upload.append(", and more")
        scripted.forget()
        try upload.postpone(reason: "no free place", .client(.now))
        #expect(scripted.places == ["createEmpty queue", "syncDirectory queue", "write record"])
        scripted.forget()
        try upload.sync()
        #expect(scripted.places == ["sync data", "write record", "sync record"])
        upload.unlock()
        directory.cutPower()
        let again = try #require(try directory.open().lock(upload.creation.id))
        #expect(again.state == UploadState(offset: 17, length: 17, phase: .deferred))
    }

    @Test(
        "an unrepeatable attempt is held if the process crashes or the power fails",
        arguments: [false, true],
        [false, true]
    )
    func notRepeatable(isPromised: Bool, isPowerCut: Bool) throws {
        guard isPromised || !isPowerCut else { return }
        let directory = TemporarySpool()
        let creation = UploadCreation.sample(repeatable: true)
        let upload = try directory.open().create(creation, requestRelease: {})
        try upload.append("content")
        if isPromised { try upload.sync() }
        try upload.beginAttempt(isRepeatable: false)
        upload.unlock()
        if isPowerCut { directory.cutPower() }
        let spool = try directory.open()
        _ = spool.recover()
        let again = try #require(try spool.lock(creation.id))
        #expect(again.holdCause == .indeterminate)
    }

    @Test("it counts no attempt, and the next one finds the content")
    func nextAttempt() throws {
        let directory = TemporarySpool()
        let spool = try directory.open()
        let creation = UploadCreation.sample(repeatable: false)
        let upload = try spool.create(creation, requestRelease: {})
        try upload.append("content")
        try upload.postpone(reason: "no free place", .client(.now))
        upload.unlock()
        let summary = try #require(try spool.summaries().first)
        #expect((summary.queue, summary.attempts) == (.deferred, 0))
        #expect(summary.reason == "no free place")
        let again = try #require(try spool.lock(creation.id))
        try again.beginAttempt()
        #expect(try again.content() == Array("content".utf8))
        try again.finish(with: .sample)
        #expect(directory.queue(of: creation.id) == .delivered)
        #expect(directory.queueTimes(of: creation.id).isEmpty)
    }

    @Test(
        "if the disk refuses a step, the upload stays in incoming and can be tried again",
        arguments: [.createEmpty, .write] as [Disk.Call]
    )
    func refused(call: Disk.Call) throws {
        let directory = TemporarySpool()
        let scripted = ScriptedDisk()
        let spool = try directory.open(scripted.disk)
        let creation = UploadCreation.sample()
        let upload = try spool.create(creation, requestRelease: {})
        try upload.sync()
        try upload.append("content")
        scripted.refuse(call, errno: SystemError.lost)
        #expect(throws: SpoolError.self) {
            try upload.postpone(reason: "no free place", .client(.now))
        }
        scripted.allow()
        upload.unlock()
        #expect(directory.queue(of: creation.id) == .incoming)
        let again = try #require(try spool.lock(creation.id))
        #expect(again.state.phase == .receiving)
        #expect(again.state.offset == 7)
        try again.postpone(reason: "no free place", .client(.now))
        #expect(directory.queue(of: creation.id) == .deferred)
    }
}

@Suite("Removal")
struct RemovalTests {
    @Test(
        "after a promise it is durable on return, record before content; without one it needs no sync"
    )
    func durable() throws {
        for (isPromised, calls) in [
            (false, ["unlink record"]),
            (
                true,
                [
                    "createEmpty removed", "unlink record", "unlink data", "unlink removed",
                    "syncDirectory uploads",
                ]
            ),
        ] {
            let directory = TemporarySpool()
            let scripted = ScriptedDisk()
            let upload = try directory.open(scripted.disk).create(.sample(), requestRelease: {})
            try upload.append("content")
            if isPromised { try upload.sync() }
            scripted.forget()
            try upload.remove(durably: true)
            #expect(scripted.places == calls)
            #expect(directory.queue(of: upload.creation.id) == nil)
            #expect(directory.content(of: upload.creation.id) == nil)
        }
    }
}
