// Bodies that a program writes, and bodies from any collection of bytes.

import Foundation
import HTTPTypes
import SpoolgatePosix
import SpoolgateTestSupport
import Testing

@testable import ResumableUpload

@Suite("Writers and collections")
struct WriterTests {
    private struct Broken: Error {}

    @Test("written bytes are sent, from one task or several")
    func writes() async throws {
        let origin = try UploadOrigin()
        let bytes = pattern(1_000_000)
        let (body, writer) = Upload.Body.makeStream(length: 1_000_000)
        async let response = Upload(body, to: origin.base + "/f", options: quickOptions()).run()
        for start in stride(from: 0, to: bytes.count, by: 9_999) {
            try await writer.write(bytes[start..<min(start + 9_999, bytes.count)])
        }
        writer.finish()
        #expect(try await response.status == .created)
        #expect(origin.taken == [bytes])

        let (shared, pen) = Upload.Body.makeStream()
        let run = Task {
            try await Upload(shared, to: origin.base + "/f", options: quickOptions()).run()
        }
        try await withThrowingDiscardingTaskGroup { group in
            for number in 0..<50 {
                group.addTask {
                    try await pen.write([UInt8](repeating: UInt8(number), count: 3_000))
                }
            }
        }
        pen.finish()
        #expect(try await run.value.status == .created)
        let sent = try #require(origin.taken.last)
        let counts = Dictionary(grouping: sent) { $0 }.mapValues(\.count)
        #expect(counts.count == 50 && counts.values.allSatisfy { $0 == 3_000 })
    }

    @Test("a writer waits while the window is full")
    func backPressure() async throws {
        let gate = Gate()
        let origin = try UploadOrigin { request in
            if request.method == "PATCH" { gate.pass() }
            return .serve
        }
        let (body, writer) = Upload.Body.makeStream()
        let run = Task {
            try await Upload(body, to: origin.base + "/f", options: quickOptions()).run()
        }
        let written = Monitor(0)
        let writing = Task {
            for _ in 0..<100 {
                try await writer.write([UInt8](repeating: 7, count: 10_000))
                written.update { $0 += 1 }
            }
            writer.finish()
        }
        // The window holds thirteen pieces (128 KiB) and the buffer seven; up to seven more are in between.
        try await comesTrue("the window is full") { written.update { $0 } >= 20 }
        #expect(written.update { $0 } <= 27)
        gate.open()
        try await writing.value
        #expect(try await run.value.status == .created)
        #expect(origin.taken.map(\.count) == [1_000_000])
    }

    @Test("an aborted or abandoned body is not taken for a complete one")
    func broken() async throws {
        let origin = try UploadOrigin()
        for isFailed in [true, false] {
            let (body, failing) = Upload.Body.makeStream()
            var writer = Optional(failing)
            let run = Task { [body] in
                try await Upload(body, to: origin.base + "/f", options: quickOptions()).run()
            }
            try await writer?.write([1, 2, 3])
            if isFailed { writer?.fail(Broken()) }
            writer = nil
            _ = consume failing
            let error = await #expect(throws: TransferError.self) { try await run.value }
            #expect(error?.kind == .unreadable)
            let cause = isFailed ? "Broken()" : "released without finish()"
            #expect(error?.reason.contains(cause) == true, "\(error?.reason ?? "")")
        }
        #expect(origin.taken.isEmpty)
    }

    @Test("a writer receives the end of the upload, however it ends")
    func closed() async throws {
        let origin = try UploadOrigin { request in
            request.target == "/no" ? .response("403 Forbidden") : .serve
        }
        for url in [origin.base + "/no", "ftp://example.org/"] {
            let (body, writer) = Upload.Body.makeStream()
            let run = Task { try await Upload(body, to: url, options: quickOptions()).run() }
            let error = await #expect(throws: TransferError.self) {
                while true { try await writer.write([UInt8](repeating: 1, count: 50_000)) }
            }
            #expect(error?.kind == .closed)
            await #expect(throws: TransferError.self) { try await run.value }
        }
    }

    @Test("a canceled write writes nothing")
    func cancelled() async throws {
        let origin = try UploadOrigin()
        let (body, writer) = Upload.Body.makeStream()
        // The buffer has 64 KiB, and is not read yet.
        let filling = [UInt8](repeating: 2, count: 1 << 16)
        try await writer.write(filling)
        let waiting = Task { try await writer.write([1]) }
        waiting.cancel()
        await #expect(throws: CancellationError.self) { try await waiting.value }
        async let response = Upload(body, to: origin.base + "/f", options: quickOptions()).run()
        try await writer.write([2])
        writer.finish()
        #expect(try await response.status == .created)
        #expect(origin.taken == [filling + [2]])
        await #expect(throws: TransferError.self) { try await writer.write([3]) }
    }

    @Test("a written body is valid for one run")
    func oneRun() async throws {
        let origin = try UploadOrigin { request in
            request.number == 1 ? .cut(after: 0) : .serve
        }
        var options = quickOptions()
        options.connection.retryFor = .zero
        let (body, writer) = Upload.Body.makeStream()
        let upload = Upload(body, to: origin.base + "/f", options: options)
        let run = Task { try await upload.run() }
        try await writer.write([1])
        writer.finish()
        await #expect(throws: TransferError.self) { try await run.value }
        let error = await #expect(throws: TransferError.self) { try await upload.run() }
        #expect(error?.reason.contains("not kept") == true, "\(error?.reason ?? "")")
    }

    @Test("bytes and streams can be of any collection type")
    func collections() async throws {
        let origin = try UploadOrigin()
        let bytes = pattern(100_000)
        let bodies: [Upload.Body] = [
            .bytes(Data(bytes)), .bytes(bytes[...]), .bytes(ContiguousArray(bytes)),
            .bytes(bytes.lazy.map { $0 }),
            .stream(
                AsyncStream {
                    $0.yield(Data(bytes)); $0.finish()
                }
            ),
            .stream(
                AsyncStream {
                    $0.yield(bytes[..<70_000]); $0.yield(bytes[70_000...]); $0.finish()
                }
            ),
        ]
        for body in bodies {
            _ = try await upload(body, to: origin.base + "/f", quickOptions()).result.get()
        }
        _ = try await upload(.bytes("text".utf8), to: origin.base + "/f", quickOptions()).result
            .get()
        let expected = [[UInt8]](repeating: bytes, count: bodies.count) + [Array("text".utf8)]
        #expect(origin.taken == expected)
    }
}
