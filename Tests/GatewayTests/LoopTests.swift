// A gateway configured as its own upstream recognizes only its own requests.

import HTTPTypes
import Logging
import SpoolgateExchange
import SpoolgateJournal
import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Testing

@testable import SpoolgateRequests
@testable import SpoolgateSettings

@Suite struct LoopTests {
    private struct NoVia: Error {}

    private func via(_ test: GatewayUnderTest, _ origin: LoopbackOrigin) throws -> String {
        test.serve(ScriptedExchange(.get, "/f", length: .unknown))
        guard let via = origin.requests.last?.values("Via").last else { throw NoVia() }
        return via
    }

    @Test(
        "a gateway's own request gets 508, unread, with any method and with entries that other proxies added"
    )
    func itself() throws {
        let origin = try LoopbackOrigin()
        let test = try GatewayUnderTest(origin.target)
        let own = try via(test, origin)
        #expect(own.hasPrefix("1.1 spoolgate-"))
        for value in [
            own, "1.0 fred, \(own) (a comment), 2 last", "1.1 a,\(own)", "HTTP/\(own)\t(x)",
        ] {
            let fields: HTTPFields = [.via: value]
            for exchange in [
                ScriptedExchange(.get, "/f", fields, length: .unknown),
                ScriptedExchange(.options, "/f", fields, length: .unknown),
                ScriptedExchange(.put, "/f", fields, ["content"]),
                .creation(fields: fields), .creation(complete: false, fields: fields),
            ] {
                let record = test.serve(exchange)
                #expect(record.status == 508)
                #expect(record.text.contains("\"loop\""))
                #expect(!record.events.contains(.read) && record.interims.isEmpty)
            }
        }
        #expect(origin.requests.count == 1)
        #expect(try test.summaries().isEmpty)
        #expect(test.log.messages.count { $0 == "request loop detected" } == 1)
        #expect(test.log.level(of: "request loop detected") == .error)
    }

    @Test(
        "a gateway may be behind another one, also one with the same spool, and behind other proxies"
    )
    func others() throws {
        let origin = try LoopbackOrigin()
        let test = try GatewayUnderTest(origin.target)
        let own = try via(test, origin)
        let second = try GatewayUnderTest(origin.target)
        let exchange = ScriptedExchange(.get, "/g", [.via: own], length: .unknown)
        #expect(second.serve(exchange).status == 200)
        let seen = try #require(origin.requests.last).values("Via")
        #expect(seen.count == 2 && seen.first == own && seen.last != own)
        let third = ScriptedExchange(.get, "/h", [.via: own], length: .unknown)
        try test.another().serve(third)
        #expect(third.record.status == 200)
        let word = own.split(separator: " ")[1]
        for value in [
            "1.1 spoolgate", String(word), "1.1 \(word)0", "1.1 x (\(word))", "1.1 x, y \(word)z",
            "", ",",
        ] {
            let record = test.serve(
                ScriptedExchange(.get, "/i", [.via: value], length: .unknown)
            )
            #expect(record.status == 200, "\(value)")
        }
        test.reload()
        #expect(try via(test, origin) == own)
    }

    @Test("the authorizer, the webhook and a bucket receive the field too")
    func services() throws {
        let origin = try LoopbackOrigin()
        let service = try LoopbackOrigin(status: "204 No Content", content: "")
        let url = try ServiceURL(service.base + "/may")
        let test = try GatewayUnderTest(origin.target) { settings, route in
            route.authorization.url = url
            settings.events.webhook.url = url
        }
        try test.gateway.events.startSending()
        #expect(test.serve(.creation()).status == 200)
        let own = try #require(origin.requests.last?.values("Via"))
        try eventually("events are sent") { service.requests.contains { $0.method == "POST" } }
        for request in service.requests { #expect(request.values("Via") == own) }
        #expect(test.gateway.events.stopSending(until: .after(.seconds(300))))
    }
}
