// Streams sent by one append of unknown length while the server reports received content.

import Foundation
import HTTPTypes
import SpoolgatePosix
import SpoolgateTestSupport
import Testing

@testable import ResumableUpload

@Suite("Open appends")
struct OpenAppendTests {
    /// In pieces of 8 KiB; waits after `head` bytes until the gate opens.
    private func stream(_ bytes: [UInt8], stopsAfter head: Int, _ gate: Gate) -> Upload.Body {
        let given = Monitor(0)
        return .stream(
            AsyncThrowingStream<[UInt8], any Error> {
                let start = given.update { $0 }
                if start >= head { try await gate.passed() }
                let piece = Array(bytes[start..<min(start + 8192, bytes.count)])
                given.update { $0 += piece.count }
                return piece.isEmpty ? nil : piece
            }
        )
    }

    /// Uploads a stream that stops after 32 KiB until the client has received a report.
    private func uploadReported(
        _ bytes: [UInt8],
        to origin: UploadOrigin
    ) async -> (result: Result<Transfer.Response, TransferError>, events: [Upload.Event]) {
        let gate = Gate()
        let events = Monitor<[Upload.Event]>([])
        let take: @Sendable (Upload.Event) -> Void = { event in
            events.update { $0.append(event) }
            if case .progress(let progress) = event, progress.received > 0 { gate.open() }
        }
        let upload = Upload(
            stream(bytes, stopsAfter: 32 << 10, gate),
            to: origin.base + "/f",
            options: quickOptions(),
            onEvent: take
        )
        do {
            let response = try await upload.run()
            return (.success(response), events.update { $0 })
        } catch {
            let error = error as? TransferError ?? TransferError(.invalid, "\(error)")
            return (.failure(error), events.update { $0 })
        }
    }

    @Test("a stream that ends after the server has everything reports complete progress")
    func progressAtLateEnd() async throws {
        let origin = try UploadOrigin(reporting: .max)
        let bytes = pattern(64 << 10)
        let gate = Gate()
        let events = Monitor<[Upload.Event]>([])
        let body = stream(bytes, stopsAfter: bytes.count, gate)
        let upload = Upload(body, to: origin.base + "/f", options: quickOptions()) { event in
            events.update { $0.append(event) }
            if case .progress(let progress) = event, progress.received == bytes.count {
                gate.open()
            }
        }
        _ = try await upload.run()
        #expect(origin.taken == [bytes])
        let count = Int64(bytes.count)
        let whole = Transfer.Progress(received: count, sent: count, total: count)
        #expect(events.update { $0.last } == .progress(whole))
    }

    @Test(
        "a stream is one append while the server reports offsets, and an empty append completes it"
    )
    func oneAppend() async throws {
        let origin = try UploadOrigin(reporting: .max)
        let bytes = pattern(3_000_000)
        let (result, events) = await uploadReported(bytes, to: origin)
        #expect(try result.get().content == Array("taken".utf8))
        #expect(origin.taken == [bytes])
        #expect(origin.asked == ["POST /f", "PATCH /u/1", "PATCH /u/1"])
        let (open, last) = (origin.requests[1], origin.requests[2])
        #expect(open.values("Transfer-Encoding") == ["chunked"])
        #expect(open.values("Content-Length").isEmpty)
        #expect(open.values("Upload-Complete") == ["?0"])
        #expect(open.values("Incremental") == ["?1"] && last.values("Incremental").isEmpty)
        #expect(open.values("Upload-Offset") == ["0"])
        #expect(open.values("Upload-Length").isEmpty)
        #expect(open.values("Content-Type") == ["application/partial-upload"])
        #expect(last.content.isEmpty)
        #expect(last.values("Upload-Complete") == ["?1"])
        #expect(last.values("Upload-Length") == ["3000000"])
        let tokens = events.compactMap { if case .resumable(let token) = $0 { token } else { nil } }
        #expect(tokens.map(\.mayBeComplete) == [false, true])
        let received = events.compactMap {
            if case .progress(let progress) = $0 { progress.received } else { nil }
        }
        #expect(received == received.sorted() && received.count > 10)
    }

