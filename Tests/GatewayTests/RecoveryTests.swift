// An application returns after a long downtime to full queues and many waiting clients.

import Foundation
import HTTPTypes
@testable import SpoolgateExchange
import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateTextFormats
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Testing

@testable import SpoolgateDelivery
@testable import SpoolgateRequests
@testable import SpoolgateSettings
@testable import SpoolgateSpool

@Suite struct RecoveryTests {
    /// All delivery slots, and one application's share.
    private static let (slots, share) = (12, 8)

    /// Counts its concurrent requests.
    private final class Application: Sendable {
        private let load = Monitor((now: 0, maximum: 0))
        private let status = Monitor("201 Created")

        var maximum: Int { load.update { $0.maximum } }

        func response(_ status: String) { self.status.update { $0 = status } }

        func listen(at path: String) throws -> LoopbackOrigin {
            try LoopbackOrigin(socketPath: path) { [self] connection in
                while try connection.receiveRequest() != nil {
                    load.update { load in
                        load.now += 1
                        load.maximum = max(load.maximum, load.now)
                    }
                    usleep(5_000)
                    load.update { $0.now -= 1 }
                    try connection.response(status.update { $0 })
                }
            }
        }
    }

    private static func owner(_ number: Int) -> ExchangeContext {
        ExchangeContext(
            route: number.isMultiple(of: 2) ? nil : "accepted",
            owner: ExactText("client \(number % 100)"),
            interimStatuses: [104]
        )
    }

    /// The application is at a socket; the default route responds with the result, the other with 202.
    private static func gateway(_ path: String, _ clock: SetClock) throws -> GatewayUnderTest {
        try GatewayUnderTest(.unix(path: path), clock: clock.system) { settings, route in
            settings.maximumDeliveries = slots
            settings.queueRunInterval = .milliseconds(200)
            var accepted = route
            accepted.reply = .accepted
            settings.routes["accepted"] = accepted
        }
    }

    private func counts(_ origin: LoopbackOrigin) -> [String: Int] {
        origin.requests.reduce(into: [:]) { counts, request in
            counts[String(decoding: request.content, as: UTF8.self), default: 0] += 1
        }
    }

    @Test(
        "after two hours of downtime an application gets each POST once, within its share at a time"
    )
    func outage() throws {
        let path = QueueScene.socketPath()
        defer { unlink(path) }
        let clock = SetClock()
        let test = try Self.gateway(path, clock)
        try test.gateway.deliveries.startQueue()
        let count = 1_000
        // Half are accepted; the other clients receive that the application is unavailable.
        let locations = try (0..<count).map { number in
            let record = test.serve(
                .creation([.text("upload \(number)")], context: Self.owner(number))
            )
            #expect(record.status == (number.isMultiple(of: 2) ? 502 : 202))
            return try #require(record.location)
        }
        func tried(_ attempts: Int) throws -> Bool {
            try test.summaries().allSatisfy { $0.attempts >= attempts || $0.nextAttempt == nil }
        }
        try eventually("all were attempted once", seconds: 60) { try tried(1) }
        clock.sleep(7_200)
        try eventually("all were attempted again", seconds: 60) { try tried(2) }
        // It returns when all queued uploads are due and all clients return.
        let application = Application()
        let origin = try application.listen(at: path)
        let start = ContinuousClock.now
        clock.sleep(3_600)
        let clients = Parallel.run(count / 2) { index -> Int in
            let number = 2 * index
            for tries in 1... {
                let append = ScriptedExchange.append(
                    locations[number],
                    at: Int64("upload \(number)".utf8.count),
                    context: Self.owner(number)
                )
                let record = test.serve(append)
                if record.status == 201 { return tries }
                // Clients return after a closed connection.
                guard record.isAborted, tries < 20 else { break }
            }
            throw NeverHappened(description: "client \(number) received no result")
        }
        let tries = try clients.map { try $0.get() }
        let ofClients = ContinuousClock.now - start
        try eventually("the queue is empty", seconds: 120) {
            try test.summaries().allSatisfy { $0.queue == .delivered }
        }
        let ofAll = ContinuousClock.now - start
        #expect(counts(origin).count == count)
        #expect(counts(origin).values.allSatisfy { $0 == 1 })
        #expect(application.maximum <= Self.share)
        // No client had to return: waiting requests get slots.
        #expect(tries.allSatisfy { $0 == 1 })
        // The application's minimum is 1,000 / 8 × 5 ms.
        print("recovery: \(ofClients) for \(count / 2) clients, \(ofAll) for all \(count)")
    }

    @Test(
        "a full hold that is requeued is delivered once each, within the share at a time"
    )
    func requeued() throws {
        let path = QueueScene.socketPath()
        defer { unlink(path) }
        let clock = SetClock()
        let test = try Self.gateway(path, clock)
        let application = Application()
        let origin = try application.listen(at: path)
        application.response("422 Not Now")
        try test.gateway.deliveries.startQueue()
        let count = 500
        for number in 0..<count {
            let content = ScriptedExchange.Step.text("upload \(number)")
            let context = Self.owner(2 * number + 1)
            #expect(test.serve(.creation([content], context: context)).status == 202)
        }
        try eventually("all are held", seconds: 60) {
            try test.summaries().allSatisfy { $0.queue == .hold }
        }
        origin.forget { _ in true }
        application.response("201 Created")
        let start = ContinuousClock.now
        // As the command's process does; then the daemon's queue run.
        let other = try Spool(existing: test.spool.directory)
        try other.forEachUpload { summary in
            guard let upload = try? other.tryLock(summary.id) else { return }
            #expect(throws: Never.self) { try upload.requeue(at: .now) }
            upload.unlock()
            test.gateway.deliveries.runQueue()
        }
        test.gateway.deliveries.runQueue()
        try eventually("all are delivered", seconds: 120) {
            try test.summaries().allSatisfy { $0.queue == .delivered }
        }
        let time = ContinuousClock.now - start
        #expect(counts(origin).count == count)
        #expect(counts(origin).values.allSatisfy { $0 == 1 })
        #expect(application.maximum <= Self.share)
        print("requeued: \(time) for \(count)")
    }
}
