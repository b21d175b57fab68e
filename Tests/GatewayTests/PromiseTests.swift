// Compares the promises in spoolgate-spool(5) with disk calls: a promise follows the call that makes it true, and
// survives a failed call only if the page says so.
//
// The page is read, so a row or a scenario without the other fails.

import Foundation
import HTTPTypes
import SpoolgateExchange
import SpoolgatePosix
import SpoolgateRequests
import SpoolgateSettings
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Synchronization
import Testing

struct PromiseRow: CustomTestStringConvertible, Sendable {
    var promise: String
    var call: String
    var subject: String
    var survives: String
    var ifItFails: String

    var testDescription: String { promise }

    static let all: [PromiseRow] = {
        let page = URL(filePath: #filePath).deletingLastPathComponent()
            .deletingLastPathComponent().deletingLastPathComponent()
            .appending(path: "deploy/man/spoolgate-spool.5")
        let text = (try? String(contentsOf: page, encoding: .utf8)) ?? ""
        let start = text.components(separatedBy: ".Sh PROMISES").last ?? ""
        let section = start.components(separatedBy: ".Sh ").first ?? ""
        return section.split(separator: "\n").compactMap { line in
            guard line.hasPrefix(".It ") else { return nil }
            let cells = line.dropFirst(4).components(separatedBy: " Ta ")
            guard cells.count == 5, !cells[0].hasPrefix("Em") else { return nil }
            return PromiseRow(
                promise: cells[0],
                call: cells[1],
                subject: cells[2],
                survives: cells[3],
                ifItFails: cells[4]
            )
        }
    }()

    func isCall(_ call: Disk.Call, _ subject: String) -> Bool {
        call.rawValue == self.call && isSubject(subject)
    }

    /// Whether the row names this path; it never names content.
    func isSubject(_ path: String) -> Bool { subject != "record" || !path.hasSuffix(".data") }
}

/// A request that makes a promise.
private struct Scenario: Sendable {
    var prepare: @Sendable (GatewayUnderTest) throws -> ScriptedExchange
    var isReported: @Sendable (ScriptedExchange.Record, LoopbackOrigin) -> Bool
    /// Whether the promise is made while the upstream works, which responds after the call.
    var isSlow = false

    static func told(_ status: Int) -> @Sendable (ScriptedExchange.Record, LoopbackOrigin) -> Bool {
        { record, _ in record.status == status }
    }

    static func toldProgress(_ record: ScriptedExchange.Record, _: LoopbackOrigin) -> Bool {
        record.interims.contains { $0.fields[.uploadOffset] != nil }
    }

    /// An upload interrupted at 5 bytes, promised unless the disk fails; complete if `length` is 5.
    static func interrupted(
        _ test: GatewayUnderTest,
        length: Int64 = 5,
        isPromised: Bool = true
    ) throws -> String {
        if !isPromised { test.disk.refuse(.syncDirectory, errno: SystemError.lost) }
        let record = test.serve(.creation(["hello", .fails(.truncated)], length: .known(length)))
        test.disk.allow()
        return try #require(record.location)
    }
}

private let scenarios: [String: Scenario] = [
    "created": Scenario(
        prepare: { _ in .creation(complete: false) },
        isReported: { record, _ in record.interims.contains { $0.fields[.location] != nil } }
    ),
    "offset": Scenario(
        prepare: { try .retrieval(Scenario.interrupted($0, isPromised: false)) },
        isReported: Scenario.told(204)
    ),
    "offset-created": Scenario(
        prepare: { _ in .creation(complete: false) },
        isReported: Scenario.told(201)
    ),
    "offset-appended": Scenario(
        prepare: { test in
            .append(try Scenario.interrupted(test, length: 9), at: 5, ["!"], complete: false)
        },
        isReported: { record, _ in record.offset == 6 }
    ),
    "offset-conflict": Scenario(
        prepare: { test in
            .append(
                try Scenario.interrupted(test, isPromised: false),
                at: 1,
                ["!"],
                complete: false
            )
        },
        isReported: { record, _ in record.offset != nil }
    ),
    "progress": Scenario(
        prepare: { _ in
            .creation(["hello", "world", .fails(.truncated)])
        },
        isReported: Scenario.toldProgress
    ),
    "heartbeat": Scenario(
        prepare: { _ in .creation() },
        isReported: Scenario.toldProgress,
        isSlow: true
    ),
    "postponed": Scenario(
        prepare: { test in
            test.reload {
                $0.routes[RouteSettings.defaultName]?.upstream.targets = [
                    .unix(path: "/none/at/all")
                ]
            }
            return .creation()
        },
        isReported: { record, _ in record.offset != nil }
    ),
    "accepted": Scenario(
        prepare: { test in
            test.reload { $0.routes[RouteSettings.defaultName]?.reply = .accepted }
            return .creation()
        },
        isReported: Scenario.told(202)
    ),
    "sent": Scenario(
        prepare: { test in
            .append(try Scenario.interrupted(test), at: 5)
        },
        isReported: { _, origin in !origin.requests.isEmpty }
    ),
    "answered": Scenario(prepare: { _ in .creation() }, isReported: Scenario.told(201)),
    "answered-promised": Scenario(
        prepare: { test in
            .append(try Scenario.interrupted(test), at: 5)
        },
        isReported: Scenario.told(201)
    ),
    "cancelled": Scenario(
        prepare: { .cancellation(try Scenario.interrupted($0, isPromised: false)) },
        isReported: Scenario.told(204)
    ),
    "cancelled-promised": Scenario(
        prepare: { .cancellation(try Scenario.interrupted($0)) },
        isReported: Scenario.told(204)
    ),
]

@Suite("The table of promises")
struct PromiseTests {
    @Test("every row of the page has a scenario here, and every scenario a row")
    func complete() {
        #expect(PromiseRow.all.count >= 10)
        #expect(Set(PromiseRow.all.map(\.promise)) == Set(scenarios.keys))
        #expect(PromiseRow.all.allSatisfy { ["process", "power"].contains($0.survives) })
    }