    @Test("without reports each append has half the window")
    func silent() async throws {
        let origin = try UploadOrigin()
        let bytes = pattern(700_000)
        let body = Upload.Body.stream(pieces(bytes, of: 9_999))
        let (result, _) = await upload(body, to: origin.base + "/f", quickOptions())
        #expect(try result.get().status == .created)
        #expect(origin.taken == [bytes])
        let appends = origin.requests.dropFirst()
        #expect(appends.allSatisfy { $0.method == "PATCH" && $0.content.count <= 1 << 16 })
        #expect(appends.count >= 11 && appends.count < 20)
    }

    @Test("a cut open append continues at the server's offset")
    func cut() async throws {
        let origin = try UploadOrigin(reporting: .max) { request in
            request.method == "PATCH" && request.number < 8
                ? .cut(after: 200_000 + 7 * request.number) : .serve
        }
        let bytes = pattern(2_000_000)
        let (result, events) = await uploadReported(bytes, to: origin)
        #expect(try result.get().status == .created)
        #expect(origin.taken == [bytes])
        #expect(origin.asked.filter { $0.hasPrefix("HEAD") }.count == 4)
        let received = events.compactMap {
            if case .progress(let progress) = $0 { progress.received } else { nil }
        }
        #expect(received == received.sorted())
    }

    @Test(
        "if reports stop, a full window waits for them, and then each append has a length"
    )
    func reportsEnd() async throws {
        let origin = try UploadOrigin(reporting: 200_000)
        let bytes = pattern(1_000_000)
        let (result, _) = await uploadReported(bytes, to: origin)
        #expect(try result.get().status == .created)
        #expect(origin.taken == [bytes])
        let appends = origin.requests.dropFirst()
        #expect(appends.first?.content.count ?? 0 > 128 << 10)
        for append in appends.dropFirst() {
            #expect(append.values("Transfer-Encoding").isEmpty)
            #expect(append.content.count <= 1 << 16)
        }
    }

    @Test("an open append ends if the stream pauses for a second, and another one follows")
    func pauses() async throws {
        let origin = try UploadOrigin(reporting: .max)
        let bytes = pattern(500_000)
        let gate = Gate()
        let url = origin.base + "/f"
        let body = stream(bytes, stopsAfter: 100_000, gate)
        let sending = Task { await upload(body, to: url, quickOptions()).result }
        try await comesTrue("the first append has ended") {
            origin.requests.filter { $0.method == "PATCH" && $0.isAnswered }
                .reduce(0) { $0 + $1.content.count } >= 100_000
        }
        gate.open()
        let outcome = await sending.value
        #expect(try outcome.get().status == .created)
        #expect(origin.taken == [bytes])
    }

    @Test(
        "append limits apply to open appends",
        arguments: ["max-append-size=100000", "max-append-size=30000, min-append-size=10000"]
    )
    func limits(limit: String) async throws {
        let maximum = limit.hasSuffix("0000, min-append-size=10000") ? 30_000 : 100_000
        let origin = try UploadOrigin(reporting: .max, limit: limit)
        let bytes = pattern(500_000)
        let (result, _) = await uploadReported(bytes, to: origin)
        #expect(try result.get().status == .created)
        #expect(origin.taken == [bytes])
        #expect(origin.requests.allSatisfy { $0.content.count <= maximum })
    }

    @Test("an open append begins with the minimum size of an append")
    func least() async throws {
        let origin = try UploadOrigin(limit: "min-append-size=50000")
        let (stream, continuation) = AsyncStream<[UInt8]>.makeStream()
        let url = origin.base + "/f"
        let sending = Task { await upload(.stream(stream), to: url, quickOptions()).result }
        let bytes = pattern(120_000)
        continuation.yield(Array(bytes[..<10_000]))
        try await comesTrue("the upload is created") { origin.asked == ["POST /f"] }
        continuation.yield(Array(bytes[10_000..<60_000]))
        try await comesTrue("the first append has ended") { origin.asked.count == 2 }
        continuation.yield(Array(bytes[60_000...]))
        continuation.finish()
        let outcome = await sending.value
        #expect(try outcome.get().status == .created)
        #expect(origin.taken == [bytes])
        let sizes = origin.requests.dropFirst().dropLast().map(\.content.count)
        #expect(sizes.allSatisfy { $0 >= 50_000 })
    }

