// The common part of all transfers: events, errors and sessions.

import Foundation
import HTTPTypes
import SpoolgatePosix
import SpoolgateTestSupport
import Testing

@testable import ResumableUpload

@Suite("Transfers")
struct TransferTests {
    private static var impatient: Upload.Options {
        var options = quickOptions()
        options.connection.retryFor = .zero
        return options
    }

    // MARK: Events

    @Test("events end with each run, however it ends, and start over with the next one")
    func eventsEnd() async throws {
        let isThere = Monitor(false)
        let origin = try UploadOrigin { _ in
            isThere.update { $0 } ? .serve : .response("503 Service Unavailable")
        }
        let bytes = pattern(300_000)
        let upload = Upload(.bytes(bytes), to: origin.base + "/f", options: Self.impatient)
        let first = upload.events
        let error = await #expect(throws: TransferError.self) { try await upload.run() }
        #expect(error?.kind == .later)
        for await _ in first {}
        isThere.update { $0 = true }
        let (second, third) = (upload.events, upload.events)
        #expect(try await upload.run().status == .created)
        var heard: [Upload.Event] = []
        for await event in second { heard.append(event) }
        #expect(heard.contains { if case .resumable = $0 { true } else { false } })
        var again: [Upload.Event] = []
        for await event in third { again.append(event) }
        #expect(again == heard, "each reader hears everything")
        // The upload has ended, so the stream ends at once.
        for await _ in upload.events {}
    }

    @Test("events end after a pause")
    func eventsEndAfterPause() async throws {
        let origin = try UploadOrigin()
        let (stream, source) = AsyncStream<[UInt8]>.makeStream()
        let upload = Upload(.stream(stream), to: origin.base + "/f", options: quickOptions())
        let events = upload.events
        let run = Task { try await upload.run() }
        source.yield([1])
        try await comesTrue("the first byte is there") {
            origin.requests.contains { $0.content == [1] }
        }
        _ = await upload.pause()
        for await _ in events {}
        let error = await #expect(throws: TransferError.self) { try await run.value }
        #expect(error?.kind == .paused)
    }

    @Test(
        "the last event of an accepted upload reports complete progress",
        arguments: [(0, true), (0, false), (1 << 20, true)]
    )
    func progressAtTheEnd(plainBelow: Int64, isCareful: Bool) async throws {
        let origin = try UploadOrigin()
        var options = quickOptions(isCareful ? .careful : .optimistic)
        options.plainBelow = plainBelow
        let bytes = pattern(300_000)
        for body in [Upload.Body.bytes(bytes), .stream(pieces(bytes, of: 7_000))] {
            let (result, events) = await upload(body, to: origin.base + "/f", options)
            _ = try result.get()
            let whole = Transfer.Progress(received: 300_000, sent: 300_000, total: 300_000)
            #expect(events.last == .progress(whole))
        }
    }

    // MARK: Ends

    @Test("a pause or cancel without a run affects no run")
    func wishWithoutRun() async throws {
        let origin = try UploadOrigin()
        let upload = Upload(.bytes([1]), to: origin.base + "/f", options: quickOptions())
        #expect(await upload.pause() == nil)
        upload.requestPause()
        try await upload.cancel()
        #expect(try await upload.run().status == .created)
        let download = Download(origin.base + "/f", to: .pieces { _ in })
        #expect(await download.pause() == nil)
    }

    @Test("a canceled task ends with CancellationError, and the upload can be resumed")
    func cancelledTask() async throws {
        let origin = try UploadOrigin()
        let (stream, source) = AsyncStream<[UInt8]>.makeStream()
        let upload = Upload(.stream(stream), to: origin.base + "/f", options: quickOptions())
        let run = Task { try await upload.run() }
        source.yield([1])
        try await comesTrue("the first byte is there") {
            origin.requests.contains { $0.content == [1] }
        }
        run.cancel()
        await #expect(throws: CancellationError.self) { try await run.value }
        let token = try #require(upload.token)
        let rest = Upload.resume(from: token, body: .bytes([1, 2]), options: quickOptions())
        #expect(try await rest.run().status == .created)
        #expect(origin.taken == [[1, 2]])
    }

