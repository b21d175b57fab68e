// The upstream's final response: stored, relayed, and sent again to a client that lost it.

import HTTPTypes
import Logging
@testable import SpoolgateExchange
import SpoolgatePosix
import SpoolgateRequests
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Testing

@Suite struct VerdictTests {
    private static let fields = ["Content-Type: text/plain", "ETag: \"7\"", "Upload-Offset: 99"]

    @Test("a client that lost the final response gets it again, and the upstream receives nothing")
    func replay() throws {
        let origin = try LoopbackOrigin(
            status: "422 Not Today",
            fields: Self.fields,
            content: "no, thanks"
        )
        let test = try GatewayUnderTest(origin.target)
        let first = test.serve(.creation())
        let location = try #require(first.location)
        let again = test.serve(.append(location, at: 5))
        for record in [first, again] {
            #expect(record.status == 422)
            #expect(record.text == "no, thanks")
            #expect(record.contentLength == 10)
            #expect(record[.contentType] == "text/plain")
            #expect(record[.eTag] == "\"7\"")
            #expect(record[.uploadComplete] == "?1")
            #expect(record.offset == 5)
        }
        #expect(origin.requests.count == 1)
        let told = test.serve(.retrieval(location))
        #expect(told[.uploadComplete] == "?1")
        // Clients that take offset == length for success must not receive it.
        for version in [5, 6] {
            #expect(test.serve(.retrieval(location, version: version)).status == 410)
        }
        let partial = test.serve(.append(location, at: 5, complete: false))
        #expect(partial.status == 400)
    }

    @Test(
        "a response over the limit is streamed, and replayed without its content",
        arguments: [
            (9, "0123456789", true), (10, "0123456789", false), (11, "0123456789", false),
            (0, "x", true), (0, "", false),
        ]
    )
    func cap(cap: Int64, content: String, isEnded: Bool) throws {
        let origin = try LoopbackOrigin(fields: ["Content-Type: text/plain"], content: content)
        let test = try GatewayUnderTest(origin.target) { _, route in route.maxResponseSize = cap }
        let first = test.serve(.creation())
        #expect(first.text == content)
        #expect(first.contentLength == Int64(content.utf8.count))
        let location = try #require(first.location)
        let again = test.serve(.append(location, at: 5))
        #expect(again.status == 200)
        #expect(again.text == (isEnded ? "" : content))
        #expect(again[.contentType] == (isEnded ? nil : "text/plain"))
        #expect(origin.requests.count == 1)
    }

    @Test(
        "a response of unknown length arrives whole on both sides of the limit",
        arguments: [3, 99]
    )
    func chunked(cap: Int64) throws {
        let origin = try LoopbackOrigin { connection in
            while try connection.receiveRequest() != nil {
                try connection.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                try connection.send("3\r\nabc\r\n")
                try connection.send("3\r\ndef\r\n0\r\n\r\n")
            }
        }
        let test = try GatewayUnderTest(origin.target) { _, route in route.maxResponseSize = cap }
        let record = test.serve(.creation())
        #expect(record.text == "abcdef")
        #expect(record.contentLength == (cap == 3 ? nil : 6))
        #expect(!record.isAborted)
    }

    @Test("a response over the limit that the upstream cuts is not passed off as whole")
    func cutOverCap() throws {
        let origin = try LoopbackOrigin { connection in
            _ = try connection.receiveRequest()
            try connection.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            try connection.send("6\r\nabcdef\r\n")
        }
        let test = try GatewayUnderTest(origin.target) { _, route in route.maxResponseSize = 3 }
        let record = test.serve(.creation())
        #expect(record.text == "abcdef")
        #expect(record.isAborted)
        // An accepted upload's response is final.
        let location = try #require(record.location)
        #expect(try test.queue(of: location) == .delivered)
        #expect(test.serve(.append(location, at: 5)).status == 200)
        #expect(origin.requests.count == 1)
    }

    @Test("a client that leaves during the final response finds it stored", arguments: [-1, 0, 2])
    func clientGone(after count: Int) throws {
        let origin = try LoopbackOrigin(content: "stored")
        for cap: Int64 in [3, 99] {
            let test = try GatewayUnderTest(origin.target) { _, route in
                route.maxResponseSize = cap
            }
            let exchange = ScriptedExchange.creation()
            exchange.leave(after: count)
            let record = test.serve(exchange)
            let location = try #require(record.location)
            #expect(try test.queue(of: location) == .delivered)
            let again = test.serve(.append(location, at: 5))
            #expect(again.status == 200)
            #expect(again.text == (cap == 3 ? "" : "stored"))
        }
        #expect(origin.requests.count == 2)
    }

    @Test("interim responses of the upstream reach a client whose web server forwards them")
    func interim() throws {
        let origin = try LoopbackOrigin { connection in
            while try connection.receiveRequest() != nil {
                try connection.send("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
                try connection.response("204 No Content")
            }
        }
        let test = try GatewayUnderTest(origin.target)
        for forwarded: [Int] in [[103], [104]] {
            let record = test.serve(
                .creation(["x"], context: ExchangeContext(interimStatuses: forwarded))
            )
            #expect(record.interims.map(\.status.code) == Array(forwarded))
            #expect(record.status == 204)
        }
    }

    @Test("a delivery that the spool cannot begin is not begun")
    func cannotBegin() throws {
        let origin = try LoopbackOrigin()
        let test = try GatewayUnderTest(origin.target)
        let location = test.createPartial("hello")
        let refusing = ScriptedExchange.Step.happens { test.disk.refuse(.write, errno: 5) }
        let record = test.serve(.append(location, at: 5, [refusing], length: .unknown))
        #expect(record.status == 500)
        #expect(record.offset == nil)
        #expect(test.log.level(of: "spool error") == .error)
        #expect(origin.requests.isEmpty)
        test.disk.allow()
        #expect(test.serve(.append(location, at: 5)).status == 200)
        #expect(origin.requests.count == 1)
    }
}
