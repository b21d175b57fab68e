// kill -9 of the daemon or nginx's workers while nginx writes content to the spool.
//
// `make crash-test SUITE=LaneKillTests VICTIM=worker ROUNDS=500` runs more rounds; SEED=n starts with round n.

import Foundation
import SpoolgateTestSupport
import Testing

@Suite("kill -9 while nginx writes to the spool")
struct LaneKillTests {
    // Long because of its number of rounds, each with its own crash.
    @Test(
        "a crash of the gateway or of nginx's worker during nginx's write breaks no promise",
        arguments: KillVictim.asked
    )
    func rounds(victim: KillVictim) throws {
        let seeds = KillPlan.seeds(usually: 3)
        let tally = try KillWorld.play(
            seeds,
            NginxConfiguration.hasLane ? [] : ["spool-receive: on"],
            again: "make crash-test SUITE=LaneKillTests VICTIM=\(victim.rawValue)"
        ) { KillPlan(seed: $0, during: victim) }
        print(
            "kill -9 of the \(victim.rawValue) while nginx writes: from seed \(seeds.lowerBound) on, "
                + tally.text
        )
        #expect(
            tally.roundsWithFile * 2 >= tally.rounds,
            "nginx had no file of the spool open in most rounds, so the test proves nothing"
        )
    }
}