    @Test("a task that was canceled before it ran sends nothing")
    func cancelledBefore() async throws {
        let origin = try UploadOrigin()
        let upload = Upload(.bytes([1]), to: origin.base + "/f", options: quickOptions())
        let run = Task {
            withUnsafeCurrentTask { $0?.cancel() }
            return try await upload.run()
        }
        await #expect(throws: CancellationError.self) { try await run.value }
        #expect(origin.asked.isEmpty)
    }

    @Test("an upload runs once at a time")
    func onceAtATime() async throws {
        let gate = Gate()
        let origin = try UploadOrigin { _ in
            gate.pass()
            return .serve
        }
        let upload = Upload(.bytes([1]), to: origin.base + "/f", options: quickOptions())
        let run = Task { try await upload.run() }
        try await comesTrue("it runs") { origin.origin.connectionCount == 1 }
        let error = Result { () throws(TransferError) in try upload.perform() }.error
        #expect(error?.kind == .invalid)
        gate.open()
        #expect(try await run.value.status == .created)
    }

    // MARK: Sessions

    @Test("uploads of a session take turns, and reuse connections")
    func session() async throws {
        let gate = Gate()
        let origin = try UploadOrigin { request in
            if request.target == "/0" { gate.pass() }
            return .serve
        }
        var options = quickOptions()
        options.plainBelow = 1 << 20
        let session = TransferSession(maximumTransfers: 1, uploadOptions: options)
        let uploads = (0..<40).map { number in
            session.upload(.bytes([UInt8(number)]), to: origin.base + "/\(number)")
        }
        let start = { number in Task { try await uploads[number].run() } }
        var runs = [start(0)]
        try await comesTrue("the first is in progress") { origin.origin.connectionCount == 1 }
        runs += (1..<40).map(start)
        // A waiting upload ends at once. A pause before the run has no effect, so it is repeated.
        let pauses = Task {
            while !Task.isCancelled {
                _ = await uploads[20].pause()
                await Task.yield()
            }
        }
        let error = await #expect(throws: TransferError.self) { try await runs[20].value }
        pauses.cancel()
        #expect(error?.kind == .paused)
        // A pause at a run's end does not affect the next run.
        _ = await pauses.result
        runs[30].cancel()
        await #expect(throws: CancellationError.self) { try await runs[30].value }
        gate.open()
        for (number, run) in runs.enumerated() where number != 20 && number != 30 {
            #expect(try await run.value.status == .created)
        }
        let expected = (0..<40).filter { $0 != 20 && $0 != 30 }.map { [UInt8($0)] }
        #expect(Set(origin.taken) == Set(expected))
        #expect(origin.origin.connectionCount == 1)
        // Paused uploads can be run later.
        #expect(try await uploads[20].run().status == .created)
    }

    @Test("a session limits concurrent uploads, also those that block a thread")
    func sessionLimit() async throws {
        let gate = Gate()
        let (now, maximum) = (Monitor(0), Monitor(0))
        let origin = try UploadOrigin { request in
            let count = now.update { count in
                count += 1
                return count
            }
            maximum.update { $0 = max($0, count) }
            gate.pass()
            now.update { $0 -= 1 }
            return .serve
        }
        let session = TransferSession(maximumTransfers: 3, uploadOptions: quickOptions())
        let ended = Monitor(0)
        for number in 0..<12 {
            try SpoolgatePosix.Thread.start(name: "upload") {
                let upload = session.upload(.bytes([UInt8(number)]), to: origin.base + "/f")
                #expect(throws: Never.self) { try upload.perform() }
                ended.update { $0 += 1 }
            }
        }
        try await comesTrue("three are in progress") { now.update { $0 } == 3 }
        gate.open()
        try await comesTrue("all have ended") { ended.update { $0 } == 12 }
        #expect(maximum.update { $0 } <= 3 && origin.origin.connectionCount <= 3)
        #expect(origin.taken.count == 12)
    }
}
