// Uploads held because of clients: their lifetime and limit; none is removed to make room.

import HTTPTypes
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

@Suite struct HoldTests {
    private static let day = 86_400.0

    /// Accepts uploads that its upstream then refuses.
    private static func gateway(
        _ origin: LoopbackOrigin,
        _ change: @escaping (inout RouteSettings) -> Void
    ) throws -> GatewayUnderTest {
        try GatewayUnderTest(origin.target) { settings, route in
            route.reply = .accepted
            settings.queueRunInterval = .milliseconds(50)
            change(&route)
        }
    }

    private static func refusing() throws -> LoopbackOrigin {
        try QueueScene.origin(Array(repeating: .responses(422), count: 50))
    }

    private func fail(_ count: Int, in test: GatewayUnderTest) throws {
        for _ in 0..<count {
            #expect(test.serve(.creation(["0123456789"])).status == 202)
        }
        try eventually("all have failed") {
            // Logged after it is counted.
            test.log.messages.count { $0 == "delivery failed" } == count
        }
    }

    @Test("failed uploads expire, and uploads that need a person stay")
    func lifetime() throws {
        let origin = try Self.refusing()
        let test = try Self.gateway(origin) { $0.queue.failedRetention = .seconds(10 * 86_400) }
        try test.gateway.deliveries.startQueue()
        try fail(3, in: test)
        let all = try test.summaries()
        try test.withUpload("/\(all[0].id)") { held in
            try held.requeue(at: WallTime(seconds: WallTime.now.seconds + 1_000))
            try held.hold(.held, reason: "by an operator")
        }
        for summary in all.prefix(2) { try test.age("/\(summary.id)", by: 11 * Self.day) }
        test.gateway.deliveries.removeOld(in: Retention.queues)
        #expect(Set(try test.summaries().map(\.id)) == [all[0].id, all[2].id])
        #expect(test.log.level(of: "failed upload removed") == .notice)
        #expect(
            test.log.values(of: "reason", in: "failed upload removed")
                == ["the upstream responded with 422"]
        )
    }

    enum Cause: CaseIterable { case failed, indeterminate, held }

    @Test("a client cannot cancel an upload that needs a person", arguments: Cause.allCases)
    func cancellation(_ cause: Cause) throws {
        let deed = cause == .failed ? QueueScene.Deed.responses(422) : .breaksOff
        let origin = try QueueScene.origin([deed])
        let test = try GatewayUnderTest(origin.target) { _, route in
            if cause != .indeterminate { route.reply = .accepted }
        }
        let record = test.serve(.creation(["0123456789"]))
        let location = try #require(record.location)
        switch cause {
        case .failed: try test.gateway.deliveries.startQueue()
        case .indeterminate: #expect(record.status == 502)
        case .held:
            try test.withUpload(location) { try $0.hold(.held, reason: "held by a person") }
        }
        try test.waitUntil(location, isIn: .hold)
        #expect(test.serve(.cancellation(location)).status == 409)
        let kept = try test.summary(location)
        #expect(kept.queue == .hold && kept.offset == 10)
    }

    // Long because the queue pauses between its attempts.
    @Test(
        "above the limit no more are accepted, nothing is destroyed, and the log names the command"
    )
    func bound() throws {
        let origin = try Self.refusing()
        let test = try Self.gateway(origin) { $0.queue.maximumHoldSize = 30 }
        let begun = test.createPartial("hello")
        try test.gateway.deliveries.startQueue()
        try fail(3, in: test)
        for exchange in [
            ScriptedExchange.creation(["more"]),
            .creation(["more"], complete: false),
            ScriptedExchange(.post, "/p", [:], ["b"]),
        ] {
            let record = test.serve(exchange)
            #expect(record.status == 503)
            #expect(record[.retryAfter] == "300")
        }
        #expect(test.log.level(of: "hold queue full") == .error)
        let reasons = test.log.values(of: "reason", in: "hold queue full")
        #expect(reasons.count == 1)
        #expect(
            reasons.first?.contains("spoolgate purge --force --older-than 0s --queue hold") == true
        )
        #expect(try test.summaries().count == 4)
        // A begun upload may finish.
        #expect(test.serve(.append(begun, at: 5, ["!"])).status == 202)
        // Removals by another process are detected.
        let purger = try Spool(existing: "\(test.root)/spool")
        try eventually("it has failed too") {
            try test.summaries().count { $0.holdCause == .failed } == 4
        }
        let summaries = try purger.summariesOfAll()
        try purger.remove(summaries, kept: { Issue.record("\($0.id) is kept") }) { _ in }
        try eventually("uploads are accepted again") {
            test.serve(.creation(["more"])).status == 202
        }
    }

    @Test("an upload held during a count is counted as well")
    func countedMeanwhile() throws {
        let origin = try Self.refusing()
        let test = try Self.gateway(origin) { $0.queue.maximumHoldSize = 10 }
        let deliveries = test.gateway.deliveries
        let route = try #require(deliveries.current.routes[RouteSettings.defaultName])
        #expect(deliveries.holdSizes.beginCount())
        try deliveries.startQueue()
        try fail(1, in: test)
        deliveries.holdSizes.endCount(isWhole: true)
        #expect(deliveries.isHoldFull(route))
    }

    @Test("a later process finds the held uploads, and a route without a limit accepts all")
    func restart() throws {
        let origin = try Self.refusing()
        let test = try Self.gateway(origin) { $0.queue.maximumHoldSize = 0 }
        try test.gateway.deliveries.startQueue()
        try fail(5, in: test)
        var settings = test.settings
        settings.routes[RouteSettings.defaultName]?.queue.maximumHoldSize = 50
        settings.routes["other"] = settings.routes[RouteSettings.defaultName]
        let next = Gateway(settings: settings, spool: test.spool, log: Log(test.log.logger))
        let routes = next.deliveries.current.routes
        let full = try #require(routes[RouteSettings.defaultName])
        try next.deliveries.startQueue()
        try eventually("the first run has counted") { next.deliveries.isHoldFull(full) }
        #expect(!next.deliveries.isHoldFull(try #require(routes["other"])))
    }
}

extension Spool {
    fileprivate func summariesOfAll() throws -> [UploadSummary] {
        var all: [UploadSummary] = []
        try forEachUpload { all.append($0) }
        return all
    }
}
