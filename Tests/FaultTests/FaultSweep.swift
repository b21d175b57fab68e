// Every scenario with every fault at call 1, 2, 3 … until no further call is reached.
//
// README.md explains SWEEP_ONLY and SWEEP_SEEDS.

import Foundation
import SpoolgatePosix
import SpoolgateTestSupport
import Synchronization
import Testing

@testable import SpoolgateSpool

struct SweepCase: CustomStringConvertible {
    var scenario: Scenario
    var number: Int
    var fault: Fault?

    var description: String { "\(scenario)/\(number)/\(fault.map { "\($0)" } ?? "none")" }

    func run(in world: World) -> [String] {
        // Always: clients and world retain each other, and the world's files.
        defer { world.end() }
        do {
            try world.begin(fault, at: number, scenario.adjust)
            do { try scenario.run(world) } catch is Stopped {} catch is SpoolError {}
            if let cut = fault?.laterCut {
                try world.repair()
                // Clients may return before or after the walk, which runs while requests are served.
                if number % 2 == 0 { try world.walk(by: world.daemon) }
                for client in world.clients where client.location != nil && number % 4 != 2 {
                    do { try client.retrieve(on: world.daemon) } catch is Stopped {}
                }
                for client in world.joiners where number % 4 != 2 {
                    do { try client.ask(world.daemon) } catch is Stopped {}
                }
                try world.cutPower(cut)
            }
            if case .cut(let cut) = fault { try world.cutPower(cut) }
            if case .jumps = fault { world.removeOld() }
            try world.repair()
            if case .jumps = fault { world.removeOld() }
            if number % 2 == 0 {
                if number % 4 == 0 {
                    try world.walkBeside(by: world.daemon)
                } else {
                    try world.walk(by: world.daemon)
                }
                world.checkWalk()
                world.checkSpool()
            }
            try world.checkFresh()
            try world.finish(after: fault)
            try world.walk(by: world.daemon)
            world.checkWalk()
            try world.checkPurge(after: fault)
        } catch { world.complain("\(error)") }
        return world.complaintsSoFar
    }
}

struct Counter: Sendable {
    var scenarios = 0
    var calls = 0
    var faults: Set<String> = []
    var tried: [Disk.Call: Set<String>] = [:]
    var runs = 0
    var failures: [String] = []

    /// Faults never tried at any call of a kind, random power failures aside.
    var gaps: [String] {
        tried.flatMap { call, faults in
            let all = Fault.all(for: call, 0, .whole(seeds: [])).map { "\($0)" }
            return Set(all).subtracting(faults).map { "\(call.rawValue): \($0)" }
        }.sorted()
    }
}

@Suite("The fault sweep")
struct FaultSweep {
    private let environment = ProcessInfo.processInfo.environment
    private static let stops = ProcessInfo.processInfo.environment["SWEEP_STOP"] != nil

    // Long because it is thousands of runs: scenario × call × fault.
    @Test("no fault at any call of any scenario breaks a promise")
    func sweep() throws {
        let tally = Monitor(Counter())
        let waiting = Mutex(Array(Scenario.all.enumerated())[...])
        let working = Monitor(0)
        let only = environment["SWEEP_ONLY"]
        let seeds = seeds(only)
        // Each spool keeps hundreds of directories open.
        var limit = rlimit()
        getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
        limit.rlim_cur = limit.rlim_max
        setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
        let workers = max(2, ProcessInfo.processInfo.activeProcessorCount)
        working.update { $0 = workers }
        for _ in 0..<workers {
            try SpoolgatePosix.Thread.start(name: "sweep", stackSize: 1 << 20) {
                while let (turn, scenario) = waiting.withLock({ $0.popFirst() }) {
                    let effort = seeds.map { Effort.whole(seeds: $0) } ?? .sample(turn: turn)
                    // A failure in a portion can be repeated alone.
                    let portion = seeds == nil ? Portion.ofThisRun : Portion(number: nil)
                    Self.sweep(scenario, effort, portion, only: only, tally)
                }
                working.update { $0 -= 1 }
            }
        }
        let isEnded = working.wait(until: .after(.seconds(24 * 3600))) { $0 == 0 ? true : nil }
        try #require(isEnded == true)
        let total = tally.update { $0 }
        print(
            "\nfault sweep: \(total.scenarios) scenarios, \(total.calls) calls on the disk, "
                + "\(total.faults.count) faults: scenario × call × fault = \(total.runs)"
        )
        for failure in total.failures.prefix(40) { Issue.record("\(failure)") }
        if total.failures.count > 40 { Issue.record("and \(total.failures.count - 40) more") }
        #expect(total.runs > 0)
        if only == nil, !Self.stops, Portion.ofThisRun.number == nil {
            #expect(total.gaps == [], "faults never tried at such a call")
        }
    }

