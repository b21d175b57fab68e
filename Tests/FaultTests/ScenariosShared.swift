// The scenarios in a spool that several hosts share, where each daemon is a node of its own: those of one host
// again, and those in which another node goes on.
//
// A node's death takes what it did not make durable, so that its uploads are as after a power cut for all others,
// also where the kernel has kept it. Invariant: as in `Fence`, an error of the disk ends the daemon.

import Foundation
import SpoolgatePosix
import SpoolgateUploadProtocol

@testable import SpoolgateRequests
@testable import SpoolgateSettings
@testable import SpoolgateSpool

extension Scenario {
    /// Which of the others are worth it: what is told, sent or joined, and who comes next.
    private static let again = [
        "whole POST", "cut while created PUT", "in parts POST", "verified in parts PUT",
        "no answer after a promise POST", "no answer after a promise PUT",
        "accepted, not reached POST",
        "held and released PUT", "restart, the old one dies", "joined",
    ]

    /// All of them.
    static func shared(_ own: [Scenario]) -> [Scenario] {
        own.filter { again.contains($0.name) }.map { scenario in
            Scenario(
                name: "shared: \(scenario.name)",
                adjust: { settings in
                    scenario.adjust(&settings)
                    settings.sharesSpool = true
                },
                run: scenario.run
            )
        } + takenOver
    }

    /// Another node goes on: with its client, and with what its client left to the queue.
    private static let takenOver: [Scenario] =
        each("shared: the other node goes on", { $0.sharesSpool = true }) { world, method in
            let one = world.daemon
            let client = world.client(method)
            try client.create(upTo: first, ends: .cut, on: one)
            let two = try world.startDaemon()
            try client.append(
                from: client.retrieve(on: two),
                upTo: second,
                complete: false,
                on: two
            )
            try client.append(from: client.retrieve(on: one), on: one)
        }
        + each("shared: the other node dies", { $0.sharesSpool = true }) { world, method in
            let one = world.daemon
            let client = world.client(method)
            let two = try world.startDaemon()
            try client.create(upTo: first, complete: false, on: two)
            try client.append(from: first, upTo: second, ends: .cut, on: two)
            world.kill(two)
            try world.walk(by: one)
            try client.append(from: client.retrieve(on: one), on: one)
        }
}
