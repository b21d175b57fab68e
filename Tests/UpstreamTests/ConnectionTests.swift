import Foundation
import HTTPTypes
import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import Synchronization
import Testing

@testable import SpoolgateUpstream

@Suite("Connections")
struct ConnectionTests {
    struct Cell: CustomTestStringConvertible {
        var method: String
        var fields: HTTPFields = [:]
        var content: @Sendable () -> UpstreamContent = { .none }
        var name = "no content"
        /// Whether the request may use a kept connection.
        var isShared = false

        var testDescription: String { "\(method) \(fields) with \(name)" }
    }

    private static let cells: [Cell] =
        ["GET", "HEAD", "OPTIONS", "PUT", "DELETE"].map { Cell(method: $0, isShared: true) }
        + ["POST", "PATCH", "REPORT"].map { Cell(method: $0) } + [
            // A repeated read gives the same result, whatever its condition.
            Cell(method: "GET", fields: [.ifNoneMatch: "\"x\""], isShared: true),
            Cell(method: "DELETE", fields: [.ifMatch: "\"x\""]),
            Cell(method: "PUT", fields: [.ifNoneMatch: "*"], content: { .bytes([1]) }, name: "1"),
            Cell(method: "PUT", content: { .bytes([1]) }, name: "a byte", isShared: true),
            Cell(method: "DELETE", content: { .bytes([1]) }, name: "a byte", isShared: true),
            Cell(method: "PUT", content: { pattern(60_000) }, name: "a file", isShared: true),
            Cell(method: "PUT", content: { pattern(200_000) }, name: "a large file"),
            Cell(
                method: "PUT",
                content: { framedPattern(before: 9, middle: 9, after: 9) },
                name: "a frame",
                isShared: true
            ),
            Cell(
                method: "PUT",
                content: { patternStream(9, piece: 9, saysLength: true) },
                name: "a stream"
            ),
            Cell(
                method: "POST",
                fields: [.made("Idempotency-Key"): "\"x\""],
                content: { pattern(9) },
                name: "a file"
            ),
            Cell(method: "POST", content: { .bytes([1]) }, name: "a byte"),
            Cell(method: "POST", content: { pattern(200_000) }, name: "a large file"),
            Cell(
                method: "POST",
                content: { patternStream(100_000, piece: 9000, saysLength: false) },
                name: "a stream"
            ),
        ]

    @Test(
        "only a request that can be repeated uses a kept connection; every complete exchange keeps one",
        arguments: cells
    )
    func reuse(of cell: Cell) throws {
        let origin = try LoopbackOrigin()
        let upstream = try upstream(origin.base)
        let request = try UpstreamRequest(cell.method, "/x", cell.fields, content: cell.content())
        #expect(try upstream.attempt("GET") == .responded)
        #expect(upstream.attempt(request, sink: RecordingSink()) == .responded)
        #expect(origin.connectionCount == (cell.isShared ? 1 : 2))
        #expect(try upstream.attempt("GET") == .responded)
        #expect(origin.connectionCount == (cell.isShared ? 1 : 2))
        #expect(origin.requests.count == 3)
    }

    @Test(
        "with `reuse: always` a POST uses a kept connection, and is never sent again",
        arguments: cells
    )
    func always(cell: Cell) throws {
        let origin = try LoopbackOrigin { connection in
            while let request = try connection.receiveRequest(), request.number != 2 {
                try connection.response("200 OK", hasContent: request.method != "HEAD")
            }
        }
        var settings = UpstreamSettings(targets: [.http(base: origin.base)])
        settings.reuse = .always
        let upstream = Upstream(settings)
        func attempt() throws -> AttemptOutcome {
            let content = cell.content()
            let request = try UpstreamRequest(cell.method, "/x", cell.fields, content: content)
            return upstream.attempt(request, sink: RecordingSink())
        }
        #expect(try upstream.attempt("GET") == .responded)
        #expect(try attempt() == .responded)
        #expect(origin.connectionCount == 1)
        let closed = try attempt()
        #expect(cell.isShared ? closed == .responded : closed.isIndeterminate, "\(closed)")
        #expect(origin.requests.count == (cell.isShared ? 4 : 3))
    }

    @Test(
        "a connection on which the response preceded the end of the request is not used again",
        arguments: ["POST", "PUT"]
    )
    func early(method: String) throws {
        let origin = try LoopbackOrigin(receiveBuffer: 1 << 14) { connection in
            while var request = try connection.receiveHead() {
                try connection.response("200 OK")
                try connection.receiveContent(of: &request, keptContent: 0)
            }
        }
        let length: Int64 = 20_000_000
        for content in [pattern(length), patternStream(length, piece: 50_000, saysLength: false)] {
            let upstream = try upstream(origin.base)
            let before = origin.connectionCount
            #expect(try upstream.attempt(method, content: content) == .responded)
            #expect(try upstream.attempt("GET") == .responded)
            #expect(origin.connectionCount == before + 2)
        }
    }

    /// The buffers of a socket may hold content that the server has not read.
    @Test(
        "a connection on which content was refused is not used again",
        arguments: ["POST", "PUT"],
        [false, true]
    )
    func refused(method: String, isLocal: Bool) throws {
        let directory = try ScratchDirectory()
        let path = directory.file("app.sock")
        let origin = try LoopbackOrigin(socketPath: isLocal ? path : nil) { connection in
            while let request = try connection.receiveRequest() {
                try connection.response(request.content.isEmpty ? "200 OK" : "404 Not Found")
            }
        }
        for content in [pattern(1_000), patternStream(1_000, piece: 100, saysLength: false)] {
            let upstream = try upstream(isLocal ? "unix:\(path)" : origin.base)
            let before = origin.connectionCount
            #expect(try upstream.attempt(method, content: content) == .responded)
            #expect(try upstream.attempt("GET") == .responded)
            #expect(try upstream.attempt("GET") == .responded)
            #expect(origin.connectionCount == before + 2)
        }
    }