    @Test("each portion has a crash and an error at every call, and all together are the sample")
    func portions() {
        for call in Disk.Call.allCases {
            for number in 1...24 {
                let portions = (0..<8).map { portion in
                    Fault.chosen(for: call, number, .sample(turn: 0), Portion(number: portion))
                        .map { "\($0)" }
                }
                let all = Fault.all(for: call, number, .sample(turn: 0)).map { "\($0)" }
                #expect(Set(portions.joined()) == Set(all))
                #expect(portions.allSatisfy { $0.starts(with: ["fails(EIO)", "death"]) })
            }
        }
    }

    /// nil for a sample.
    private func seeds(_ only: String?) -> [UInt64]? {
        // The name of a power failure ends with its seed.
        if let only, only.hasSuffix(")"),
            let seed = only.dropLast().split(separator: ",").last.flatMap({ UInt64($0) })
        {
            return [seed]
        }
        let count = environment["SWEEP_SEEDS"].flatMap { UInt64($0) } ?? only.map { _ in 0 }
        return count.map { Array(0..<$0) }
    }

    private static func sweep(
        _ scenario: Scenario,
        _ effort: Effort,
        _ portion: Portion,
        only: String?,
        _ tally: Monitor<Counter>
    ) {
        var world: World?
        var calls: [Disk.Call] = []
        func run(_ number: Int, _ fault: Fault?) {
            let one = SweepCase(scenario: scenario, number: number, fault: fault)
            if let only, fault != nil, !one.description.hasPrefix(only) { return }
            if Self.stops, tally.update({ !$0.failures.isEmpty }) { return }
            var failures: [String] = []
            do {
                let place = try world ?? World()
                world = place
                failures = one.run(in: place)
                if fault == nil { calls = place.machine.steps.map(\.call) }
            } catch { failures = ["\(error)"] }
            if only != nil, !failures.isEmpty {
                for (index, step) in (world?.machine.steps ?? []).enumerated() {
                    print("\(one)\t\(index + 1)\t\(step)")
                }
            }
            // The files of a failed run must not affect the next one.
            if !failures.isEmpty { world = nil }
            tally.update { tally in
                tally.runs += 1
                if let fault { tally.faults.insert("\(fault)") }
                tally.failures += failures.map { "SWEEP_ONLY='\(one)': \($0)" }
                // Also at once: a long sweep can be watched.
                for failure in failures {
                    FileHandle.standardError.write(Data("\(one): \(failure)\n".utf8))
                }
            }
        }
        let name = scenario.name
        if let only, !only.hasPrefix(name), !name.hasPrefix(only) { return }
        run(0, nil)
        tally.update { tally in
            tally.scenarios += 1
            tally.calls += calls.count
        }
        for (index, call) in calls.enumerated() {
            let faults = Fault.chosen(for: call, index + 1, effort, portion)
            for fault in faults { run(index + 1, fault) }
            tally.update { $0.tried[call, default: []].formUnion(faults.map { "\($0)" }) }
        }
        for fault in Fault.cuts(calls.count + 1, effort) { run(calls.count + 1, fault) }
    }
}
