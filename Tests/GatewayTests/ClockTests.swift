// Jumps of the wall clock: waiting uploads are attempted, and promises hold.

import Foundation
import Logging
import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Testing

@testable import SpoolgateDelivery
@testable import SpoolgateJournal
@testable import SpoolgateRequests
@testable import SpoolgateSettings
@testable import SpoolgateSpool

final class SetClock: Sendable {
    private let state = Monitor((error: Int64(0), slept: Int64(0)))
    private let uptime: @Sendable () -> Int64

    /// `isStill` stops the monotonic clock: only `sleep` advances it.
    init(isStill: Bool = false) {
        let begin = SystemClock.kernelUptime()
        uptime = { isStill ? begin : SystemClock.kernelUptime() }
    }

    /// `error` affects only the wall clock, `sleep` both clocks.
    var system: SystemClock {
        SystemClock(
            wall: { [state] in
                let (error, slept) = state.update { $0 }
                return WallTime(seconds: WallTime.now.seconds + error + slept)
            },
            uptime: { [state, uptime] in uptime() + state.update { $0.slept } }
        )
    }

    func set(error: Int64) { state.update { $0.error = error } }

    func sleep(_ seconds: Int64) { state.update { $0.slept += seconds } }
}

@Suite struct ClockTests {
    private static let day: Int64 = 86_400
    private static let decade: Int64 = 3_650 * day

    @Test(
        "an upload accepted ten years ahead is tried in the next queue run after the clock is right"
    )
    func acceptedAhead() throws {
        let path = QueueScene.socketPath()
        defer { unlink(path) }
        let clock = SetClock()
        let test = try GatewayUnderTest(.unix(path: path), clock: clock.system) { settings, route in
            route.reply = .accepted
            settings.queueRunInterval = .seconds(3_600)
        }
        clock.set(error: Self.decade)
        let record = test.serve(.creation())
        #expect(record.status == 202)
        let id = try #require(try test.summaries().first?.id)
        try test.gateway.deliveries.startQueue()
        // The upstream is unreachable.
        try eventually("it is deferred") { (try test.spool.look(at: id)?.reason) != nil }
        let next = try #require(try test.spool.look(at: id)?.nextAttempt)
        #expect(next.seconds > WallTime.now.seconds + Self.decade - Self.day)
        let origin = try QueueScene.origin([], socketPath: path)
        clock.set(error: 0)
        test.gateway.deliveries.runQueue()
        try eventually("it is delivered") { try test.spool.look(at: id)?.queue == .delivered }
        #expect(origin.requests.map(\.content) == [Array("hello".utf8)])
    }

    @Test("a clock that jumps ahead expires no upload before it has continued for a day")
    func jumpAhead() throws {
        let clock = SetClock()
        let test = try GatewayUnderTest(clock: clock.system) { _, route in
            route.limits.maxAge = Self.day
            route.responseRetention = .seconds(Self.day)
        }
        let partial = test.createPartial("hello")
        let done = try #require(test.serve(.creation(["all"])).location)
        clock.set(error: 2 * Self.day)
        #expect(test.serve(.retrieval(partial)).status == 204)
        #expect(test.serve(.retrieval(done)).status == 204)
        test.gateway.deliveries.removeOld(in: Retention.queues)
        #expect(try test.summaries().count == 2)
        // The next process reads the jump from the spool.
        test.spool.noteClock()
        let next = try test.another(clock: clock.system)
        next.deliveries.removeOld(in: Retention.queues)
        #expect(try test.summaries().count == 2)
        #expect(next.spool.clock.lead.map { abs($0 - 2 * Self.day) <= 2 } == true)
        // Elapsed time counts; the jump counts after a day without another one.
        clock.sleep(Self.day - 10)
        test.gateway.deliveries.removeOld(in: Retention.queues)
        #expect(try test.summaries().count == 2)
        clock.sleep(20)
        test.gateway.deliveries.removeOld(in: Retention.queues)
        #expect(try test.summaries().isEmpty)
        #expect(test.serve(.retrieval(partial)).status == 404)
    }