    @Test(
        "a server that refuses content without a length gets the length",
        arguments: [
            "411 Length Required", "400 Bad Request", "413 Content Too Large", "501 No",
            "204 No Content",
        ]
    )
    func lengthRequired(status: String) async throws {
        let origin = try UploadOrigin { request in
            guard request.values("Transfer-Encoding") == ["chunked"] else { return .serve }
            return .response(
                status,
                status.hasPrefix("204") ? ["Upload-Offset: 0", "Upload-Complete: ?0"] : []
            )
        }
        let bytes = pattern(300_000)
        let body = Upload.Body.stream(pieces(bytes, of: 9_999))
        let (result, _) = await upload(body, to: origin.base + "/f", quickOptions())
        #expect(try result.get().status == .created)
        #expect(origin.taken == [bytes])
        let chunked = origin.requests.filter { $0.values("Transfer-Encoding") == ["chunked"] }
        #expect(chunked.count == 1)
    }

    @Test("two open appends that deliver nothing are the last")
    func breaksOpen() async throws {
        let origin = try UploadOrigin { request in
            request.values("Transfer-Encoding") == ["chunked"] ? .cut(after: 0) : .serve
        }
        let bytes = pattern(300_000)
        // The server discards the content of the interrupted requests.
        let body = Upload.Body.stream(pieces(bytes, of: 9_999))
        let (result, _) = await upload(body, to: origin.base + "/f", quickOptions())
        #expect(try result.get().status == .created)
        #expect(origin.taken == [bytes])
        #expect(
            origin.origin.all.filter { $0.values("Transfer-Encoding") == ["chunked"] }.count == 2
        )
    }

    @Test("a stream of known length is completed by its last bytes")
    func knownLength() async throws {
        let origin = try UploadOrigin(reporting: .max)
        let bytes = pattern(600_000)
        let body = Upload.Body.stream(pieces(bytes, of: 9_999), length: 600_000)
        let (result, _) = await upload(body, to: origin.base + "/f", quickOptions())
        #expect(try result.get().status == .created)
        #expect(origin.taken == [bytes])
        let last = try #require(origin.requests.last)
        #expect(last.values("Upload-Complete") == ["?1"] && !last.content.isEmpty)
    }

    @Test("an unrelated success does not complete a stream that has ended")
    func unconfirmed() async throws {
        let origin = try UploadOrigin {
            $0.number == 1 ? .response("200 OK", content: "log in") : .serve
        }
        let bytes = pattern(50_000)
        let gate = Gate()
        let url = origin.base + "/f"
        let body = stream(bytes, stopsAfter: 16_000, gate)
        let sending = Task { await upload(body, to: url, quickOptions()).result }
        try await comesTrue("the append has begun") {
            origin.origin.all.contains { $0.method == "PATCH" }
        }
        gate.open()
        let outcome = await sending.value
        #expect(try outcome.get().content == Array("taken".utf8))
        #expect(origin.taken == [bytes])
    }

    @Test("an open append is paused, and continues at the server's offset")
    func paused() async throws {
        let origin = try UploadOrigin(reporting: .max)
        let gate = Gate()
        let bytes = pattern(400_000)
        let upload = Upload(
            stream(bytes, stopsAfter: 100_000, gate),
            to: origin.base + "/f",
            options: quickOptions()
        )
        let run = Task { try await upload.run() }
        try await comesTrue("an append is open") {
            origin.origin.all.contains { $0.method == "PATCH" && $0.contentLength > 0 }
        }
        let token = try #require(await upload.pause())
        gate.open()
        await #expect(throws: TransferError.self) { try await run.value }
        let body = Upload.Body.stream(pieces(bytes, of: 9_999))
        let (result, _) = await ResumableUploadTests.upload(
            body,
            to: "",
            quickOptions(),
            from: token
        )
        #expect(try result.get().status == .created)
        #expect(origin.taken == [bytes])
    }
}