    private func make(
        _ scenario: Scenario
    ) throws -> (test: GatewayUnderTest, slow: SlowUpstream) {
        let slow = try SlowUpstream()
        if !scenario.isSlow { slow.gate.open() }
        let test = try GatewayUnderTest(slow.target) { settings, _ in
            settings.interim.progressInterval = .zero
            settings.interim.progressSize = scenario.isSlow ? 1 << 30 : 10
            settings.interim.heartbeat = scenario.isSlow ? .milliseconds(20) : .zero
        }
        return (test, slow)
    }

    private func serve(
        _ exchange: ScriptedExchange,
        of scenario: Scenario,
        _ test: GatewayUnderTest,
        _ slow: SlowUpstream,
        _ isTried: @escaping () -> Bool
    ) throws -> ScriptedExchange.Record {
        guard scenario.isSlow else { return test.serve(exchange) }
        let running = try test.start(exchange)
        try eventually("the promise is tried") {
            scenario.isReported(exchange.record, slow.origin) || isTried()
        }
        slow.gate.open()
        return try running.finish()
    }

    @Test("a promise is reported after the call that makes it true", arguments: PromiseRow.all)
    func order(row: PromiseRow) throws {
        let scenario = try #require(scenarios[row.promise])
        let (test, slow) = try make(scenario)
        let exchange = try scenario.prepare(test)
        let before = Mutex(0)
        test.disk.watch { call, subject in
            if row.isCall(call, subject), !scenario.isReported(exchange.record, slow.origin) {
                before.withLock { $0 += 1 }
            }
        }
        let record = try serve(exchange, of: scenario, test, slow) { false }
        #expect(scenario.isReported(record, slow.origin), "the scenario does not make its promise")
        #expect(before.withLock { $0 } > 0, "the promise was sent before the call")
    }

    @Test(
        "a promise whose call fails is not reported, or is, as the page says",
        arguments: PromiseRow.all
    )
    func failing(row: PromiseRow) throws {
        let scenario = try #require(scenarios[row.promise])
        let (test, slow) = try make(scenario)
        let exchange = try scenario.prepare(test)
        let call = try #require(Disk.Call(rawValue: row.call))
        switch row.promise {
        case "answered", "answered-promised":
            // Before the upstream has the upload, the same call makes another promise.
            test.disk.watch { _, _ in
                guard !slow.origin.requests.isEmpty else { return }
                test.disk.refuse(call, errno: SystemError.lost)
            }
        // Only the record fails; content can be made durable.
        default: test.disk.refuse(call, where: row.isSubject, errno: SystemError.lost)
        }
        let record = try serve(exchange, of: scenario, test, slow) {
            test.disk.count(call, where: row.isSubject) > 0
        }
        #expect(scenario.isReported(record, slow.origin) == (row.ifItFails == "sent"))
        #expect(["sent", "not sent"].contains(row.ifItFails))
    }
}
