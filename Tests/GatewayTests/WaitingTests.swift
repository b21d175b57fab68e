// Requests during a delivery: which wait, for how long, and their responses.

import HTTPTypes
import Logging
import SpoolgateExchange
import SpoolgatePosix
import SpoolgateRequests
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Testing

@Suite struct WaitingTests {
    private func test(_ slow: SlowUpstream, deliveries: Int = 32) throws -> GatewayUnderTest {
        try GatewayUnderTest(slow.target) { settings, _ in
            settings.inUseTimeout = .milliseconds(50)
            settings.maximumDeliveries = deliveries
        }
    }

    @Test(
        "an offset retrieval during a delivery waits, then its connection breaks or it is 423, and disturbs nothing"
    )
    func retrieval() throws {
        let slow = try SlowUpstream()
        let test = try test(slow)
        let (delivering, location) = try test.startDelivery(to: slow)
        for version in [nil, 3, 10] {
            #expect(test.serve(.retrieval(location, version: version)).events == [.abort])
        }
        // Clients of version 5 understand the status.
        let locked = test.serve(.retrieval(location, version: 5))
        #expect(locked.status == 423)
        #expect(locked.offset == nil)
        #expect(locked[.retryAfter] != nil)
        slow.gate.open()
        #expect(try delivering.finish().status == 201)
        let told = test.serve(.retrieval(location, version: 5))
        #expect(told.status == 204)
        #expect(told[.uploadComplete] == "?1")
    }

    @Test("an append during a delivery waits for its result and gets the same response")
    func append() throws {
        let slow = try SlowUpstream()
        let test = try test(slow)
        let (delivering, location) = try test.startDelivery(to: slow)
        let append = ScriptedExchange.append(location, at: 5)
        let waiting = try test.start(append)
        #expect(append.waitUntilLooked())
        // Each waits for the whole timeout; the append waits longer.
        for _ in 1...3 { #expect(test.serve(.retrieval(location)).isAborted) }
        #expect(!waiting.isEnded)
        slow.gate.open()
        for record in [try delivering.finish(), try waiting.finish()] {
            #expect(record.status == 201)
            #expect(record.text == "stored")
            #expect(record[.uploadComplete] == "?1")
            #expect(record.offset == 5)
        }
        #expect(slow.origin.requests.count == 1)
    }

    @Test(
        "a final response that the spool cannot store is still sent, and not requested again",
        arguments: [3, 99]
    )
    func unstorable(cap: Int64) throws {
        let slow = try SlowUpstream()
        let test = try GatewayUnderTest(slow.target) { _, route in
            route.maxResponseSize = cap
        }
        let (delivering, _) = try test.startDelivery(to: slow)
        test.disk.refuse(.write, errno: 5)
        slow.gate.open()
        let record = try delivering.finish()
        #expect(record.status == 201)
        #expect(record.text == "stored")
        #expect(test.log.level(of: "spool error") == .error)
        test.disk.allow()
        let location = try #require(record.location)
        #expect(test.serve(.retrieval(location)).status == 410)
        // Its content was only in memory and is lost.
        #expect(test.serve(.append(location, at: 0)).status == 502)
        #expect(slow.origin.requests.count == 1)
    }

    @Test("a cancellation during a delivery waits for the result, then removes the upload")
    func cancellation() throws {
        let slow = try SlowUpstream()
        let test = try test(slow)
        let (delivering, location) = try test.startDelivery(to: slow)
        let cancellation = ScriptedExchange.cancellation(location)
        let waiting = try test.start(cancellation)
        #expect(cancellation.waitUntilLooked())
        slow.gate.open()
        #expect(try delivering.finish().status == 201)
        #expect(try waiting.finish().status == 204)
        #expect(try test.summaries().isEmpty)
    }

    @Test("without a free delivery slot an upload waits, then keeps its bytes")
    func slots() throws {
        let slow = try SlowUpstream()
        let test = try test(slow, deliveries: 1)
        let (first, _) = try test.startDelivery(to: slow, .creation(["first"]))
        // A client that knows its upload resource returns.
        let second = test.serve(.creation(["second"]))
        #expect(second.isAborted && second.head == nil)
        // Nothing was sent, and a crash must not change that.
        let location = try #require(second.location)
        let attempts = try test.summaries().map {
            "\(location.hasSuffix($0.id.description)) \($0.attempts)"
        }
        #expect(Set(attempts) == ["true 0", "false 1"])
        #expect(test.disk.count(.sync, on: ".data") == 1)
        #expect(try test.queue(of: location) == .deferred)
        // A client that takes offset == length for success must not receive it.
        let locked = test.serve(.retrieval(location, version: 5))
        #expect(locked.status == 423)
        #expect(locked.offset == nil)
        slow.gate.open()
        #expect(try first.finish().status == 201)
        #expect(test.serve(.append(location, at: 6)).status == 201)
        let contents = slow.origin.requests.map { String(decoding: $0.content, as: UTF8.self) }
        #expect(contents == ["first", "second"])
    }

    @Test("without a free slot an upload whose client knows no resource gets 503")
    func slotsUntold() throws {
        let slow = try SlowUpstream()
        let test = try test(slow, deliveries: 1)
        let (first, _) = try test.startDelivery(to: slow, .creation(["first"]))
        let second = test.serve(
            .creation([.bytes(tooLargeToBePlain)], context: ExchangeContext.empty)
        )
        #expect(second.status == 503)
        #expect(second[.uploadComplete] == "?0")
        #expect(second.offset == Int64(tooLargeToBePlain.count))
        #expect(second[.retryAfter] != nil)
        #expect(try test.summaries().map(\.queue).contains(.deferred))
        slow.gate.open()
        #expect(try first.finish().status == 201)
    }

    @Test("a request that waits for a delivery slot releases at once for a newer request")
    func askedWhileWaiting() throws {
        let slow = try SlowUpstream()
        let test = try GatewayUnderTest(slow.target) { settings, _ in
            settings.inUseTimeout = .seconds(600)
            settings.maximumDeliveries = 1
        }
        let (first, _) = try test.startDelivery(to: slow, .creation(["first"]))
        let creation = ScriptedExchange.creation(["second"])
        let second = try test.start(creation)
        try eventually("the content is there") { try test.summaries().contains { $0.offset == 6 } }
        let location = try #require(creation.record.location)
        // Both end long before the ten minutes.
        #expect(test.serve(.retrieval(location)).offset == 6)
        #expect(try second.finish().isAborted)
        #expect(try test.queue(of: location) == .deferred)
        slow.gate.open()
        #expect(try first.finish().status == 201)
        #expect(test.serve(.append(location, at: 6)).status == 201)
        #expect(slow.origin.requests.count == 2)
    }

    @Test("a reload changes the delivery slots and the upstream of the next request")
    func reload() throws {
        let slow = try SlowUpstream()
        let test = try test(slow, deliveries: 1)
        let (first, _) = try test.startDelivery(to: slow, .creation(["first"]))
        let untold = ScriptedExchange.creation(
            [.bytes(tooLargeToBePlain)],
            context: ExchangeContext.empty
        )
        #expect(test.serve(untold).status == 503)
        let other = try LoopbackOrigin(status: "202 Accepted")
        var settings = Settings()
        settings.maximumDeliveries = 2
        settings.routes[RouteSettings.defaultName]?.upstream.targets = [other.target]
        test.gateway.reload(settings)
        #expect(test.serve(.creation(["x"])).status == 202)
        slow.gate.open()
        #expect(try first.finish().status == 201)
    }
}
