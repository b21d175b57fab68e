// Routes whose uploads fail: how this is reported, and when it ends.

import Foundation
import HTTPTypes
import SpoolgateCurl
import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateTextFormats
import SpoolgateUploadProtocol
import Synchronization
import Testing

@testable import SpoolgateAdmin
@testable import SpoolgateDelivery
@testable import SpoolgateExchange
@testable import SpoolgateJournal
@testable import SpoolgateRequests
@testable import SpoolgateSettings
@testable import SpoolgateSpool
@testable import SpoolgateUpstream

@Suite("A route whose uploads fail")
struct FailingRouteTests {
    /// Responds with a given status; 0 closes the connection.
    private final class Told: Sendable {
        private final class Word: Sendable { let status = Mutex(500) }
        private let word = Word()
        let origin: LoopbackOrigin

        init() throws {
            let word = word
            origin = try LoopbackOrigin { connection in
                while try connection.receiveRequest() != nil {
                    let status = word.status.withLock { $0 }
                    if status == 0 { return }
                    try connection.response("\(status) Said", content: "said")
                }
            }
        }

        func say(_ status: Int) { word.status.withLock { $0 = status } }
    }

    enum Way: CaseIterable {
        case resource, marked, ordinary, streamed

        func exchange(_ client: Int) -> ScriptedExchange {
            let context = ExchangeContext(
                interimStatuses: [104],
                remoteAddress: "192.0.2.\(client)"
            )
            switch self {
            case .resource:
                let content: [UInt8] = tooLargeToBePlain
                return .creation([.bytes(content)], context: context)
            case .marked:
                return .creation(
                    ["hello"],
                    context: ExchangeContext(remoteAddress: "192.0.2.\(client)")
                )
            case .ordinary, .streamed:
                return ScriptedExchange(.post, "/files/a", [:], ["hello"], context: context)
            }
        }
    }

    private func gateway(
        _ target: UpstreamTarget,
        _ way: Way = .ordinary,
        clock: SetClock = SetClock(),
        _ change: (inout Settings, inout RouteSettings) -> Void = { _, _ in }
    ) throws -> GatewayUnderTest {
        try GatewayUnderTest(target, clock: clock.system) { settings, route in
            if way == .streamed { route.ordinary = .pass }
            change(&settings, &route)
        }
    }

    private func status(_ test: GatewayUnderTest) -> Status { Status(of: Admin.of(test.gateway)) }

    private func ready(_ test: GatewayUnderTest) -> ScriptedExchange.Record {
        let exchange = ScriptedExchange(.get, "/ready", length: .unknown)
        Admin.of(test.gateway).serve(exchange)
        return exchange.record
    }

    private func failures(_ test: GatewayUnderTest) -> Int? {
        status(test).failing.first?.run.count
    }

