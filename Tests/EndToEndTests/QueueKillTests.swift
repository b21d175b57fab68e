// kill -9 in every phase of a delivery by the queue: uploads are delivered or held, a POST is sent once.
//
// `make crash-test ROUNDS=500` runs more rounds; SEED=n starts with round n.

import Foundation
import SpoolgateTestSupport
import Testing

@Suite("kill -9 while the queue delivers")
struct QueueKillTests {
    /// The phases that the upstream detects; a random delay moves the kill between them.
    private static let phases: [Moments.Moment] = [
        .delivering, .deliveringContent, .delivered, .answering, .answered,
    ]

    private struct Accepted {
        var method: String
        var target: String
        var content: Data
        var status: String
    }

    // Long because of its number of crashes, after each of which the queue pauses.
    @Test(
        "a crash of the daemon at any moment loses no accepted upload and sends no POST twice",
        .enabled(if: KillVictim.gateway.isAsked)
    )
    func rounds() throws {
        let seeds = KillPlan.seeds(usually: 15)
        let moments = Moments()
        let upstream = try LoopbackOrigin(passing: moments)
        let sandbox = try Sandbox(
            upstream: upstream.base,
            routeSettings: [
                "reply: accepted", "queue: {minimum-backoff: 1s, maximum-backoff: 1s}",
            ]
        )
        var (delivered, held) = (0, 0)
        for seed in seeds {
            let phase = Self.phases[Int(seed % UInt64(Self.phases.count))]
            let uploads = try run(seed, phase, sandbox, moments)
            for upload in uploads {
                let state = try settledState(of: upload, sandbox)
                let entries = upstream.requests(to: upload.target)
                let whole = entries.count(where: \.isWhole)
                let note: Comment = "round \(seed), killed at \(phase.rawValue): \(upload.target)"
                #expect(entries.allSatisfy { upload.content.starts(with: $0.content) }, note)
                switch (upload.method, state) {
                case (_, "delivered"):
                    #expect(whole >= 1, note)
                    delivered += 1
                case ("POST", "indeterminate"): held += 1
                default: Issue.record("\(state) is no end: \(note)")
                }
                if upload.method == "POST" { #expect(entries.count <= 1, note) }
                // One attempt by each killed daemon and the last.
                #expect(entries.count <= 3, note)
                upstream.forget { $0.target == upload.target }
            }
        }
        #expect(try SpoolInspection(sandbox).faults() == [])
        print(
            "kill -9 of the queue: from seed \(seeds.lowerBound) on, "
                + "\(delivered) delivered, \(held) held"
        )
    }

    /// Sends accepted uploads, and kills the daemon twice at the phase.
    private func run(
        _ seed: UInt64,
        _ phase: Moments.Moment,
        _ sandbox: Sandbox,
        _ moments: Moments
    ) throws -> [Accepted] {
        var generator = SplitMix(seed: seed)
        var uploads: [Accepted] = []
        // It represents the upstream: moments pass only while there is a client.
        moments.begin(clients: 1)
        for number in 0..<4 {
            let isFirst = number == 0
            if isFirst { lookOut(&generator, phase, moments) }
            let method = generator.once(in: 2) ? "PUT" : "POST"
            let target = "/files/\(seed)-\(number)?pace=\(generator.once(in: 2) ? 0 : 500)"
            let content = generator.content(Int.random(in: 131_072...600_000, using: &generator))
            let answer = try sandbox.ask(method, target, ["Upload-Complete: ?1"], content: content)
            #expect(answer.status == 202)
            let link = try #require(answer["link"])
            uploads.append(
                Accepted(
                    method: method,
                    target: target,
                    content: content,
                    status: String(link.drop(upTo: "/files/").prefix { $0 != ">" })
                )
            )
        }
        for kill in 0..<2 {
            if kill == 1 { lookOut(&generator, phase, moments) }
            // All may be delivered before the second moment.
            if kill == 0 { #expect(moments.waitForIt()) } else { usleep(20_000) }
            usleep(UInt32.random(in: 0...3_000, using: &generator))
            sandbox.kill()
            moments.goOn()
            try sandbox.startAgain()
        }
        moments.clientEnded()
        return uploads
    }

    private func lookOut(
        _ generator: inout SplitMix,
        _ phase: Moments.Moment,
        _ moments: Moments
    ) {
        let ordinal = phase == .deliveringContent ? Int.random(in: 1...4, using: &generator) : 1
        moments.lookOut(for: phase, ordinal: ordinal, holds: generator.once(in: 2))
    }

    /// The upload's final state.
    private func settledState(of upload: Accepted, _ sandbox: Sandbox) throws -> String {
        try eventually("\(upload.target) has an end; log: \(sandbox.log.suffix(2_000))") {
            let told = try sandbox.ask("GET", upload.status)
            let object = try JSONSerialization.jsonObject(with: told.content) as? [String: Any]
            guard let state = object?["state"] as? String else { return nil }
            return ["deferred", "delivering"].contains(state) ? nil : state
        }
    }
}