    @Test("concurrent attempts have connections of their own, kept for later ones")
    func parallel() throws {
        let under = Mutex(0)
        let origin = try LoopbackOrigin { connection in
            while try connection.receiveRequest() != nil {
                under.withLock { $0 += 1 }
                try eventually("4 requests in progress") { under.withLock { $0 >= 4 } }
                try connection.response("200 OK")
            }
        }
        let upstream = try upstream(origin.base)
        let outcomes = Mutex<[AttemptOutcome]>([])
        for round in 1...2 {
            for _ in 0..<4 {
                // The daemon's threads have this small stack, too.
                try SpoolgatePosix.Thread.start(name: "attempt") {
                    guard let request = try? UpstreamRequest("PUT", content: pattern(60_000))
                    else { return }
                    let outcome = upstream.attempt(request, sink: RecordingSink())
                    outcomes.withLock { $0.append(outcome) }
                }
            }
            try eventually("round \(round)") { outcomes.withLock { $0.count == 4 * round } }
        }
        #expect(outcomes.withLock { $0 } == Array(repeating: .responded, count: 8))
        #expect((4...7).contains(origin.connectionCount))
    }

    @Test("a Unix socket is an upstream like any other", arguments: ["app.sock", "an ü app.sock"])
    func unixSocket(name: String) throws {
        let directory = try ScratchDirectory()
        let path = directory.file(name)
        let origin = try LoopbackOrigin(socketPath: path)
        let upstream = try upstream("unix:\(path)")
        for content in [UpstreamContent.none, .bytes([7]), pattern(5_000_000)] {
            let sink = RecordingSink()
            #expect(try upstream.attempt("POST", content: content, sink: sink) == .responded)
            #expect(sink.text == "done")
        }
        #expect(origin.connectionCount == 3)
        #expect(origin.requests.first?.values("Host") == ["localhost"])
        #expect(origin.requests.last?.contentLength == 5_000_000)
    }

    @Test("a kept connection that was closed meanwhile is replaced before anything is sent")
    func closedMeanwhile() throws {
        let origin = try LoopbackOrigin { connection in
            _ = try connection.receiveRequest()
            try connection.response("200 OK")
        }
        let upstream = try upstream(origin.base)
        for round in 1...3 {
            #expect(try upstream.attempt("PUT", content: .bytes([1])) == .responded)
            try eventually("connection \(round) is closed") { origin.openCount == 0 }
        }
        #expect(origin.connectionCount == 3)
        #expect(origin.requests.count == 3)
    }

    @Test(
        "a request on which a kept connection ends is sent once more",
        arguments: ["GET", "PUT", "DELETE", "OPTIONS"],
        [false, true]
    )
    func staleConnection(method: String, withReset: Bool) throws {
        for content in [UpstreamContent.none, .bytes([1, 2]), pattern(60_000)] {
            let origin = try LoopbackOrigin { connection in
                let ends = try connection.receiveRequest()?.number == 0
                try connection.response("200 OK", content: "first")
                if ends, withReset { connection.reset() }
                _ = try connection.receiveRequest()
            }
            let upstream = try upstream(origin.base)
            #expect(try upstream.attempt("GET") == .responded)
            let sink = RecordingSink()
            let outcome = try upstream.attempt(method, content: content, sink: sink)
            #expect(outcome == .responded, "\(outcome)")
            #expect(origin.requests.count == 3)
            #expect(origin.connectionCount == 2)
            #expect(sink.text == "first")
            #expect(origin.requests.last?.content == origin.requests[1].content)
        }
    }

    @Test("an origin that disappears between two tries of a sent request: indeterminate")
    func goneForSecondTry() throws {
        let box = Mutex<LoopbackOrigin?>(nil)
        let origin = try LoopbackOrigin { connection in
            _ = try connection.receiveRequest()
            try connection.response("200 OK")
            _ = try connection.receiveRequest()
            box.withLock { $0 }?.stop()
        }
        box.withLock { $0 = origin }
        defer { box.withLock { $0 = nil } }
        let upstream = try upstream(origin.base)
        let request = try UpstreamRequest("PUT", content: .bytes([1]))
        #expect(upstream.attempt(request, sink: RecordingSink()) == .responded)
        let outcome = upstream.attempt(request, sink: RecordingSink())
        #expect(outcome.isIndeterminate, "\(outcome)")
    }

    @Test("a refused connection: not reached, with the upstream and advice")
    func noListener() throws {
        let origin = try LoopbackOrigin()
        let base = origin.base
        origin.stop()
        let directory = try ScratchDirectory()
        let targets = [base, "unix:\(directory.file("none.sock"))", "http://no-such-host.invalid"]
        for target in targets {
            let request = try UpstreamRequest("POST", "/up", content: pattern(100_000))
            let outcome = try eventually("\(target) refuses") {
                let outcome = try upstream(target).attempt(request, sink: RecordingSink())
                return outcome.isNotReached ? outcome : nil
            }
            #expect(outcome.reason.contains("POST /up to \(target)"))
            #expect(outcome.reason.contains("check"))
        }
    }

    @Test("a proxy in the environment is ignored")
    func proxy() throws {
        setenv("http_proxy", "http://127.0.0.1:1", 1)
        defer { unsetenv("http_proxy") }
        let origin = try LoopbackOrigin()
        let outcome = try upstream(origin.base).attempt("GET")
        #expect(outcome == .responded)
    }
}
