// What bounds the delivery queue: places, the end of the daemon, and the pauses between attempts.

@testable import Delivery
import Foundation
import HTTPTypes
import Posix
import Synchronization
import TestSupport
import Testing
import UploadProtocol
import Upstream

@testable import Gateway
@testable import Settings
@testable import Spool

@Suite struct QueueBoundsTests {
    @Test("a route's bound holds for its requests and its queue together")
    func routeBound() throws {
        let now = Mutex(0)
        let most = Mutex(0)
        let origin = try LoopbackOrigin { connection in
            _ = try connection.receiveRequest()
            let count = now.withLock { count in
                count += 1
                return count
            }
            most.withLock { $0 = max($0, count) }
            usleep(1_000)
            now.withLock { $0 -= 1 }
            try connection.send("HTTP/1.1 201 Created\r\nContent-Length: 0\r\n")
            try connection.send("Connection: close\r\n\r\n")
        }
        let test = try QueueScene.gateway(.http(base: origin.base)) { _, route in
            route.reply = .accepted
            route.queue.maximumConcurrent = 2
        }
        for _ in 0..<40 { test.serve(.creation([.text("x")], complete: true)) }
        try test.gateway.deliveries.startQueue()
        try eventually("all delivered") {
            try test.summaries().allSatisfy { $0.queue == .delivered }
        }
        #expect(origin.requests.count == 40)
        #expect(most.withLock { $0 } == 2)
    }

    @Test("stopping waits for the attempts under way and begins no other")
    func stopping() throws {
        let gate = Gate()
        let origin = try QueueScene.origin([.waits(gate)])
        let test = try QueueScene.gateway(.http(base: origin.base)) { _, route in
            route.reply = .accepted
            route.queue.maximumConcurrent = 1
        }
        try test.gateway.deliveries.startQueue()
        let first = try #require(test.serve(.creation([.text("1")], complete: true)).location)
        let second = try #require(test.serve(.creation([.text("2")], complete: true)).location)
        try eventually("the attempt") { origin.requests.count == 1 }
        #expect(test.gateway.deliveries.stopQueue(until: .after(.zero)) == 1)
        gate.open()
        #expect(test.gateway.deliveries.stopQueue(until: .after(.seconds(60))) == 0)
        let queues = try [first, second].map { try test.queue(of: $0) }
        #expect(queues.contains(.delivered) && queues.contains(.deferred))
        #expect(origin.requests.count == 1)
    }

    @Test("pauses double up to the most, and a random half of them is taken off")
    func pauses() {
        var policy = QueuePolicy()
        policy.minimumBackoff = .seconds(10)
        policy.maximumBackoff = .seconds(100)
        for (attempts, whole) in [(0, 10), (1, 10), (2, 20), (4, 80), (5, 100), (200, 100)] {
            for random in [0, 1, 7, UInt64.max] {
                let pause = policy.pause(after: attempts, asked: nil, random: random)
                #expect(pause >= .seconds(whole / 2) && pause <= .seconds(whole))
            }
        }
        #expect(policy.pause(after: 1, asked: 60, random: 0) == .seconds(60))
        #expect(policy.pause(after: 1, asked: 6_000, random: 0) == .seconds(100))
    }
}
