// Streams as bodies: the bytes kept in memory, skipped bytes, and the end.

import Foundation
import HTTPTypes
import SpoolgatePosix
import SpoolgateTestSupport
import Testing

@testable import ResumableUpload

@Suite("Streams")
struct StreamTests {
    @Test("a stream is read only as far as the window has room")
    func backPressure() async throws {
        let gate = Gate()
        let origin = try UploadOrigin { request in
            if request.method == "PATCH", request.number == 1 { gate.pass() }
            return .serve
        }
        let made = Monitor(0)
        let stream = AsyncStream<[UInt8]> {
            made.update { count in
                guard count < 100 else { return nil }
                count += 1
                return [UInt8](repeating: UInt8(count), count: 10_000)
            }
        }
        let url = origin.base + "/f"
        let sending = Task { await upload(.stream(stream), to: url, quickOptions()).result }
        // The window holds thirteen pieces (128 KiB), and one more waits.
        try await comesTrue("the window is full") { made.update { $0 } == 14 }
        gate.open()
        let outcome = await sending.value
        #expect(try outcome.get().status.code == 201)
        #expect(origin.taken.map(\.count) == [1_000_000])
    }

    @Test("the window returns the bytes put in, also where its memory wraps")
    func window() throws {
        let bytes = pattern(2_000_003)
        for (skipped, seed) in [(0, 1), (999_999, 2), (70_001, 3)] as [(Int, UInt64)] {
            let window = StreamWindow(capacity: (1 << 16) + 7)
            window.release(upTo: Int64(skipped))
            try SpoolgatePosix.Thread.start(name: "producer") {
                var random = SplitMix(seed: seed)
                var rest = bytes[...]
                while !rest.isEmpty {
                    guard window.waitForRoom(until: .after(.seconds(60))) else { return }
                    let wished = Int.random(in: 1...30_000, using: &random)
                    let count = window.put { room in
                        room.copyBytes(from: rest.prefix(min(wished, room.count)))
                        return min(wished, room.count, rest.count)
                    }
                    rest = rest.dropFirst(count)
                }
                window.end()
            }
            var random = SplitMix(seed: seed + 10)
            var taken: [UInt8] = []
            while skipped + taken.count < bytes.count {
                let at = Int64(skipped + taken.count)
                let wished = Int64.random(in: 1...40_000, using: &random)
                let ready = window.ready(from: at, count: wished, until: .after(.seconds(60)))
                let count = Int(min(ready.end - at, wished))
                try #require(count > 0, "nothing arrived after \(at)")
                var piece = [UInt8](repeating: 0, count: count)
                #expect(piece.withUnsafeMutableBytes { window.read(into: $0, at: at) })
                taken += piece
                window.release(upTo: at + Int64(count))
            }
            #expect(taken == bytes.dropFirst(skipped).map { $0 })
            var past: [UInt8] = [0]
            #expect(!past.withUnsafeMutableBytes { window.read(into: $0, at: Int64(bytes.count)) })
            #expect(!past.withUnsafeMutableBytes { window.read(into: $0, at: 0) })
        }
    }

    @Test("after a resume, bytes that the server has are skipped")
    func skipped() async throws {
        let origin = try UploadOrigin { $0.number == 2 ? .response("403 No") : .serve }
        let bytes = pattern(400_000)
        let first = await upload(
            .stream(pieces(bytes, of: 1_000)),
            to: origin.base + "/f",
            quickOptions()
        )
        let token = try #require(first.result.error?.token)
        #expect(token.fingerprint == nil && token.length == nil)
        let second = await upload(
            .stream(pieces(bytes, of: 77_777)),
            to: "",
            quickOptions(),
            from: token
        )
        #expect(try second.result.get().status.code == 201)
        #expect(origin.taken == [bytes])
        let other = await upload(
            .stream(pieces(pattern(10), of: 3)),
            to: "",
            quickOptions(),
            from: token
        )
        #expect(other.result.error?.kind == .changed)
    }

    @Test("a stream that fails, or has another length than announced, completes nothing")
    func broken() async throws {
        struct Lost: Error {}
        let origin = try UploadOrigin()
        let broken = AsyncThrowingStream<[UInt8], any Error> { continuation in
            continuation.yield(pattern(300_000))
            continuation.finish(throwing: Lost())
        }
        let error = await upload(.stream(broken), to: origin.base + "/f", quickOptions()).result
            .error
        #expect(error?.kind == .unreadable && error?.reason.contains("Lost") == true)
        for told in [299_999, 300_001] as [Int64] {
            let body = Upload.Body.stream(pieces(pattern(300_000), of: 5_000), length: told)
            let error = await upload(body, to: origin.base + "/f", quickOptions()).result.error
            #expect(error?.kind == .changed)
        }
        #expect(origin.taken.isEmpty)
    }

    @Test("a slow stream is sent as it arrives")
    func slow() async throws {
        let origin = try UploadOrigin()
        let (stream, continuation) = AsyncStream<[UInt8]>.makeStream()
        let url = origin.base + "/f"
        let sending = Task { await upload(.stream(stream), to: url, quickOptions()).result }
        continuation.yield([1, 2, 3])
        try await comesTrue("the first bytes are there") {
            origin.requests.contains { $0.content == [1, 2, 3] }
        }
        continuation.yield([4])
        continuation.finish()
        let outcome = await sending.value
        #expect(try outcome.get().status.code == 201)
        #expect(origin.taken == [[1, 2, 3, 4]])
    }

    @Test("a descriptor is read to its end, and a pipe by its path")
    func descriptors() async throws {
        let origin = try UploadOrigin()
        let bytes = pattern(500_000)
        let pipe = Pipe()
        try SpoolgatePosix.Thread.start(name: "writer") {
            try? pipe.fileHandleForWriting.write(contentsOf: Data(bytes))
            try? pipe.fileHandleForWriting.close()
        }
        let number = pipe.fileHandleForReading.fileDescriptor
        #expect(
            try await upload(.descriptor(number), to: origin.base + "/f", quickOptions()).result
                .get()
                .status.code == 201
        )
        let directory = try ScratchDirectory()
        let path = directory.path + "/pipe"
        #expect(mkfifo(path, 0o600) == 0)
        try SpoolgatePosix.Thread.start(name: "writer") {
            try? Data(bytes).write(to: URL(filePath: path))
        }
        #expect(
            try await upload(.file(path), to: origin.base + "/f", quickOptions()).result.get()
                .status.code
                == 201
        )
        #expect(origin.taken == [bytes, bytes])
    }

    @Test("paused while a stream is silent")
    func paused() async throws {
        let origin = try UploadOrigin()
        let (stream, continuation) = AsyncStream<[UInt8]>.makeStream()
        let body = Upload(.stream(stream), to: origin.base + "/f", options: quickOptions())
        let run = Task { try await body.run() }
        continuation.yield([1])
        try await comesTrue("the first byte is there") {
            origin.requests.contains { $0.content == [1] }
        }
        let token = await body.pause()
        #expect(token?.url == origin.base + "/u/1")
        await #expect(throws: TransferError.self) { try await run.value }
        try await body.cancel()
        #expect(origin.asked.last == "DELETE /u/1" && body.token == nil)
    }
}