    @Test(
        "five 5xx responses to two clients are a concern everywhere, and one success ends it",
        arguments: Way.allCases
    )
    func inARow(way: Way) throws {
        let told = try Told()
        let test = try gateway(told.origin.target, way)
        for number in 1...4 {
            #expect(test.serve(way.exchange(number % 2)).status == 500)
            #expect(status(test).level == .ok, "after \(number)")
        }
        #expect(test.serve(way.exchange(1)).status == 500)
        let failing = status(test)
        #expect(failing.level == .warning)
        // More than 0 on a busy machine.
        let age = try #require(failing.failing.first).run.age
        let words =
            "route default is failing: 5 deliveries failed in \(age)s, none succeeded "
            + "(\(told.origin.base)); last failure: the upstream responded with 500"
        #expect(failing.concerns == [words])
        #expect(failing.text.hasPrefix("WARNING: "))
        #expect(failing.text.split(separator: "\n").first?.contains(words) == true)
        #expect(
            failing.text.contains("\nFailing (1)\n  default  \(told.origin.base)  5 deliveries")
        )
        #expect(failing.html.contains("<h2>Failing <span>1</span></h2>"))
        #expect(
            failing.html.contains(
                "<li class=\"failing\"><div><b>default</b><code>\(told.origin.base)</code></div>"
                    + "<p>5 deliveries failed in \(age)s, none succeeded</p>"
                    + "<p class=\"reason\">the upstream responded with 500</p></li>"
            )
        )
        #expect(
            StatusPage.style.contains(
                ".failing, .needy .reason, .failing .reason { color: var(--critical); }"
            )
        )
        #expect(
            failing.json.text.contains(
                "\"failing\":[{\"route\":\"default\",\"upstream\":[\"\(told.origin.base)\"],"
                    + "\"failures\":5,\"seconds\":\(age),\"several-clients\":true,\"reached\":true,"
                    + "\"reason\":\"the upstream responded with 500\"}]"
            )
        )
        let metric = "spoolgate_route_failing{route=\"default\"} "
        #expect(Admin.of(test.gateway).metricsText.contains(metric + "1\n"))
        #expect(ready(test).status == 200)
        #expect(ready(test).text.contains("\"deliveries\":\"ok (failing: default)\""))
        told.say(200)
        #expect(test.serve(way.exchange(1)).status == 200)
        #expect(status(test).failing.isEmpty && status(test).level == .ok)
        #expect(Admin.of(test.gateway).metricsText.contains(metric + "0\n"))
        #expect(ready(test).text.contains("\"deliveries\":\"ok\""))
        told.say(500)
        for number in 1...4 { test.serve(way.exchange(number % 2)) }
        #expect(status(test).failing.isEmpty)
    }

    @Test(
        "one client's failures, or a single one, are a concern after ten minutes without a success"
    )
    func tenMinutes() throws {
        let told = try Told()
        for count in [1, 8] {
            let clock = SetClock(isStill: true)
            let test = try gateway(told.origin.target, clock: clock)
            told.say(500)
            for _ in 1...count { test.serve(Way.ordinary.exchange(1)) }
            clock.set(error: 86_400)
            #expect(status(test).failing.isEmpty)
            clock.sleep(599)
            #expect(status(test).failing.isEmpty)
            clock.sleep(1)
            #expect(failures(test) == count)
            #expect(status(test).level == .warning)
            #expect(status(test).failing.first?.count.contains("failed in 10m") == true)
            told.say(201)
            test.serve(Way.ordinary.exchange(1))
            #expect(status(test).failing.isEmpty)
            clock.sleep(86_400)
            #expect(status(test).failing.isEmpty)
        }
    }

    @Test(
        "a 4xx response is neither a failure nor a success, and so is a client's abort"
    )
    func neutral() throws {
        let told = try Told()
        let test = try gateway(told.origin.target, .streamed)
        for code in [400, 404, 413, 422, 429] {
            told.say(code)
            for client in 1...6 { test.serve(Way.streamed.exchange(client)) }
        }
        for client in 1...6 {
            test.serve(
                ScriptedExchange(
                    .put,
                    "/a",
                    [:],
                    [.bytesThenFails(Array("hel".utf8), .truncated)],
                    length: .known(10),
                    context: ExchangeContext(remoteAddress: "192.0.2.\(client)")
                )
            )
        }
        #expect(status(test).failing.isEmpty)
        told.say(500)
        for client in 1...4 { test.serve(Way.streamed.exchange(client)) }
        told.say(422)
        test.serve(Way.streamed.exchange(5))
        told.say(503)
        test.serve(Way.streamed.exchange(6))
        #expect(failures(test) == 5)
    }

    @Test("a request that is no upload does not count")
    func passThrough() throws {
        let told = try Told()
        let test = try gateway(told.origin.target)
        func look(_ client: Int) {
            test.serve(
                ScriptedExchange(
                    .get,
                    "/a",
                    context: ExchangeContext(remoteAddress: "192.0.2.\(client)")
                )
            )
        }
        for client in 1...6 { look(client) }
        #expect(status(test).failing.isEmpty)
        for client in 1...5 { test.serve(Way.ordinary.exchange(client)) }
        told.say(200)
        look(1)
        #expect(failures(test) == 5)
    }

    // Long because each row waits for the timeouts of five requests.
    @Test(
        "a missing response is a failure, and the concern says if nothing reached the upstream",
        arguments: ["refused", "no name", "no TLS", "broken off", "silent", "no directory"],
        Way.allCases
    )
    func noResponse(what: String, way: Way) throws {
        let silent = try LoopbackOrigin { connection in
            if what == "no TLS" { return try connection.send("HTTP/1.1 400 Not TLS\r\n\r\n") }
            _ = try connection.receiveRequest()
            if what == "silent" { connection.waitForEnd() }
        }
        let target: UpstreamTarget =
            switch what {
            case "refused": .http(base: "http://127.0.0.1:9")
            // A label of a name has at most 63 characters, so no server is queried.
            case "no name": .http(base: "http://\(String(repeating: "a", count: 64)).invalid")
            case "no TLS": .http(base: "https://127.0.0.1:\(silent.port)")
            case "no directory": .directory(path: "/nowhere/at/all")
            default: silent.target
            }
        // A directory accepts only uploads and cannot stream.
        if way == .streamed, what == "no directory" { return }
        let test = try gateway(target, way) { _, route in
            route.upstream.responseTimeout = .milliseconds(50)
            route.upstream.stallTimeout = .milliseconds(500)
        }
        for client in 1...5 { test.serve(way.exchange(client)) }
        let failing = try #require(status(test).failing.first)
        #expect(failing.run.count == 5)
        let isUnreached = !["broken off", "silent"].contains(what)
        #expect(failing.run.wasReached == !isUnreached)
        #expect(failing.count.hasSuffix(", none reached the upstream") == isUnreached)
        #expect(failing.route.targets == [target.text])
        // Another gateway could not reach it either.
        if !failing.run.reason.contains("was not attempted") { #expect(ready(test).status == 200) }
    }

    @Test("a bucket that refuses uploads is a failure")
    func bucket() throws {
        let origin = try LoopbackOrigin(status: "403 Forbidden")
        let test = try gateway(try UpstreamTarget("s3:\(origin.base)/drop"))
        for client in 1...5 { test.serve(Way.ordinary.exchange(client)) }
        #expect(failures(test) == 5)
    }

    @Test(
        "uploads that fail before delivery, at the authorizer, the inspection or the form, count too"
    )
    func before() throws {
        let gone = try LoopbackOrigin()
        gone.stop()
        let upset = try LoopbackOrigin(status: "500 Upset")
        let taking = try LoopbackOrigin()
        for authorizer in [gone, upset] {
            let url = try ServiceURL("\(authorizer.base)/may")
            let test = try gateway(taking.target) { _, route in
                route.authorization.url = url
            }
            for client in 1...5 {
                #expect((test.serve(Way.ordinary.exchange(client)).status ?? 0) >= 500)
            }
            #expect(failures(test) == 5)
        }
        for way in [Way.ordinary, .resource] {
            let uninspected = try gateway(taking.target, way) { _, route in
                route.inspection.command = ["/no/such/command"]
            }
            for client in 1...5 { uninspected.serve(way.exchange(client)) }
            #expect(failures(uninspected) == 5)
            let unformed = try gateway(taking.target, way) { _, route in
                route.form = .path
                route.path.directory = "/nowhere/at/all"
                route.path.keyFile = "/nowhere/at/all.key"
            }
            for client in 1...5 { unformed.serve(way.exchange(client)) }
            #expect(failures(unformed) == 5)
        }
    }

    @Test("attempts that fail inside this process make it unready until one succeeds")
    func ownFault() throws {
        let clock = SetClock()
        let test = try gateway(.http(base: "https://127.0.0.1:9"), clock: clock) { _, route in
            // Longer than any string that libcurl accepts.
            route.upstream.tls.authorities = String(repeating: "x", count: 8_000_001)
        }
        for _ in 1...2 {
            #expect(test.serve(Way.ordinary.exchange(1)).status == 502)
            #expect(ready(test).status == 200)
        }
        test.serve(Way.ordinary.exchange(1))
        let record = ready(test)
        #expect(record.status == 503)
        #expect(record.text.contains("\"ready\":false"))
        #expect(
            record.text.contains("\"deliveries\":\"fail: route default: POST /files/a to https")
        )
        #expect(record.text.contains("was not attempted: libcurl"))
        #expect(status(test).level == .critical)
        #expect(Admin.of(test.gateway).metricsText.contains("spoolgate_ready 0\n"))
        #expect(
            Admin.of(test.gateway).metricsText
                .contains("deliveries_total{route=\"default\",result=\"not_attempted\"} 3\n")
        )
        // Without requests, nothing else could show that it has recovered.
        clock.sleep(600)
        #expect(ready(test).status == 200)
        #expect(status(test).level == .warning)
        test.serve(Way.ordinary.exchange(1))
        #expect(ready(test).status == 503)
        let told = try Told()
        told.say(201)
        test.reload {
            $0.routes["default"]?.upstream = UpstreamSettings(targets: [told.origin.target])
        }
        #expect(ready(test).status == 200)
        #expect(status(test).level == .ok)
    }

    @Test(
        "changed upstream settings reset a route, other settings do not, and a removed route is not named"
    )
    func reload() throws {
        let told = try Told()
        let test = try gateway(told.origin.target)
        for client in 1...5 { test.serve(Way.ordinary.exchange(client)) }
        test.reload { $0.routes["default"]?.limits.maxAge = 7 }
        #expect(failures(test) == 5)
        test.reload {
            $0.routes["other"] = $0.routes["default"]
            $0.routes["default"] = nil
        }
        #expect(status(test).failing.isEmpty)
        #expect(!Admin.of(test.gateway).metricsText.contains("route_failing{route=\"default\"}"))
        test.reload {
            $0.routes["default"] = $0.routes["other"]
            $0.routes["default"]?.upstream.targets = [.http(base: "http://127.0.0.1:9")]
        }
        #expect(status(test).failing.isEmpty)
    }

    @Test("a route's memory does not grow with its failures")
    func bounded() throws {
        let health = RouteHealth { 0 }
        for number in 0..<10_000 {
            health.addFailure(
                of: ClientName(owner: ExactText("client \(number)"), address: nil),
                .sent,
                reason: String(repeating: "x", count: 10_000)
            )
        }
        let run = try #require(health.failing)
        #expect(run.count == 10_000 && run.isOfSeveralClients)
        #expect(run.reason.count == 1_000)
    }

    @Test("partial uploads that wait for their clients are shown")
    func partial() throws {
        let test = try GatewayUnderTest()
        #expect(status(test).partial.count == 0)
        #expect(!status(test).text.contains("artial"))
        let first = test.createPartial()
        #expect(
            status(test).text.contains(
                "\nPartial (1)\n  1 partial upload is waiting for its client: spoolgate list --state partial\n"
            )
        )
        _ = test.createPartial()
        #expect(status(test).level == .ok)
        #expect(status(test).line.contains("0 need attention, 2 partial"))
        #expect(status(test).html.contains("<h2>Partial <span>2</span></h2>"))
        #expect(status(test).json.text.contains("\"partial\":2,"))
        // An upload with a running request counts as received, not as partial.
        let append = ScriptedExchange.append(first, at: 5, [" world", .stuck], length: .known(15))
        let running = try test.start(append)
        try eventually("it is received") { test.gateway.transfers.all.first?.offset == 11 }
        #expect(status(test).partial.count == 1)
        test.spool.requestReleaseOfAll()
        _ = try running.finish()
        #expect(status(test).partial.count == 2)
    }
}
