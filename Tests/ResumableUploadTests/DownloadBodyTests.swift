// A download's body: order, back pressure, interruptions and every end.

import Foundation
import HTTPTypes
import SpoolgatePosix
import SpoolgateTestSupport
import Testing

@testable import ResumableUpload

@Suite("Bodies of downloads")
struct DownloadBodyTests {
    private static let names = [#"ETag: "v1""#, "Content-Type: text/csv"]

    /// Interrupts its first response.
    private func origin(_ bytes: [UInt8], cut: Int? = nil) throws -> DownloadOrigin {
        try DownloadOrigin { asked in
            asked.range == nil
                ? .whole(bytes, Self.names, cut: cut)
                : .part(bytes, from: asked.start, Self.names)
        }
    }

    private func download(_ url: String) -> Download {
        Download(url, options: DownloadOrigin.options)
    }

    @Test("every byte once and in order, across a cut, and then the response")
    func whole() async throws {
        let bytes = pattern(3_000_000)
        let origin = try origin(bytes, cut: 1_000_000)
        let download = download(origin.url)
        #expect(download.response == nil)
        var came: [UInt8] = []
        for try await piece in download.body {
            #expect(!piece.isEmpty)
            #expect(download.response?.fields[.contentType] == "text/csv")
            came += piece
        }
        #expect(came == bytes)
        #expect(download.response?.status.code == 206)
        #expect(download.token == nil)
        #expect(origin.ranges == [nil, "bytes=1000000-"])
    }

    @Test("a body of no bytes ends at once")
    func empty() async throws {
        let origin = try origin([])
        let download = download(origin.url)
        for try await _ in download.body { Issue.record("the body is not empty") }
        #expect(download.response?.status == .ok)
    }

    @Test("in a session, with events, and nothing is sent before it is read")
    func inSession() async throws {
        let bytes = pattern(300_000)
        let origin = try origin(bytes)
        let session = TransferSession(maximumTransfers: 1, downloadOptions: DownloadOrigin.options)
        let first = session.download(origin.url)
        let second = session.download(origin.url)
        _ = first.body.makeAsyncIterator()
        #expect(origin.requests.isEmpty)
        for download in [first, second] {
            var came: [UInt8] = []
            for try await piece in download.body { came += piece }
            #expect(came == bytes)
        }
    }

    @Test("unread content is not fetched")
    func backPressure() async throws {
        // Much more than both sockets' buffers.
        let bytes = [UInt8](repeating: 5, count: 64 << 20)
        let origin = try origin(bytes)
        let iterator = download(origin.url).body.makeAsyncIterator()
        var count = try await iterator.next()?.count ?? 0
        try await stands { origin.sent.update { $0 } }
        #expect(origin.sent.update { $0 } < 32 << 20)
        while let piece = try await iterator.next() { count += piece.count }
        #expect(count == bytes.count)
    }

    /// Waits until a growing number has not changed for a second.
    private func stands(_ number: () -> Int) async throws {
        let before = Monitor((number: -1, since: Deadline.after(.seconds(1))))
        try await comesTrue("it stands") {
            let now = number()
            return before.update { state in
                if now != state.number { state = (now, .after(.seconds(1))) }
                return state.since.hasPassed
            }
        }
    }

    @Test("a reader slower than the network timeout does not break it")
    func slowReader() async throws {
        let bytes = pattern(900_000)
        let origin = try DownloadOrigin { _ in .whole(bytes, Self.names) }
        var options = DownloadOrigin.options
        options.connection.stall = .milliseconds(500)
        let (nothing, came) = (Monitor(()), Monitor(0))
        let place = Download.Destination.pieces { piece in
            if came.update({ $0 }) == 0 {
                let _: Void? = nothing.wait(until: .after(.milliseconds(1500))) { _ in nil }
            }
            came.update { $0 += piece.count }
        }
        let download = Download(origin.url, to: place, options: options)
        _ = try await download.run()
        #expect(came.update { $0 } == bytes.count)
        #expect(origin.requests.count == 1)
    }

    @Test("a refusal is thrown, and then the sequence ends")
    func refused() async throws {
        let origin = try LoopbackOrigin(status: "403 No", content: "not you")
        let iterator = download(origin.base + "/f").body.makeAsyncIterator()
        do {
            _ = try await iterator.next()
            Issue.record("it gave a value")
        } catch let error as TransferError {
            #expect(error.kind == .refused && error.response?.content == Array("not you".utf8))
        }
        #expect(try await iterator.next() == nil)
    }

    @Test("content received before an error is returned first, and the token continues after it")
    func later() async throws {
        let bytes = pattern(900_000)
        let origin = try origin(bytes, cut: 500_000)
        var options = DownloadOrigin.options
        options.connection.retryFor = .zero
        let first = Download(origin.url, options: options)
        var came: [UInt8] = []
        let error = await #expect(throws: TransferError.self) {
            for try await piece in first.body { came += piece }
        }
        #expect(error?.kind == .later)
        #expect(came == Array(bytes.prefix(500_000)))
        var token = try #require(first.token.flatMap { Download.Token($0.text) })
        #expect(token.offset == 500_000)
        // Any smaller offset works as well.
        token.offset = 400_000
        let other = try self.origin(bytes)
        token.url = other.url
        came.removeLast(100_000)
        for try await piece in Download.resume(from: token, options: options).body { came += piece }
        #expect(came == bytes)
        #expect(other.ranges == ["bytes=400000-"])
    }

