// The metrics after uploads were created, cut, resumed, delivered and refused.

import HTTPTypes
@testable import SpoolgateExchange
import SpoolgatePosix
import SpoolgateTextFormats
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Testing

@testable import SpoolgateAdmin
@testable import SpoolgateDelivery
@testable import SpoolgateJournal
@testable import SpoolgateRequests
@testable import SpoolgateSettings
@testable import SpoolgateSpool

@Suite("Metrics")
struct MetricsTests {
    private let test: GatewayUnderTest

    init() throws { test = try GatewayUnderTest() }

    private var metrics: Metrics { test.gateway.metrics }

    private func samples(_ name: String) -> [String: String] {
        samples(name, of: test.gateway)
    }

    private func samples(_ name: String, of gateway: Gateway) -> [String: String] {
        let lines = Admin.of(gateway).metricsText.split(separator: "\n")
        var samples: [String: String] = [:]
        for line in lines
        where line.hasPrefix("spoolgate_\(name){") || line.hasPrefix("spoolgate_\(name) ") {
            let parts = line.split(separator: " ")
            samples[String(parts[0].dropFirst("spoolgate_\(name)".count))] = String(parts[1])
        }
        return samples
    }

    @Test("an upload that is cut, resumed and delivered moves each of its counts by one")
    func cutAndResumed() throws {
        let cut = test.serve(
            .creation([.bytesThenFails(Array("hello".utf8), .truncated)], length: .known(11))
        )
        let location = try #require(cut.location)
        #expect(samples("interruptions_total") == ["{reason=\"truncated\"}": "1"])
        #expect(samples("queue_runs_total") == ["": "0"])
        #expect(samples("resumptions_total") == ["": "0"])
        #expect(samples("received_bytes_total") == ["{route=\"default\"}": "5"])
        #expect(samples("interim_total") == ["{status=\"104\"}": "1"])
        #expect(samples("uploads")["{queue=\"incoming\",cause=\"\"}"] == "1")
        let done = test.serve(.append(location, at: 5, [" world"]))
        #expect(done.status == 201)
        #expect(samples("resumptions_total") == ["": "1"])
        #expect(samples("received_bytes_total") == ["{route=\"default\"}": "11"])
        #expect(samples("delivered_bytes_total") == ["{route=\"default\"}": "11"])
        #expect(
            samples("uploads_total") == [
                "{route=\"default\",dialect=\"ietf\",outcome=\"created\"}": "1",
                "{route=\"default\",dialect=\"ietf\",outcome=\"delivered\"}": "1",
            ]
        )
        #expect(samples("deliveries_total") == ["{route=\"default\",result=\"accepted\"}": "1"])
        #expect(samples("delivery_seconds_count") == ["{route=\"default\"}": "1"])
        #expect(samples("upload_seconds_count") == ["{route=\"default\"}": "1"])
        #expect(
            samples("requests_total") == [
                "{route=\"default\",method=\"POST\",status=\"none\"}": "1",
                "{route=\"default\",method=\"PATCH\",status=\"201\"}": "1",
            ]
        )
        #expect(samples("uploads")["{queue=\"incoming\",cause=\"\"}"] == "0")
        #expect(samples("uploads")["{queue=\"delivered\",cause=\"\"}"] == "1")
        #expect(samples("uploads_receiving") == ["": "0"])
    }

    @Test("the careful steps of one upload are no resumptions")
    func carefully() throws {
        let location = test.createPartial()
        #expect(test.serve(.append(location, at: 5, ["!"], complete: false)).status == 204)
        #expect(samples("resumptions_total") == ["": "0"])
        #expect(samples("interruptions_total") == [:])
    }

    @Test(
        "a refusal counts by its code, also for an unknown route, and a method by one of a few names"
    )
    func refused() throws {
        let location = test.createPartial()
        #expect(test.serve(.append(location, at: 99)).status == 409)
        #expect(samples("refusals_total") == ["{reason=\"offset-mismatch\"}": "1"])
        let strange = try #require(HTTPRequest.Method(rawValue: "BREW"))
        test.serve(
            ScriptedExchange(strange, "/files", context: ExchangeContext(route: "nowhere"))
        )
        #expect(samples("refusals_total")["{reason=\"unknown-route\"}"] == "1")
        #expect(
            samples("requests_total")["{route=\"-\",method=\"other\",status=\"500\"}"] == "1"
        )
        #expect(samples("front_faults_total")["{fault=\"unknown_route\"}"] == "1")
    }

    @Test("an upload that the upstream refuses is deferred, then failed, then in no queue")
    func deferred() throws {
        let test = try GatewayUnderTest(.http(base: "http://127.0.0.1:9"))
        let record = test.serve(.creation(method: .put))
        #expect(record.status == 502)
        let location = try #require(record.location)
        let samples = samples("uploads", of: test.gateway)
        #expect(samples["{queue=\"deferred\",cause=\"\"}"] == "1")
        #expect(samples["{queue=\"incoming\",cause=\"\"}"] == "0")
        #expect(
            self.samples("deliveries_total", of: test.gateway)
                == ["{route=\"default\",result=\"unreachable\"}": "1"]
        )
        #expect(
            self.samples("queue_oldest_seconds", of: test.gateway).keys.contains(
                "{queue=\"deferred\",route=\"default\"}"
            )
        )
        #expect(test.serve(.cancellation(location)).status == 204)
        #expect(
            self.samples("uploads", of: test.gateway)["{queue=\"deferred\",cause=\"\"}"] == "0"
        )
    }

    @Test("another process's changes to waiting uploads appear after a queue run")
    func otherProcess() throws {
        let test = try GatewayUnderTest(.http(base: "http://127.0.0.1:9"))
        let location = try #require(test.serve(.creation(method: .put)).location)
        let other = try Spool(existing: "\(test.root)/spool")
        let upload = try #require(
            try other.lock(test.id(location), until: .after(.seconds(60)), requestRelease: {})
        )
        try upload.hold(.held, reason: "a person said so")
        upload.unlock()
        try test.gateway.metrics.waiting.look(at: test.spool)
        let samples = samples("uploads", of: test.gateway)
        #expect(samples["{queue=\"hold\",cause=\"held\"}"] == "1")
        #expect(samples["{queue=\"deferred\",cause=\"\"}"] == "0")
    }

    @Test("a restarted gateway knows the waiting uploads after one read of each record")
    func restarted() throws {
        let test = try GatewayUnderTest(.http(base: "http://127.0.0.1:9"))
        test.serve(.creation(method: .put))
        let next = try test.another()
        _ = next.deliveries.spool.recover()
        try next.metrics.waiting.look(at: next.deliveries.spool)
        let samples = samples("uploads", of: next)
        #expect(samples["{queue=\"deferred\",cause=\"\"}"] == "1")
        #expect(samples["{queue=\"incoming\",cause=\"\"}"] == "0")
    }

    @Test("an ordinary upload is counted without a resource")
    func ordinary() throws {
        let test = try GatewayUnderTest { $1.limits.minSize = 0 }
        let record = test.serve(ScriptedExchange(.put, "/files/a", [:], ["hello"]))
        #expect(record.status == 201)
        #expect(
            samples("uploads_total", of: test.gateway)
                == ["{route=\"default\",dialect=\"none\",outcome=\"delivered\"}": "1"]
        )
        #expect(
            samples("delivered_bytes_total", of: test.gateway) == ["{route=\"default\"}": "5"]
        )
    }

    @Test("no label has an owner, a path or an identity")
    func labels() throws {
        let context = ExchangeContext(owner: "mallory", interimStatuses: [104])
        let location = test.createPartial(context: context)
        let text = Admin.of(test.gateway).metricsText
        let id = try #require(location.split(separator: "/").last)
        for word in ["mallory", "/files", String(id)] { #expect(!text.contains(word), "\(word)") }
    }
}

extension Admin {
    /// The admin of a listener with free threads.
    static func of(
        _ gateway: Gateway,
        load: ListenerLoad = ListenerLoad(busy: 1, maximum: 8, isAccepting: true)
    ) -> Admin {
        Admin(gateway) { load }
    }
}
