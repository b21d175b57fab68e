// Requests that meet a delivery under way: who waits, for how long, and what each is told.

import Exchange
import Gateway
import HTTPTypes
import Logging
import Posix
import Settings
import Spool
import TestSupport
import Testing
import UploadProtocol
import Upstream

@Suite struct WaitingTests {
    /// An upstream that has read the upload and answers when the gate opens.
    private struct Slow {
        let gate = Gate()
        let origin: LoopbackOrigin

        init() throws {
            origin = try LoopbackOrigin { [gate] connection in
                while try connection.receiveRequest() != nil {
                    gate.pass()
                    try connection.answer("201 Created", content: "stored")
                }
            }
        }

        func waitForRequest(_ count: Int = 1) throws {
            try eventually("the upstream has the upload") { origin.requests.count == count }
        }
    }

    private func test(_ slow: Slow, deliveries: Int = 32) throws -> GatewayUnderTest {
        try GatewayUnderTest(.http(base: slow.origin.base)) { settings, _ in
            settings.inUseTimeout = .milliseconds(50)
            settings.maximumDeliveries = deliveries
        }
    }

    @Test(
        "an offset retrieval during a delivery waits, then its connection breaks or it is 423, and disturbs nothing"
    )
    func retrieval() throws {
        let slow = try Slow()
        let test = try test(slow)
        let creation = ScriptedExchange.creation([.text("hello")], complete: true)
        let delivering = try test.start(creation)
        try slow.waitForRequest()
        let location = try #require(creation.record.location)
        for version in [nil, 3, 10] {
            #expect(test.serve(.retrieval(location, version: version)).events == [.abort])
        }
        // Its client knows the status for what it is.
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

    @Test("an append during a delivery waits for its verdict and gets the same response")
    func append() throws {
        let slow = try Slow()
        let test = try test(slow)
        let creation = ScriptedExchange.creation([.text("hello")], complete: true)
        let delivering = try test.start(creation)
        try slow.waitForRequest()
        let location = try #require(creation.record.location)
        let append = ScriptedExchange.append(location, at: 5, complete: true)
        let waiting = try test.start(append)
        #expect(append.waitUntilLooked())
        // Each of these takes the whole hold time, which the append outlasts.
        for _ in 1...3 { #expect(test.serve(.retrieval(location)).isAborted) }
        #expect(!waiting.isOver)
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
        "a verdict that the spool cannot store is told all the same, and not asked for again",
        arguments: [3, 99]
    )
    func unstorable(cap: Int64) throws {
        let slow = try Slow()
        let test = try GatewayUnderTest(.http(base: slow.origin.base)) { _, route in
            route.maxResponseSize = cap
        }
        let creation = ScriptedExchange.creation([.text("hello")], complete: true)
        let delivering = try test.start(creation)
        try slow.waitForRequest()
        test.disk.refuse(.write, errno: 5)
        slow.gate.open()
        let record = try delivering.finish()
        #expect(record.status == 201)
        #expect(record.text == "stored")
        #expect(test.log.level(of: "spool failed") == .error)
        test.disk.allow()
        let location = try #require(record.location)
        #expect(test.serve(.retrieval(location)).status == 410)
        #expect(test.serve(.append(location, at: 5, complete: true)).status == 502)
        #expect(slow.origin.requests.count == 1)
    }

    @Test("a cancellation during a delivery waits for the verdict, then removes the upload")
    func cancellation() throws {
        let slow = try Slow()
        let test = try test(slow)
        let creation = ScriptedExchange.creation([.text("hello")], complete: true)
        let delivering = try test.start(creation)
        try slow.waitForRequest()
        let location = try #require(creation.record.location)
        let cancellation = ScriptedExchange.cancellation(location)
        let waiting = try test.start(cancellation)
        #expect(cancellation.waitUntilLooked())
        slow.gate.open()
        #expect(try delivering.finish().status == 201)
        #expect(try waiting.finish().status == 204)
        #expect(try test.summaries().isEmpty)
    }

    @Test("without a free place among the deliveries an upload waits, then keeps its bytes")
    func slots() throws {
        let slow = try Slow()
        let test = try test(slow, deliveries: 1)
        let first = try test.start(.creation([.text("first")], complete: true))
        try slow.waitForRequest()
        // Who knows where the upload is comes back.
        let second = test.serve(.creation([.text("second")], complete: true))
        #expect(second.isAborted && second.head == nil)
        // Nothing was sent, and no crash may make it look as if it was.
        #expect(test.disk.count(.rename, on: "/active/") == 1)
        let location = try #require(second.location)
        #expect(test.disk.count(.sync, on: "/data/") == 1)
        #expect(try test.queue(of: location) == .deferred)
        // A client that takes offset == length for success must not hear it.
        let locked = test.serve(.retrieval(location, version: 5))
        #expect(locked.status == 423)
        #expect(locked.offset == nil)
        slow.gate.open()
        #expect(try first.finish().status == 201)
        #expect(test.serve(.append(location, at: 6, complete: true)).status == 201)
        let contents = slow.origin.requests.map { String(decoding: $0.content, as: UTF8.self) }
        #expect(contents == ["first", "second"])
    }

    @Test("without a free place an upload whose client was told of no resource is answered 503")
    func slotsUntold() throws {
        let slow = try Slow()
        let test = try test(slow, deliveries: 1)
        let first = try test.start(.creation([.text("first")], complete: true))
        try slow.waitForRequest()
        let second = test.serve(
            .creation([.text("second")], complete: true, context: ExchangeContext())
        )
        #expect(second.status == 503)
        #expect(second[.uploadComplete] == "?0")
        #expect(second.offset == 6)
        #expect(second[.retryAfter] != nil)
        #expect(try test.summaries().map(\.queue).contains(.deferred))
        slow.gate.open()
        #expect(try first.finish().status == 201)
    }

    @Test("who waits for a place among the deliveries lets go at once for a newer request")
    func askedWhileWaiting() throws {
        let slow = try Slow()
        let test = try GatewayUnderTest(.http(base: slow.origin.base)) { settings, _ in
            settings.inUseTimeout = .seconds(600)
            settings.maximumDeliveries = 1
        }
        let first = try test.start(.creation([.text("first")], complete: true))
        try slow.waitForRequest()
        let creation = ScriptedExchange.creation([.text("second")], complete: true)
        let second = try test.start(creation)
        try eventually("the content is there") { try test.summaries().contains { $0.offset == 6 } }
        let location = try #require(creation.record.location)
        // Both end long before the ten minutes.
        #expect(test.serve(.retrieval(location)).offset == 6)
        #expect(try second.finish().isAborted)
        #expect(try test.queue(of: location) == .deferred)
        slow.gate.open()
        #expect(try first.finish().status == 201)
        #expect(test.serve(.append(location, at: 6, complete: true)).status == 201)
        #expect(slow.origin.requests.count == 2)
    }

    @Test("a reload changes the places among the deliveries and the upstream of the next request")
    func reload() throws {
        let slow = try Slow()
        let test = try test(slow, deliveries: 1)
        let first = try test.start(.creation([.text("first")], complete: true))
        try slow.waitForRequest()
        let untold = ScriptedExchange.creation(
            [.text("x")],
            complete: true,
            context: ExchangeContext()
        )
        #expect(test.serve(untold).status == 503)
        let other = try LoopbackOrigin(status: "202 Accepted")
        var settings = Settings()
        settings.maximumDeliveries = 2
        settings.routes[RouteSettings.defaultName]?.upstream.targets = [.http(base: other.base)]
        test.gateway.reload(settings)
        #expect(test.serve(.creation([.text("x")], complete: true)).status == 202)
        slow.gate.open()
        #expect(try first.finish().status == 201)
    }
}
