// Heartbeats while the client of a complete upload waits for the upstream.

import Foundation
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

@Suite struct HeartbeatTests {
    private func test(
        _ slow: SlowUpstream,
        heartbeat: Duration = .milliseconds(20),
        deliveries: Int = 32,
        cap: Int64 = 1 << 10
    ) throws -> GatewayUnderTest {
        try GatewayUnderTest(slow.target) { settings, route in
            settings.interim.heartbeat = heartbeat
            settings.maximumDeliveries = deliveries
            settings.inUseTimeout = .seconds(60)
            route.maxResponseSize = cap
        }
    }

    private func hear(_ count: Int, _ exchange: ScriptedExchange) throws {
        try eventually("\(count) heartbeats") { exchange.record.toldOffsets.count >= count }
    }

    @Test(
        "while the upstream works, the whole length is reported repeatedly, synced once",
        arguments: [5, 6, 10],
        [true, false]
    )
    func beats(version: Int, isCreation: Bool) throws {
        let slow = try SlowUpstream()
        let test = try test(slow)
        let exchange: ScriptedExchange
        if isCreation {
            exchange = .creation(version: version)
        } else {
            let location = try #require(
                test.serve(
                    .creation(["hel", .fails(.truncated)], length: .known(5), version: version)
                ).location
            )
            exchange = .append(location, at: 3, ["lo"], version: version)
        }
        let running = try test.start(exchange)
        try hear(2, exchange)
        slow.gate.open()
        let record = try running.finish()
        #expect(record.status == 201)
        #expect(record[.uploadComplete] == "?1")
        #expect(Set(record.toldOffsets) == [5])
        let beats = record.interims.dropFirst(isCreation ? 1 : 0)
        #expect(beats.allSatisfy { $0.fields[.location] == nil && $0.status.code == 104 })
        #expect(beats.allSatisfy { $0.fields[.uploadDraftInteropVersion] == "\(version)" })
        // Content received before the cut was promised then.
        #expect(test.disk.count(.sync, on: ".data") == (isCreation ? 1 : 2))
        #expect(test.disk.count(.syncDirectory) == 1)
        #expect(slow.origin.requests.map(\.content) == [Array("hello".utf8)])
    }

    @Test("a client that cannot receive them gets none, and nothing is synced")
    func undelivered() throws {
        let slow = try SlowUpstream()
        let control = try test(slow)
        let test = try test(slow)
        let off = try self.test(slow, heartbeat: .zero)
        let seldom = try self.test(slow, heartbeat: .seconds(3600))
        let cases: [(GatewayUnderTest, Int?, [Int])] = [
            (test, 3, [104]), (test, 4, [104]), (test, nil, [104]), (test, 10, []),
            (test, 10, [100, 103]), (off, 10, [104]), (seldom, 10, [104]),
        ]
        let running = try cases.map { test, version, forwarded in
            try test.start(
                .creation(
                    version: version,
                    context: ExchangeContext(interimStatuses: forwarded)
                )
            )
        }
        try eventually("all are with the upstream") {
            slow.origin.requests.count == cases.count
        }
        // While this client receives several, others would receive one.
        let other = ScriptedExchange.creation()
        let heard = try control.start(other)
        try hear(3, other)
        slow.gate.open()
        for exchange in running {
            let record = try exchange.finish()
            #expect(record.status == 201)
            #expect(record.toldOffsets == [])
        }
        #expect(try heard.finish().status == 201)
        for test in [test, off, seldom] {
            #expect(test.disk.count(.sync) == 0)
            #expect(test.disk.count(.syncDirectory) == 0)
        }
    }

    @Test("an offset that cannot be made durable is not reported, and the delivery continues")
    func syncFails() throws {
        let slow = try SlowUpstream()
        let test = try test(slow)
        test.disk.refuse(.sync, errno: 5)
        let running = try test.start(.creation())
        try eventually("the failure is in the log") {
            test.log.level(of: "spool error") == .error
        }
        slow.gate.open()
        let record = try running.finish()
        #expect(record.status == 201)
        #expect(record.toldOffsets == [])
        #expect(test.disk.count(.sync) == 1)
        #expect(slow.origin.requests.count == 1)
    }

    @Test("a heartbeat's offset stays valid if the upstream then fails")
    func upstreamFails() throws {
        let slow = try SlowUpstream(then: "")
        let test = try test(slow)
        let exchange = ScriptedExchange.creation(method: .put)
        let running = try test.start(exchange)
        try hear(1, exchange)
        slow.gate.open()
        let record = try running.finish()
        #expect(record.status == 502)
        #expect(record[.uploadComplete] == "?0")
        #expect(record.offset == 5)
        #expect(test.disk.count(.sync, on: ".data") == 1)
        let location = try #require(record.location)
        #expect(test.serve(.retrieval(location)).offset == 5)
    }

    @Test("a final response that must be complete first is awaited with heartbeats")
    func slowResponse() throws {
        let slow = try SlowUpstream(
            first: "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n01234",
            then: "56789"
        )
        let test = try test(slow)
        let exchange = ScriptedExchange.creation()
        let running = try test.start(exchange)
        try hear(3, exchange)
        slow.gate.open()
        let record = try running.finish()
        #expect(record.text == "0123456789")
        #expect(Set(record.toldOffsets) == [5])
    }

    @Test("once the final response has begun there are no more")
    func begunResponse() throws {
        let slow = try SlowUpstream(
            first: "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n01234",
            then: "56789"
        )
        let test = try test(slow, cap: 3)
        let exchange = ScriptedExchange.creation()
        let running = try test.start(exchange)
        try eventually("the response has begun") { exchange.record.text == "01234" }
        let told = exchange.record.toldOffsets.count
        let other = try SlowUpstream()
        let control = ScriptedExchange.creation()
        let heard = try self.test(other).start(control)
        try hear(3, control)
        other.gate.open()
        slow.gate.open()
        // Fails if an interim response follows the final head.
        let record = try running.finish()
        #expect(record.text == "0123456789")
        #expect(record.toldOffsets.count == told)
        #expect(try heard.finish().status == 201)
    }

    @Test("the time to verify an accepted upload has heartbeats too")
    func verification() throws {
        let test = try GatewayUnderTest { settings, route in
            settings.interim.heartbeat = .nanoseconds(1)
            route.reply = .accepted
        }
        let wrong = "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:"
        let content = [UInt8](repeating: 7, count: 3 << 20)
        let record = test.serve(.creation([.bytes(content)], fields: [.reprDigest: wrong]))
        #expect(record.status == 400)
        #expect(record.toldOffsets == [3 << 20, 3 << 20])
    }

    @Test("the wait for a delivery slot has heartbeats too")
    func slotWait() throws {
        let slow = try SlowUpstream()
        let test = try test(slow, deliveries: 1)
        let first = try test.start(.creation(["first"]))
        try slow.waitForRequest()
        let exchange = ScriptedExchange.creation(["second"])
        let second = try test.start(exchange)
        try hear(3, exchange)
        #expect(slow.origin.requests.count == 1)
        slow.gate.open()
        #expect(try first.finish().status == 201)
        let record = try second.finish()
        #expect(record.status == 201)
        #expect(Set(record.toldOffsets) == [6])
        let contents = slow.origin.requests.map { String(decoding: $0.content, as: UTF8.self) }
        #expect(contents == ["first", "second"])
    }

    @Test("content that a heartbeat before the delivery could not make durable is not delivered")
    func slotWaitSyncFails() throws {
        let slow = try SlowUpstream()
        let test = try test(slow, deliveries: 1)
        let first = try test.start(.creation([.bytes(tooLargeToBePlain)], version: nil))
        try slow.waitForRequest()
        test.disk.refuse(.sync, errno: 5)
        let record = test.serve(.creation(["second"]))
        #expect(record.status == 500)
        #expect(record.toldOffsets == [])
        test.disk.allow()
        slow.gate.open()
        #expect(try first.finish().status == 201)
        #expect(slow.origin.requests.count == 1)
        let location = try #require(record.location)
        #expect(test.serve(.retrieval(location)).offset == 0)
        let again = test.serve(.append(location, at: 0, ["second"]))
        #expect(again.status == 201)
        #expect(slow.origin.requests.map(\.content).last == Array("second".utf8))
    }
}
