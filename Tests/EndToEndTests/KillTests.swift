// kill -9 of the daemon at random moments of several uploads.
//
// `make test` runs fixed rounds; `make crash-test ROUNDS=500` runs more, from a random one or from SEED=n.

import Foundation
import SpoolgateTestSupport
import Testing

@Suite("kill -9 at any moment")
struct KillTests {
    /// A crash breaks neither setting of `promise`, although only one makes data durable.
    // Long because of its number of rounds, each with its own crash.
    @Test(
        "a crash of the daemon at any moment breaks no promise",
        .enabled(if: KillVictim.gateway.isRequested),
        arguments: [("power-cut", 12), ("process", 6)]
    )
    func rounds(promise: String, usually: Int) throws {
        try run(KillPlan.seeds(usually: usually), promise: promise)
    }

    @Test(
        "a crash of nginx's worker at any moment breaks no promise",
        .enabled(if: KillVictim.worker.isRequested)
    )
    func worker() throws {
        try run(KillPlan.seeds(usually: 6), promise: "power-cut", manner: .worker)
    }

    private func run(
        _ seeds: Range<UInt64>,
        promise: String,
        manner: KillManner? = nil
    ) throws {
        let tally = try KillWorld.play(seeds, ["promise: \(promise)"], again: "make crash-test") {
            KillPlan(seed: $0, manner: manner)
        }
        print("kill -9, promise: \(promise): from seed \(seeds.lowerBound) on, \(tally.text)")
    }
}
