import Foundation
import SpoolgatePosix
import SpoolgateTestSupport
import Synchronization
import Testing

@testable import SpoolgateUpstream

@Suite("Connections")
struct ConnectionTests {
    @Test("a connection is kept and reused after any request")
    func reuse() throws {
        let origin = try LoopbackOrigin()
        let upstream = try upstream(origin.base)
        let contents: [(String, UpstreamContent)] = [
            ("GET", .none), ("HEAD", .none), ("POST", .bytes([1])), ("PUT", pattern(200_000)),
            ("POST", patternStream(100_000, piece: 9000, saysLength: false)), ("GET", .none),
        ]
        for (method, content) in contents {
            #expect(try upstream.attempt(method, content: content) == .answered)
        }
        #expect(origin.connectionCount == 1)
        #expect(origin.requests.count == contents.count)
    }

    @Test("concurrent attempts have connections of their own, kept for later ones")
    func parallel() throws {
        let under = Mutex(0)
        let origin = try LoopbackOrigin { connection in
            while try connection.receiveRequest() != nil {
                under.withLock { $0 += 1 }
                try eventually("4 requests in progress") { under.withLock { $0 >= 4 } }
                try connection.answer("200 OK")
            }
        }
        let upstream = try upstream(origin.base)
        let outcomes = Mutex<[AttemptOutcome]>([])
        for round in 1...2 {
            for _ in 0..<4 {
                // The daemon's threads have this small stack, too.
                try SpoolgatePosix.Thread.start(name: "attempt") {
                    guard let request = try? UpstreamRequest("POST", content: pattern(200_000))
                    else { return }
                    let outcome = upstream.attempt(request, sink: RecordingSink())
                    outcomes.withLock { $0.append(outcome) }
                }
            }
            try eventually("round \(round)") { outcomes.withLock { $0.count == 4 * round } }
        }
        #expect(outcomes.withLock { $0 } == Array(repeating: .answered, count: 8))
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
            #expect(try upstream.attempt("POST", content: content, sink: sink) == .answered)
            #expect(sink.text == "done")
        }
        #expect(origin.connectionCount == 1)
        #expect(origin.requests.first?.values("Host") == ["localhost"])
        #expect(origin.requests.last?.contentLength == 5_000_000)
    }

    @Test("a kept connection that was closed meanwhile is replaced before anything is sent")
    func closedMeanwhile() throws {
        let origin = try LoopbackOrigin { connection in
            _ = try connection.receiveRequest()
            try connection.answer("200 OK")
        }
        let upstream = try upstream(origin.base)
        for round in 1...3 {
            #expect(try upstream.attempt("POST", content: .bytes([1])) == .answered)
            try eventually("connection \(round) is closed") { origin.openCount == 0 }
        }
        #expect(origin.connectionCount == 3)
        #expect(origin.requests.count == 3)
    }

    /// Closes its first connection on the second request.
    private func stale(withReset: Bool, afterHead: Bool = false) throws -> LoopbackOrigin {
        try LoopbackOrigin { connection in
            let ends = try connection.receiveRequest()?.number == 0
            try connection.answer("200 OK", content: "first")
            guard ends else {
                while try connection.receiveRequest() != nil {
                    try connection.answer("200 OK", content: "again")
                }
                return
            }
            if withReset { connection.reset() }
            if afterHead {
                _ = try connection.receiveHead()
            } else {
                _ = try connection.receiveRequest()
            }
        }
    }

    @Test(
        "a request on which a kept connection ends is sent once more if idempotent, otherwise never",
        arguments: ["GET", "PUT", "DELETE", "POST", "PATCH", "REPORT"],
        [false, true]
    )
    func staleConnection(method: String, withReset: Bool) throws {
        let isIdempotent = ["GET", "PUT", "DELETE"].contains(method)
        for content in [UpstreamContent.none, .bytes([1, 2]), pattern(300_000)] {
            let origin = try stale(withReset: withReset)
            let upstream = try upstream(origin.base)
            let first = try UpstreamRequest("GET")
            #expect(upstream.attempt(first, sink: RecordingSink()) == .answered)
            let sink = RecordingSink()
            let outcome = try upstream.attempt(method, content: content, sink: sink)
            #expect((outcome == .answered) == isIdempotent, "\(outcome)")
            #expect(outcome.isIndeterminate == !isIdempotent)
            #expect(origin.requests.count == (isIdempotent ? 3 : 2))
            #expect(origin.connectionCount == (isIdempotent ? 2 : 1))
            if isIdempotent {
                #expect(sink.text == "first")
                #expect(origin.requests.last?.content == origin.requests[1].content)
            } else {
                #expect(outcome.reason.contains("not repeated"), "\(outcome)")
            }
        }
    }

    @Test("content read from a stream is not sent again, even with PUT")
    func staleStream() throws {
        let origin = try stale(withReset: false)
        let upstream = try upstream(origin.base)
        #expect(try upstream.attempt("GET") == .answered)
        let content = patternStream(1000, piece: 1000, saysLength: true)
        let outcome = try upstream.attempt("PUT", content: content)
        #expect(outcome.isIndeterminate)
        #expect(origin.requests.count == 2)
    }

    @Test("a large PUT cut in its content on a kept connection is sent again from its start")
    func staleInContent() throws {
        let origin = try stale(withReset: true, afterHead: true)
        let upstream = try upstream(origin.base)
        #expect(try upstream.attempt("GET") == .answered)
        let outcome = try upstream.attempt("PUT", content: pattern(8_000_000))
        if outcome == .answered {
            #expect(origin.requests.last?.contentLength == 8_000_000)
            #expect(isPattern(try #require(origin.requests.last?.content)))
        } else {
            // libcurl retries only after a failed read; a failed write ends the request.
            #expect(outcome.isIndeterminate, "\(outcome)")
        }
    }

    @Test("an origin that disappears between two tries of a sent request: indeterminate")
    func goneForSecondTry() throws {
        let box = Mutex<LoopbackOrigin?>(nil)
        let origin = try LoopbackOrigin { connection in
            _ = try connection.receiveRequest()
            try connection.answer("200 OK")
            _ = try connection.receiveRequest()
            box.withLock { $0 }?.stop()
        }
        box.withLock { $0 = origin }
        defer { box.withLock { $0 = nil } }
        let upstream = try upstream(origin.base)
        let request = try UpstreamRequest("PUT", content: .bytes([1]))
        #expect(upstream.attempt(request, sink: RecordingSink()) == .answered)
        let outcome = upstream.attempt(request, sink: RecordingSink())
        #expect(outcome.isIndeterminate, "\(outcome)")
    }

    @Test("a refused connection: not reached, with the upstream and advice")
    func nobody() throws {
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
        #expect(outcome == .answered)
    }
}