    @Test(
        "a corrected clock expires nothing either, and reports no more time than the route allows"
    )
    func setRight() throws {
        let clock = SetClock()
        let test = try GatewayUnderTest(clock: clock.system) { _, route in
            route.limits.maxAge = Self.day
        }
        let partial = test.createPartial("hello")
        // A write while the clock was ahead.
        try test.age(partial, by: Double(-Self.decade))
        let told = test.serve(.retrieval(partial))
        #expect(told.status == 204)
        #expect(told[.uploadLimit]?.contains("max-age=\(Self.day)") == true)
        test.gateway.deliveries.removeOld(in: Retention.queues)
        let ahead = try #require(try test.summaries().first?.lastActivity)
        #expect(ahead.seconds > WallTime.now.seconds + Self.day)
        // Once the clock has been right for a day, the time is corrected.
        clock.sleep(Self.day)
        test.gateway.deliveries.removeOld(in: Retention.queues)
        let corrected = try #require(try test.summaries().first?.lastActivity)
        #expect(abs(corrected.seconds - WallTime.now.seconds) < 60)
        #expect(test.log.messages.contains("upload time corrected"))
        clock.sleep(Self.day + 60)
        #expect(test.serve(.retrieval(partial)).status == 404)
    }

    @Test("a clock jump does not exhaust an upload's time in the queue")
    func lifetime() throws {
        let path = QueueScene.socketPath()
        defer { unlink(path) }
        let clock = SetClock()
        let test = try GatewayUnderTest(.unix(path: path), clock: clock.system) { settings, route in
            route.reply = .accepted
            route.queue.minimumBackoff = .seconds(1)
            route.queue.maximumBackoff = .seconds(1)
            settings.queueRunInterval = .milliseconds(50)
        }
        #expect(test.serve(.creation()).status == 202)
        let id = try #require(try test.summaries().first?.id)
        clock.set(error: 30 * Self.day)
        try test.gateway.deliveries.startQueue()
        try eventually("it was attempted") { try test.spool.look(at: id)?.attempts ?? 0 > 1 }
        #expect(try test.spool.look(at: id)?.queue != .hold)
        let origin = try QueueScene.origin([], socketPath: path)
        try eventually("it is delivered") { try test.spool.look(at: id)?.queue == .delivered }
        #expect(origin.requests.count == 1)
    }

    @Test(
        "queue time starts over for an upload completed in a future that the clock has left"
    )
    func wholeAhead() throws {
        let clock = SetClock()
        let path = QueueScene.socketPath()
        let test = try GatewayUnderTest(.unix(path: path), clock: clock.system) { _, route in
            route.reply = .accepted
        }
        clock.set(error: Self.decade)
        #expect(test.serve(.creation()).status == 202)
        let id = try #require(try test.summaries().first?.id)
        clock.set(error: 0)
        #expect(test.spool.clock.lead == nil)
        clock.sleep(Self.day)
        func attempt() throws -> WallTime {
            try test.withUpload("/\(id)") { upload in
                try upload.postpone(reason: "not reached", .queue(upload.nextAttempt ?? .now))
                return try #require(upload.completeSince)
            }
        }
        let since = try attempt()
        #expect(abs(since.seconds - test.spool.clock.now.seconds) < 60)
        clock.sleep(3600)
        #expect(try attempt() == since)
    }

    @Test("a jump is logged and stored once")
    func told() throws {
        let clock = SetClock()
        let test = try GatewayUnderTest(clock: clock.system)
        clock.set(error: 2 * Self.day)
        try test.gateway.deliveries.startQueue()
        try eventually("the jump is logged") { test.log.messages.contains("system clock jumped") }
        #expect(test.log.level(of: "system clock jumped") == .warning)
        let text = try String(contentsOfFile: "\(test.root)/spool/clock", encoding: .utf8)
        #expect(ClockMark(text: text)?.isUncertain == true)
    }
}
