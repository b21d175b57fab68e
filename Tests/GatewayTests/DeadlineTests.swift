// An upstream that exceeds a deadline: only the 504 in place of 502 differs.

import HTTPTypes
import Logging
import SpoolgateRequests
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Testing

@Suite struct DeadlineTests {
    /// Its upstream never responds: to the request, or (unreached) to the TLS handshake.
    private func gateway(isReached: Bool) throws -> (GatewayUnderTest, LoopbackOrigin) {
        let origin = try LoopbackOrigin { connection in
            if isReached { _ = try connection.receiveRequest() }
            connection.waitForEnd()
        }
        let base = isReached ? origin.base : "https://127.0.0.1:\(origin.port)"
        let test = try GatewayUnderTest(.http(base: base)) { _, route in
            route.upstream.connectTimeout = isReached ? .seconds(60) : .milliseconds(200)
            route.upstream.responseTimeout = .milliseconds(200)
        }
        return (test, origin)
    }

    @Test("an upload whose upstream cannot be reached in time: 504, kept, tried again later")
    func notReached() throws {
        let (test, origin) = try gateway(isReached: false)
        let record = test.serve(.creation())
        #expect(record.status == 504)
        #expect(record[.uploadComplete] == "?0")
        #expect(record.offset == 5)
        #expect(record[.retryAfter] != nil)
        #expect(!record.text.contains("127.0.0.1"))
        #expect(try test.queue(of: try #require(record.location)) == .deferred)
        #expect(origin.requests.isEmpty)
    }

    @Test(
        "an upload whose upstream never responds: 504, held or, if that is safe, tried again later",
        arguments: [HTTPRequest.Method.post, .put]
    )
    func silent(method: HTTPRequest.Method) throws {
        let (test, origin) = try gateway(isReached: true)
        let record = test.serve(.creation(method: method))
        #expect(record.status == 504)
        #expect(record[.uploadComplete] == (method == .put ? "?0" : "?1"))
        let queue = try test.queue(of: try #require(record.location))
        #expect(queue == (method == .put ? .deferred : .hold))
        // The upstream may read it after the gateway has closed.
        try eventually("the upstream has the request") { origin.requests.count == 1 }
    }

    @Test("ordinary uploads and requests: 504", arguments: ["POST", "GET"], [true, false])
    func ordinary(method: String, isReached: Bool) throws {
        let (test, origin) = try gateway(isReached: isReached)
        let method = try #require(HTTPRequest.Method(method))
        let record = test.serve(ScriptedExchange(method, "/p", [:], method == .post ? ["x"] : []))
        #expect(record.status == 504)
        #expect(record[.uploadComplete] == nil)
        try eventually("the upstream has its requests") {
            origin.requests.count == (isReached ? 1 : 0)
        }
    }

    @Test("an unreachable first target delays no client, and the log names it")
    func skippedTarget() throws {
        let origin = try LoopbackOrigin(status: "201 Created")
        let test = try GatewayUnderTest { _, route in
            route.upstream.targets = [.unix(path: "/none/at/all"), origin.target]
        }
        for _ in 1...3 {
            let record = test.serve(.creation())
            #expect(record.status == 201)
            #expect(record[.uploadComplete] == "?1")
        }
        #expect(origin.requests.count == 3)
        #expect(test.log.messages.filter { $0 == "upstream target skipped" }.count == 1)
        #expect(test.log.level(of: "upstream target skipped") == .warning)
    }
}
