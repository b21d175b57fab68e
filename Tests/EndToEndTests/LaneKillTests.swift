// kill -9 of the daemon, or of nginx's workers, while nginx writes content into the spool.
//
// `make crash-test SUITE=LaneKillTests VICTIM=worker ROUNDS=500` runs more rounds; SEED=n begins with round n.

import Foundation
import SpoolgateTestSupport
import Testing

@Suite("kill -9 while nginx writes into the spool")
struct LaneKillTests {
    @Test(
        "no promise is broken if the gateway, or nginx's worker, dies during a write of nginx",
        arguments: KillVictim.asked
    )
    func rounds(victim: KillVictim) throws {
        let settings = NginxConfiguration.hasLane ? [] : ["spool-receive: on"]
        var world = try KillWorld(settings)
        let seeds = KillPlan.seeds(usually: 3)
        for seed in seeds {
            if world.tally.rounds > 0, world.tally.rounds.isMultiple(of: KillWorld.rounds) {
                world = try KillWorld(settings, after: world.tally)
            }
            let plan = KillPlan(seed: seed, during: victim)
            let faults: [String]
            do { faults = try world.run(plan) } catch { faults = ["\(error)"] }
            guard !faults.isEmpty else { continue }
            Issue.record(
                """
                round \(seed): \(faults.joined(separator: "\n  "))
                kills: \(plan.kills)
                again: make crash-test SUITE=LaneKillTests VICTIM=\(victim.rawValue) ROUNDS=1 SEED=\(seed)
                \(world.sandbox.log.suffix(4_000))
                """
            )
            // A fault in the spool would be found in each of the next rounds, too.
            break
        }
        print(
            "kill -9 of the \(victim.rawValue) while nginx writes: from seed \(seeds.lowerBound) on, "
                + world.tally.text
        )
        #expect(
            world.tally.roundsWithFile * 2 >= world.tally.rounds,
            "nginx had no file of the spool in most rounds, and the test shows nothing"
        )
    }
}
