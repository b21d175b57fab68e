// kill -9 of the daemon at random moments of several uploads, round after round.
//
// `make crash-test ROUNDS=500` runs more of them; SEED=n begins with round n, so that with ROUNDS=1 it
// runs that round alone.

import Foundation
import TestSupport
import Testing

@Suite("kill -9 at any moment")
struct KillTests {
    @Test("no promise is broken, whenever the daemon dies")
    func rounds() throws {
        let environment = ProcessInfo.processInfo.environment
        let count = environment["SPOOLGATE_CRASH_ROUNDS"].flatMap { Int($0) } ?? 18
        let first =
            environment["SPOOLGATE_CRASH_SEED"].flatMap { UInt64($0) }
            ?? UInt64.random(in: 0...999_999)
        let world = try KillWorld()
        for seed in first..<first + UInt64(count) {
            let plan = KillPlan(seed: seed)
            let faults: [String]
            do { faults = try world.run(plan) } catch { faults = ["\(error)"] }
            guard !faults.isEmpty else { continue }
            Issue.record(
                """
                round \(seed): \(faults.joined(separator: "\n  "))
                kills: \(plan.kills)
                again: make crash-test ROUNDS=1 SEED=\(seed)
                \(world.sandbox.log.suffix(4_000))
                """
            )
            // What is wrong in the spool would be wrong in every round from here on.
            break
        }
        print("kill -9: from seed \(first) on, \(world.tally.text)")
    }
}
