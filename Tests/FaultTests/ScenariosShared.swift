// Several hosts share the spool, each daemon a node of its own.
//
// When a node dies, the others see its uploads as after a power failure: data that is not durable is lost, even if the
// kernel still has it. Invariant: as in `Fence`, a disk error ends the daemon.

import Foundation
import SpoolgatePosix
import SpoolgateUploadProtocol

@testable import SpoolgateRequests
@testable import SpoolgateSettings
@testable import SpoolgateSpool

extension Scenario {
    /// Scenarios that acknowledge, deliver or join, or continue with another daemon.
    private static let again = [
        "whole POST", "cut while created PUT", "in parts POST", "verified in parts PUT",
        "no answer after a promise POST", "no answer after a promise PUT",
        "accepted, not reached POST",
        "held and released PUT", "restart, the old one dies", "joined",
    ]

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

    /// Another node continues with its own client and the queued upload of the first node's.
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
