// Runs worlds: a fixed set of seeds as a test, or as many as the environment asks for.

import Foundation
import SpoolgatePosix
import Testing

@Suite("The simulation")
struct SimulationTests {
    private static let environment = ProcessInfo.processInfo.environment

    private static func number(_ name: String) -> UInt64? {
        environment["SIMULATION_\(name)"].flatMap { UInt64($0) }
    }

    @Test("no world breaks a promise")
    func worlds() throws {
        // nginx and its threads are there before the first world.
        let web = WebServer.shared
        defer { web?.stop() }
        if let seed = Self.number("SEED") { return try replay(seed) }
        let end = Deadline.after(.seconds(Int64(Self.number("SECONDS") ?? 15)))
        let first = Self.number("FIRST") ?? 1
        // As a test, a fixed set.
        let count = Self.number("SECONDS") == nil ? 100 : UInt64.max - first
        var seed = first
        while !end.hasPassed, seed < first + count {
            let isClean = try check(Plan(seed: seed))
            seed += 1
            if !isClean, Self.number("FIND") != nil { return }
        }
        print("simulation: \(seed - first) worlds, seeds \(first) to \(seed - 1)")
    }

    /// Returns whether no law was broken.
    private func check(_ plan: Plan) throws -> Bool {
        let outcome = try Outcome.run(plan)
        guard let complaint = outcome.complaints.first else { return true }
        print("simulation: seed \(plan.seed) breaks \(complaint)")
        let shrunk = Self.number("FIND") == nil ? try outcome.shrunk() : outcome
        Issue.record("\(shrunk.text)")
        return false
    }

    private func replay(_ seed: UInt64) throws {
        var plan = Plan(seed: seed)
        if let text = Self.environment["SIMULATION_KEEP"] {
            plan = plan.keeping(text.split(separator: ",").compactMap { Int($0) })
        }
        let outcome = try Outcome.run(plan)
        print(outcome.text)
        #expect(outcome.complaints.isEmpty)
    }
}