    @Test("another representation after a cut is an error")
    func changed() async throws {
        let origin = try DownloadOrigin { asked in
            .whole(pattern(300_000), [#"ETag: "v\#(asked.number)""#], cut: 100_000)
        }
        var came = 0
        let error = await #expect(throws: TransferError.self) {
            for try await piece in download(origin.url).body { came += piece.count }
        }
        #expect(error?.kind == .changed)
        #expect(came == 100_000)
    }

    @Test("a canceled task ends it, at any point of a wait", arguments: [true, false])
    func cancelled(hasBytes: Bool) async throws {
        let bytes = pattern(900_000)
        let origin = try DownloadOrigin { _ in
            var reply = DownloadOrigin.Reply.whole(bytes, Self.names, cut: hasBytes ? 500_000 : 0)
            reply.stalls = hasBytes
            return reply
        }
        var options = DownloadOrigin.options
        options.connection.firstPause = .seconds(30)
        let download = Download(origin.url, options: options)
        let read = Monitor(0)
        let task = Task {
            for try await piece in download.body { read.update { $0 += piece.count } }
        }
        try await comesTrue("it waits") {
            hasBytes ? read.update { $0 } == 500_000 : !origin.requests.isEmpty
        }
        task.cancel()
        await #expect(throws: CancellationError.self) { try await task.value }
        try await comesTrue("its connections are closed") { origin.origin.openCount == 0 }
        #expect(await download.pause()?.offset == Int64(read.update { $0 }))
    }

    @Test("a released iterator ends it, and no thread stays")
    func letGo() async throws {
        let origin = try origin([UInt8](repeating: 5, count: 64 << 20))
        for _ in 0..<10 {
            let download = download(origin.url)
            for try await _ in download.body { break }
            let token = await download.pause()
            #expect(token?.offset ?? 0 > 0)
        }
        try await comesTrue("its connections are closed") { origin.origin.openCount == 0 }
        try await comesTrue("no thread is left") { Self.threads("transfer") == 0 }
    }

    private static func threads(_ name: String) -> Int {
        let folder = "/proc/self/task"
        let ids = (try? FileManager.default.contentsOfDirectory(atPath: folder)) ?? []
        return ids.count { id in
            let text = try? String(contentsOfFile: "\(folder)/\(id)/comm", encoding: .utf8)
            return text?.trimmingCharacters(in: .newlines) == name
        }
    }

    @Test("paused, it returns the received content, and then the error")
    func paused() async throws {
        let bytes = [UInt8](repeating: 5, count: 64 << 20)
        let origin = try origin(bytes)
        let download = download(origin.url)
        let iterator = download.body.makeAsyncIterator()
        var count = try await iterator.next()?.count ?? 0
        _ = await download.pause()
        let error = await #expect(throws: TransferError.self) {
            while let piece = try await iterator.next() { count += piece.count }
        }
        #expect(error?.kind == .paused)
        #expect(download.token?.offset == Int64(count))
    }

    @Test("a second reading, `run` on a body, and a body of a file are invalid")
    func invalid() async throws {
        let bytes = pattern(300_000)
        let origin = try origin(bytes)
        let download = download(origin.url)
        await isInvalid { _ = try await download.run() }
        await isInvalid { _ = try download.perform() }
        let iterator = download.body.makeAsyncIterator()
        var came = try await iterator.next() ?? []
        await isInvalid { for try await _ in download.body {} }
        while let piece = try await iterator.next() { came += piece }
        #expect(came == bytes)
        await isInvalid { for try await _ in download.body {} }

        let directory = try ScratchDirectory()
        let file = Download(origin.url, to: .file(directory.file("film")))
        await isInvalid { for try await _ in file.body {} }
        #expect(file.response == nil)
    }

    private func isInvalid(_ body: () async throws -> Void) async {
        let error = await #expect(throws: TransferError.self) { try await body() }
        #expect(error?.kind == .invalid)
    }

    @Test("its digest is compared with the server's")
    func digest() async throws {
        let wrong = "Repr-Digest: sha-256=:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:"
        let origin = try DownloadOrigin { _ in .whole(pattern(300_000), Self.names + [wrong]) }
        var options = DownloadOrigin.options
        options.verifiesDigest = true
        var count = 0
        let error = await #expect(throws: TransferError.self) {
            for try await piece in Download(origin.url, options: options).body {
                count += piece.count
            }
        }
        #expect(error?.kind == .corrupt)
        #expect(count == 300_000)
    }
}
