// The sweep must find every sync that does nothing.
//
// Each case disables one sync and tries power failures until one breaks a promise. If none does, the sync is
// unnecessary or the scenarios have a gap.

import SpoolgateTestSupport
import Testing

@testable import SpoolgateSpool

@Suite("A sync that does nothing", .serialized)
struct LieTests {
    /// One sync, and the scenarios that need it.
    struct Case: Sendable, CustomTestStringConvertible {
        var name: String
        var scenarios: [String]
        var lie: FaultyMachine.Lie

        var testDescription: String { name }
    }

    private static func record(_ queue: Queue, in scenarios: String...) -> Case {
        Case(name: "the record, \(queue)", scenarios: scenarios) { subject, state in
            !subject.hasSuffix(FileName.dataSuffix) && state.contains("state=\(queue.rawValue) ")
        }
    }

    private static func of(
        _ name: String,
        in scenarios: String...,
        lie: @escaping @Sendable (String) -> Bool
    )
        -> Case
    {
        Case(name: name, scenarios: scenarios) { subject, _ in lie(subject) }
    }

    private static let cases = [
        of("content", in: "in parts POST") { $0.hasSuffix(FileName.dataSuffix) },
        of("names", in: "in parts POST") { $0.hasPrefix("spool/uploads/") && $0.utf8.count == 15 },
        of("names that are removed", in: "cancelled") {
            $0.hasPrefix("spool/uploads/") && $0.utf8.count == 15
        },
        record(.incoming, in: "in parts POST"),
        record(.active, in: "no answer after a promise POST"),
        record(.delivered, in: "replay POST", "in parts POST"),
        record(.deferred, in: "accepted POST"),
        record(.hold, in: "no answer after a promise POST", "no answer, queued again"),
        Case(name: "which upload takes a part", scenarios: ["joined"]) { _, state in
            state.contains("state=incoming ") && state.contains(" final=")
        },
        Case(name: "the content of a joined upload", scenarios: ["joined"]) { subject, state in
            subject.hasSuffix(FileName.dataSuffix) && state.contains("state=deferred ")
        },
        Case(name: "that a part is consumed", scenarios: ["joined"]) { _, state in
            state.contains("state=delivered ") && state.contains(" final=")
        },
        of("the directories of a new spool", in: "a spool from nothing") { $0 == "fresh/uploads" },
        of("a new spool", in: "a spool from nothing") { $0 == "fresh" },
        of("the name of a new spool", in: "a spool from nothing") { $0 == "" },
        of("the format of a new spool", in: "a spool from nothing") {
            $0.hasPrefix("fresh/tmp/format")
        },
    ]

    // Long because all power failures at a call are tried until one breaks a promise.
    @Test("is noticed", arguments: Portion.ofThisRun.taken(from: cases, of: 5))
    func noticed(one: Case) throws {
        for scenario in Scenario.all where one.scenarios.contains(scenario.name) {
            let world = try World()
            _ = SweepCase(scenario: scenario, number: 0).run(in: world)
            let count = world.machine.steps.count
            world.machine.setLie(one.lie)
            for number in (1...count + 1).reversed() {
                for cut in PowerCut.corners {
                    for fault in [Fault.cut(cut), .deathThenCut(cut)] {
                        let wrong = SweepCase(scenario: scenario, number: number, fault: fault)
                            .run(in: world)
                        if !wrong.isEmpty { return }
                    }
                }
            }
        }
        Issue.record("without this sync no power failure breaks a promise")
    }
}
