// Faults in the web server's configuration are counted, and logged at intervals.

import HTTPTypes
import Logging
@testable import SpoolgateDelivery
import SpoolgateRequests
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import Testing

@testable import SpoolgateExchange
@testable import SpoolgateRequests
@testable import SpoolgateSettings

@Suite struct FrontFaultTests {
    private func exchange(
        _ method: HTTPRequest.Method,
        route: String? = nil,
        _ faults: Set<WebServerFault>
    ) -> ScriptedExchange {
        ScriptedExchange(
            method,
            "/f",
            [:],
            method == .get ? [] : ["x"],
            context: ExchangeContext(route: route, faults: faults)
        )
    }

    @Test("a kind is logged at once for each route, then not for a while; all are counted")
    func rate() {
        let faults = WebServerFaults()
        #expect(faults.note(.buffered, route: "a") == 1)
        #expect(faults.note(.buffered, route: "a") == nil)
        #expect(faults.note(.buffered, route: "b") == 1)
        #expect(faults.note(.noMethod) == 1)
        #expect(faults.note(.noMethod) == nil)
        #expect(faults.counts == [.buffered: 3, .noMethod: 2])
    }

    @Test("a line covers all faults since the previous one")
    func count() throws {
        let faults = WebServerFaults(interval: .milliseconds(50))
        var (noted, told) = (1, try #require(faults.note(.unknownRoute, route: "a")))
        try eventually("the next fault is logged") {
            noted += 1
            guard let count = faults.note(.unknownRoute, route: "a") else { return false }
            told += count
            return true
        }
        #expect(told == noted)
        #expect(faults.counts[.unknownRoute] == noted)
    }

    @Test("invented names use no memory and no log line each")
    func manyNames() {
        let faults = WebServerFaults()
        let told = (0..<10_000).count { faults.note(.unknownRoute, route: "\($0)") != nil }
        #expect(told <= 201)
        #expect(faults.counts[.unknownRoute] == 10_000)
    }

    @Test("the kinds have the names that metrics use")
    func names() {
        let names = [
            "buffered", "buffering_unknown", "no_origin", "bad_origin", "no_method",
            "unknown_route",
        ]
        #expect(WebServerFault.allCases.map(\.rawValue) == names)
    }

    @Test("requests without an origin are logged once per route, on any number of threads")
    func noOrigin() throws {
        let test = try GatewayUnderTest { settings, route in settings.routes["other"] = route }
        let running = try (0..<16).map { number in
            try test.start(exchange(.get, route: number % 2 == 0 ? nil : "other", [.noOrigin]))
        }
        for one in running { _ = try one.finish() }
        let line = "SPOOLGATE_ORIGIN is not set"
        #expect(test.log.values(of: "route", in: line).sorted() == ["default", "other"])
        #expect(test.log.level(of: line) == .warning)
        #expect(test.log.values(of: "directive", in: line)[0].contains("SPOOLGATE_ORIGIN"))
        #expect(test.gateway.faults.counts == [.noOrigin: 16])
        // A reload logs faults again, so that the operator can verify the fix.
        test.reload()
        test.serve(exchange(.get, [.noOrigin]))
        test.serve(exchange(.get, [.noOrigin]))
        #expect(test.log.values(of: "route", in: line).count == 3)
    }

    @Test(
        "an invalid origin is logged with its value and the directive that fixes it, not for each request"
    )
    func badOrigin() throws {
        let test = try GatewayUnderTest()
        let context = ExchangeContext(badOrigin: "http://a:80@evil", faults: [.badOrigin])
        for _ in 0..<3 {
            let record = test.serve(.creation(["x"], complete: false, context: context))
            #expect(record[.location]?.hasPrefix("/files/") == true)
        }
        let line = "SPOOLGATE_ORIGIN is invalid"
        #expect(test.log.level(of: line) == .warning)
        #expect(test.log.values(of: "origin", in: line) == ["http://a:80@evil"])
        #expect(test.log.values(of: "directive", in: line)[0].contains("SPOOLGATE_ORIGIN"))
        #expect(test.gateway.faults.counts == [.badOrigin: 3])
    }

    @Test("an upload that the web server buffered is logged with the directive that stops it")
    func buffered() throws {
        let test = try GatewayUnderTest()
        let line = "request buffering is enabled"
        test.serve(exchange(.delete, [.buffered]))
        #expect(!test.log.messages.contains(line))
        for _ in 0..<3 { #expect(test.serve(exchange(.put, [.buffered])).status == 201) }
        test.serve(.creation(["x"], context: ExchangeContext(faults: [.buffered])))
        #expect(test.log.level(of: line) == .warning)
        #expect(test.log.values(of: "route", in: line) == ["default"])
        #expect(test.log.values(of: "requests", in: line) == ["1"])
        #expect(test.log.values(of: "directive", in: line) == ["fastcgi_request_buffering off;"])
        #expect(test.gateway.faults.counts == [.buffered: 4])
    }

    @Test("an unknown route is logged at intervals")
    func unknownRoute() throws {
        let test = try GatewayUnderTest()
        for _ in 0..<5 { #expect(test.serve(exchange(.put, route: "nowhere", [])).status == 500) }
        #expect(test.log.values(of: "requests", in: "unknown route") == ["1"])
        #expect(test.gateway.faults.counts == [.unknownRoute: 5])
    }
}
