// Complete uploads that are not delivered, and the operator's commands for them.

import HTTPTypes
import SpoolgatePosix
import SpoolgateUploadProtocol
import Testing

@testable import SpoolgateSpool

@Suite("Outcomes")
struct OutcomeTests {
    private let directory = TemporarySpool()
    private let scripted = ScriptedDisk()
    private let spool: Spool
    private let creation = UploadCreation.sample(repeatable: false)
    private var id: UploadID { creation.id }

    init() throws { spool = try directory.open(scripted.disk) }

    private func whole(promised: Bool = true) throws -> Upload {
        let upload = try spool.create(creation, requestRelease: {})
        try upload.append("content")
        if promised { try upload.sync() }
        return upload
    }

    private func again() throws -> Upload { try #require(try spool.lock(id)) }

    // MARK: Failed

    @Test("a failed upload keeps its content and the response that failed it")
    func failed() throws {
        let upload = try whole()
        try upload.beginAttempt()
        try upload.hold(.failed, reason: "refused", response: .sample)
        upload.unlock()
        let found = try again()
        #expect(found.state == UploadState(offset: 7, length: 7, phase: .failed))
        #expect((found.holdCause, found.reason, found.nextAttempt) == (.failed, "refused", nil))
        #expect(try found.response() == .sample)
        #expect(try found.content() == Array("content".utf8))
        let seen = try #require(try spool.look(at: id))
        #expect(seen.status == 201)
    }

    @Test(
        "on a full disk, the part of the response that fits is kept, and the cause always",
        arguments: [(0, "whole"), (1, "head"), (2, "status")]
    )
    func failedOnFullDisk(refused: Int, kept: String) throws {
        let upload = try whole()
        try upload.beginAttempt()
        scripted.refuse(.write, errno: 28, times: refused)
        try upload.hold(.failed, reason: "refused", response: .sample)
        upload.unlock()
        let response = try #require(try again().response())
        #expect(response.head.status.code == 201)
        #expect((response.content != nil) == (kept == "whole"))
        #expect(try spool.look(at: id)?.status == 201)
        #expect(response.head.fields.isEmpty == (kept == "status"))
        #expect(directory.queue(of: id) == .hold)
    }

    @Test(
        "no crash between the calls of a failure turns it into a delivery",
        arguments: [Queue.active, .deferred]
    )
    func deathWhileFailing(from queue: Queue) throws {
        for number in 1...20 {
            let directory = TemporarySpool()
            let scripted = ScriptedDisk()
            let spool = try directory.open(scripted.disk)
            let upload = try spool.create(creation, requestRelease: {})
            try upload.append("content")
            try upload.sync()
            if queue == .active { try upload.beginAttempt() }
            if queue == .deferred { try upload.postpone(reason: nil, .queue(.now)) }
            scripted.die(after: number - 1)
            let isThrough = (try? upload.hold(.failed, reason: "no", response: .sample)) != nil
            upload.unlock()
            let found = try #require(try directory.open().lock(id))
            let phases: [UploadState.Phase] = [.failed, .indeterminate, .deferred]
            #expect(phases.contains(found.state.phase), "crash at call \(number)")
            #expect(try found.content() == Array("content".utf8), "crash at call \(number)")
            if isThrough {
                #expect(found.state.phase == .failed)
                return
            }
        }
        Issue.record("more than 20 calls were needed")
    }

    // MARK: Refused by the gateway

    @Test(
        "a refusal of the gateway itself ends an upload that was never delivered",
        arguments: [
            (Queue.incoming, false), (.incoming, true), (.deferred, false), (.deferred, true),
        ]
    )
    func refused(from queue: Queue, promised: Bool) throws {
        let upload = try whole(promised: promised)
        if queue == .deferred { try upload.postpone(reason: "to be looked at", .queue(.now)) }
        scripted.forget()
        try upload.finish(with: .sample)
        #expect(upload.state.phase == .delivered)
        #expect(upload.nextAttempt == nil)
        #expect(scripted.calls.contains(.sync) == promised)
        #expect(!scripted.calls.contains(.syncDirectory))
        #expect(directory.content(of: id) == nil)
        upload.unlock()
        #expect(try again().response() == .sample)
        #expect(try again().attempts == 0)
    }

    @Test("an upload whose response was stored but not made durable is still delivered")
    func refusedUndurably() throws {
        let upload = try whole()
        try upload.postpone(reason: nil, .queue(.now))
        scripted.refuse(.sync, errno: SystemError.lost, times: 1)
        #expect(throws: SpoolError.self) { try upload.finish(with: .sample) }
        upload.unlock()
        #expect(try again().response() == .sample)
        #expect(directory.content(of: id) == nil)
    }

    // MARK: Requeued

    @Test("every held upload can be requeued, and the old reason is removed")
    func requeued() throws {
        for cause in HoldCause.allCases {
            let directory = TemporarySpool()
            let spool = try directory.open()
            let upload = try spool.create(creation, requestRelease: {})
            try upload.append("content")
            try upload.postpone(reason: nil, .queue(.now))
            switch cause {
            case .indeterminate: try upload.hold(.indeterminate, reason: "no answer")
            case .failed: try upload.hold(.failed, reason: "refused", response: .sample)
            case .held: try upload.hold(.held, reason: "wait")
            }
            #expect(upload.nextAttempt == nil)
            #expect(try (upload.response() != nil) == (cause == .failed))
            try upload.requeue(at: WallTime(seconds: 2_000_000_000))
            upload.unlock()
            let found = try #require(try spool.lock(id))
            #expect(found.state.phase == .deferred)
            #expect(found.nextAttempt == WallTime(seconds: 2_000_000_000))
            #expect((found.holdCause, try found.response()) == (nil, nil))
            // A crash now must leave an interrupted attempt, without the old response.
            try found.beginAttempt()
            found.unlock()
            #expect(try spool.lock(id)?.holdCause == .indeterminate)
        }
    }

    @Test("a hold that the operator was told of survives a power failure, in one place only")
    func requeueIsDurable() throws {
        let upload = try whole()
        try upload.beginAttempt()
        try upload.hold(.indeterminate, reason: "no answer")
        scripted.forget()
        try upload.requeue(at: .now)
        #expect(
            scripted.places == [
                "createEmpty queue", "syncDirectory queue", "write record", "sync record",
                "unlink queue", "create tmp", "sync tmp", "rename -",
            ]
        )
    }

