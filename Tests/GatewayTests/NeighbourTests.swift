// Upstream, authorizer and webhook fail between and during requests: responses are true, nothing is lost, and the first
// request after recovery succeeds.

import Foundation
import HTTPTypes
@testable import SpoolgateExchange
import SpoolgatePosix
import SpoolgateSpool
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Testing

@testable import SpoolgateAdmin
@testable import SpoolgateJournal
@testable import SpoolgateRequests
@testable import SpoolgateSettings

@Suite("Failures of neighbours")
struct NeighbourTests {
    /// A gateway whose upstream is a neighbor before an origin that responds with 201.
    private func place() throws -> (BadNeighbour, GatewayUnderTest, LoopbackOrigin) {
        let origin = try LoopbackOrigin(status: "201 Created", content: "")
        let neighbour = try BadNeighbour(before: origin.port)
        let test = try GatewayUnderTest(.http(base: neighbour.base)) { _, route in
            route.upstream.connectTimeout = .seconds(2)
            route.upstream.stallTimeout = .seconds(2)
            route.upstream.responseTimeout = .seconds(1)
        }
        return (neighbour, test, origin)
    }

    @Test("uploads of every kind are delivered again after every failure of the upstream")
    func deliveries() throws {
        let (neighbour, test, origin) = try place()
        defer { origin.stop() }
        func succeed(_ after: String) {
            for exchange in [
                ScriptedExchange.creation(method: .put),
                .creation([.bytes(tooLargeToBePlain)], method: .post),
                ScriptedExchange(.put, "/files/a", [:], ["hello"]),
                ScriptedExchange(.get, "/files/a", [:], []),
            ] {
                let record = test.serve(exchange)
                #expect(record.status == 201, "after \(after): \(exchange.request)")
            }
        }
        for trouble in BadNeighbour.Trouble.failures {
            try neighbour.become(trouble)
            // Changed settings make libcurl resolve the neighbor's name again.
            test.reload { settings in
                settings.routes["default"]?.upstream.connectTimeout += .milliseconds(1)
            }
            let kept = test.serve(
                .creation([.bytes(tooLargeToBePlain)], method: .put, target: "/kept")
            )
            #expect([502, 504].contains(kept.status), "\(trouble)")
            #expect(kept[.uploadComplete] == "?0", "a PUT is kept: \(trouble)")
            let ordinary = test.serve(
                ScriptedExchange(.put, "/files/o", [:], [.bytes(tooLargeToBePlain)])
            )
            // A begun response is relayed as far as it arrives.
            #expect(ordinary.isAborted || [502, 504].contains(ordinary.status), "\(trouble)")
            try neighbour.become(nil)
            let location = try #require(kept.location)
            let offset = Int64(tooLargeToBePlain.count)
            #expect(test.serve(.append(location, at: offset)).status == 201, "\(trouble)")
            succeed("\(trouble)")
        }
    }

    @Test("the status names a failing route until an upload succeeds")
    func status() throws {
        let (neighbour, test, origin) = try place()
        defer { origin.stop() }
        func concerns() -> [String] { Status(of: Admin.of(test.gateway)).concerns }
        func upload(_ client: Int) {
            test.serve(
                ScriptedExchange(
                    .put,
                    "/files/a",
                    [:],
                    [.bytes(tooLargeToBePlain)],
                    context: ExchangeContext(remoteAddress: "192.0.2.\(client)")
                )
            )
        }
        // These fail at once; the others have the same outcome.
        for trouble in [BadNeighbour.Trouble.noName, .refuses, .notHTTP, .closes(after: 60)] {
            try neighbour.become(trouble)
            test.reload { $0.routes["default"]?.upstream.connectTimeout += .milliseconds(1) }
            for number in 0..<RouteHealth.maximumFailures { upload(number % 2) }
            #expect(concerns().contains { $0.contains("route default is failing") }, "\(trouble)")
            try neighbour.become(nil)
            upload(1)
            #expect(concerns() == [], "after \(trouble)")
        }
    }

    @Test("an authorizer that failed is used again and believed")
    func authorizer() throws {
        let origin = try LoopbackOrigin(status: "204 No Content", content: "")
        let neighbour = try BadNeighbour(before: origin.port)
        let url = try ServiceURL(neighbour.base + "/may")
        let test = try GatewayUnderTest { _, route in
            route.authorization.url = url
            route.authorization.timeout = .seconds(1)
        }
        for trouble in BadNeighbour.Trouble.failures {
            try neighbour.become(trouble)
            test.reload { $0.routes["default"]?.authorization.timeout += .milliseconds(1) }
            let record = test.serve(.creation())
            // The authorizer's request is too short for some failures.
            if record.status != 201 {
                #expect(record.status == 503, "\(trouble)")
                #expect(!record.events.contains(.read), "\(trouble)")
            }
            try neighbour.become(nil)
            #expect(test.serve(.creation()).status == 201, "after \(trouble)")
        }
        for trouble in BadNeighbour.Trouble.answersOfItsOwn {
            try neighbour.become(trouble)
            let record = test.serve(.creation())
            #expect(record.status != 201 && !record.events.contains(.read), "\(trouble)")
            try neighbour.become(nil)
            #expect(test.serve(.creation()).status == 201, "after \(trouble)")
        }
    }

    @Test("the webhook gets every event after any failure of its own")
    func webhook() throws {
        let origin = try LoopbackOrigin(status: "204 No Content", content: "")
        let neighbour = try BadNeighbour(before: origin.port)
        let url = try ServiceURL(neighbour.base + "/hook")
        let test = try GatewayUnderTest { settings, _ in
            settings.events.webhook.url = url
            settings.events.webhook.timeout = .seconds(1)
            settings.events.lifetime = .seconds(600)
        }
        try test.gateway.events.startSending()
        var told = 0
        // A 2xx status is enough, even in an incomplete response.
        let troubles = BadNeighbour.Trouble.failures.filter { $0 != .closesInAnswer }
        for trouble in troubles + BadNeighbour.Trouble.answersOfItsOwn {
            try neighbour.become(trouble)
            _ = test.serve(.creation())
            told += 3
            if trouble != .noName, trouble != .refuses, trouble != .closes(after: 100_000),
                trouble != .resets(after: 100_000)
            {
                try eventually("it met \(trouble)") { neighbour.met > 0 }
            }
            try neighbour.become(nil)
            test.reload { $0.events.webhook.timeout += .milliseconds(1) }
            // An event whose response was lost arrives twice.
            try eventually("the events after \(trouble)") {
                Set(origin.requests.flatMap { $0.values("spoolgate-delivery") }).count == told
            }
        }
        #expect(test.gateway.events.stopSending(until: .after(.seconds(300))))
    }
}