    @Test("an upload with lost content is still held, and is never requeued")
    func contentLost() throws {
        let upload = try whole(promised: false)
        try upload.beginAttempt()
        scripted.refuse(.sync, on: ".data", errno: 5, times: 1)
        try upload.hold(.indeterminate, reason: "no answer")
        #expect(upload.state == UploadState(offset: 0, length: 7, phase: .indeterminate))
        #expect(upload.reason == "the content could not be made durable; no answer")
        #expect(throws: SpoolError.self) { try upload.requeue(at: .now) }
        upload.unlock()
        directory.cutPower()
        let other = try directory.open()
        #expect(other.recover().uploads == 1)
        let found = try #require(try other.lock(id))
        #expect(found.holdCause == .indeterminate)
        #expect(throws: SpoolError.self) { try found.requeue(at: .now) }
        #expect(directory.queue(of: id) == .hold)
    }

    @Test("time in the queue begins when the upload is complete, and again when it is requeued")
    func completeSince() throws {
        let upload = try whole()
        #expect(upload.completeSince == nil)
        try upload.postpone(reason: nil, .queue(.now))
        let since = try #require(upload.completeSince)
        try upload.beginAttempt()
        try upload.postpone(reason: "not reached", .queue(.now))
        #expect(upload.completeSince == since)
        try upload.hold(.held, reason: "wait")
        try upload.requeue(at: .now)
        #expect(try #require(upload.completeSince) >= since)
    }

    // MARK: Queue runs

    @Test("a queue run sees waiting uploads, and takes none from a user in any process")
    func queueRun() throws {
        let upload = try whole()
        let other = try directory.open()
        try upload.postpone(reason: nil, .queue(WallTime(seconds: 5)))
        var names: [WallTime?] = []
        var seen: [WaitingUpload] = []
        try other.forEachWaiting {
            names.append($1)
            return false
        } _: {
            seen.append($0)
        }
        #expect(names == [WallTime(seconds: 5)])
        #expect(seen.isEmpty, "it was read unnecessarily")
        try other.forEachWaiting({ $1 == WallTime(seconds: 5) }, { seen.append($0) })
        #expect(seen.map(\.id) == [id])
        #expect(seen.first == upload.waiting)
        #expect(seen.first?.client == upload.creation.client)
        #expect(try spool.tryLock(id) == nil)
        #expect(try other.tryLock(id) == nil)
        upload.unlock()
        let taken = try #require(try other.tryLock(id))
        #expect(taken.state.phase == .deferred)
        #expect(try spool.tryLock(id) == nil)
        #expect(try spool.tryLock(.random()) == nil)
    }

    @Test("a request's upload is not disturbed by a caller that takes only free ones")
    func undisturbed() throws {
        let asked = Monitor(false)
        let upload = try spool.create(creation, requestRelease: { asked.update { $0 = true } })
        let other = try directory.open()
        // The watch checks while the other process tries.
        let isEnded = Monitor(false)
        try Thread.start(name: "taker") { [id] in
            for _ in 0..<5_000 { _ = try? other.tryLock(id) }
            isEnded.update { $0 = true }
        }
        while isEnded.wait(until: .after(.zero), { $0 ? true : nil }) == nil {
            try spool.requestReleaseForOthers()
        }
        #expect(asked.update { $0 } == false)
        try upload.append("content")
    }
}
