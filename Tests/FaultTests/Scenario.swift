// The scenarios: actions of clients, daemons and other processes.
//
// A scenario throws `Stopped` if a fault made continuing pointless. Invariant: without a fault, it makes the same calls
// on the disk every time.

import Foundation
import HTTPTypes
import SpoolgatePosix
import SpoolgateUploadProtocol

@testable import SpoolgateRequests
@testable import SpoolgateSettings
@testable import SpoolgateSpool

struct Scenario: Sendable, CustomStringConvertible {
    var name: String
    var adjust: @Sendable (inout Settings) -> Void = { _ in }
    var run: @Sendable (World) throws -> Void

    var description: String { name }

    static let all: [Scenario] =
        own + shared(own)

    /// Scenarios of a single host's spool.
    private static let own =
        creations + appends + lanes + deliveries + removals + besides + queued + others + joined

    /// The ends of an upload's parts.
    static let (first, second) = (3000, 7200)

    /// One scenario for uploads that may be delivered twice, one for others.
    static func each(
        _ name: String,
        _ adjust: @escaping @Sendable (inout Settings) -> Void = { _ in },
        _ run: @escaping @Sendable (World, HTTPMethod) throws -> Void
    ) -> [Scenario] {
        [HTTPMethod.put, .post].map { method in
            Scenario(name: "\(name) \(method.rawValue)", adjust: adjust) { try run($0, method) }
        }
    }

    // MARK: Creation

    private static let creations =
        each("whole") { world, method in
            try world.client(method).create(on: world.daemon)
        }
        + each("cut while created") { world, method in
            let client = world.client(method)
            try client.create(upTo: first, ends: .cut, on: world.daemon)
            try client.append(from: client.retrieve(on: world.daemon), on: world.daemon)
        }
        + [
            Scenario(name: "whole, old dialect") { world in
                let client = world.client(.post, version: 6)
                try client.create(upTo: 9000, ends: .cut, announced: 9001, on: world.daemon)
                try client.append(from: client.retrieve(on: world.daemon), on: world.daemon)
            },
            Scenario(
                name: "progress",
                adjust: {
                    $0.interim.progressInterval = .zero
                    $0.interim.progressSize = 1
                }
            ) { world in
                let client = world.client(.post)
                try client.create(upTo: first, ends: .cut, on: world.daemon)
                try client.append(from: first, on: world.daemon)
            },
        ]
        + [false, true].map { hasLane in
            // Each offset becomes durable while the next fragments arrive.
            Scenario(
                name: "progress beside content\(hasLane ? " that the front writes" : "")",
                adjust: {
                    $0.interim.progressInterval = .zero
                    $0.interim.progressSize = 1
                }
            ) { world in
                let client = world.client(.post)
                (client.fragments, client.hasLane) = (6, hasLane)
                try client.create(upTo: second, ends: .cut, on: world.daemon)
                try client.append(from: client.retrieve(on: world.daemon), on: world.daemon)
            }
        }

    // MARK: Appends

    private static let appends =
        each("in parts") { world, method in
            let client = world.client(method)
            guard try client.create(upTo: first, complete: false, on: world.daemon) == 201
            else { throw Stopped() }
            guard
                try client.append(from: first, upTo: second, complete: false, on: world.daemon)
                    == 204
            else { throw Stopped() }
            try client.append(from: second, on: world.daemon)
        }
        + each("verified in parts") { world, method in
            let client = world.client(method)
            client.digests = .right
            guard try client.create(upTo: first, complete: false, on: world.daemon) == 201
            else { throw Stopped() }
            try client.append(from: first, ends: .cut, on: world.daemon)
            try client.append(from: client.retrieve(on: world.daemon), on: world.daemon)
        }
        + each("contradicted by its digest") { world, method in
            let client = world.client(method)
            try client.create(upTo: first, ends: .cut, on: world.daemon)
            client.digests = .wrong
            // Afterwards it resumes with correct digests.
            defer { client.digests = .right }
            let status = try client.append(
                from: client.retrieve(on: world.daemon),
                upTo: second,
                complete: false,
                on: world.daemon
            )
            if status == 204 {
                world.complain("content with a wrong digest was accepted")
            }
            client.digests = .right
            try client.append(from: client.retrieve(on: world.daemon), on: world.daemon)
        }
        + [
            Scenario(name: "length told late") { world in
                let client = world.client()
                try client.create(upTo: first, complete: false, on: world.daemon)
                try client.append(
                    from: first,
                    upTo: second,
                    complete: false,
                    announced: client.length,
                    on: world.daemon
                )
                try client.append(from: client.retrieve(on: world.daemon), on: world.daemon)
            },
            Scenario(name: "wrong offset") { world in
                let client = world.client()
                try client.create(upTo: first, ends: .cut, on: world.daemon)
                try client.append(from: second, on: world.daemon)
                try client.append(from: first, on: world.daemon)
            },
            Scenario(name: "more than its length") { world in
                let client = world.client()
                client.isGivenUp = true
                try client.create(
                    upTo: first,
                    complete: false,
                    announced: second,
                    on: world.daemon
                )
                try client.append(from: first, ends: .cut, on: world.daemon)
            },
            Scenario(name: "pre-empted by HEAD") { world in
                let client = world.client(.post)
                try client.create(upTo: first, ends: .cut, on: world.daemon)
                try preempt(client, world) { try client.retrieve(on: world.daemon) }
            },
            Scenario(name: "pre-empted by PATCH") { world in
                let client = world.client(.post)
                try client.create(upTo: first, complete: false, on: world.daemon)
                // The client does not know its offset.
                try preempt(client, world) {
                    try client.append(from: first, on: world.daemon)
                    return try client.retrieve(on: world.daemon)
                }
            },
        ]

    /// Leaves an append stuck while a newer request arrives.
    private static func preempt(
        _ client: UploadClient,
        _ world: World,
        by newer: () throws -> Int
    ) throws {
        guard client.location != nil else { throw Stopped() }
        let daemon = world.daemon
        let old = client.exchange(
            .append,
            from: first,
            to: second,
            complete: true,
            end: .stuck,
            on: daemon
        )
        try client.start(old, by: daemon)
        guard old.waitUntilStuck() else { return world.complain("an append is not stuck") }
        let offset = Result { try newer() }
        // If the newer request failed before its request for release, the old one is still there.
        if case .failure = offset { old.hangUp() }
        guard old.waitUntilOver() else { return world.complain("an append did not release") }
        try client.note(old, of: daemon)
        try client.append(from: offset.get(), on: daemon)
    }

    // MARK: Content that the web server writes

    private static let lanes =
        each("written by the front") { world, method in
            let client = world.client(method)
            client.hasLane = true
            try client.create(on: world.daemon)
        }
        + each("written by the front, cut") { world, method in
            let client = world.client(method)
            client.hasLane = true
            try client.create(upTo: first, ends: .cut, on: world.daemon)
            try client.append(from: client.retrieve(on: world.daemon), on: world.daemon)
        }
        + each("written by the front in parts") { world, method in
            let client = world.client(method)
            client.hasLane = true
            guard try client.create(upTo: first, complete: false, on: world.daemon) == 201
            else { throw Stopped() }
            client.hasLane = false
            guard
                try client.append(from: first, upTo: second, complete: false, on: world.daemon)
                    == 204
            else { throw Stopped() }
            client.hasLane = true
            try client.append(from: second, on: world.daemon)
        }
        + [
            Scenario(name: "written by the front, old dialect") { world in
                let client = world.client(.post, version: 6)
                client.hasLane = true
                try client.create(upTo: first, ends: .cut, announced: 9001, on: world.daemon)
                try client.append(from: client.retrieve(on: world.daemon), on: world.daemon)
            },
            Scenario(
                name: "written by the front, progress",
                adjust: {
                    $0.interim.progressInterval = .zero
                    $0.interim.progressSize = 1
                }
            ) { world in
                let client = world.client(.post)
                client.hasLane = true
                try client.create(upTo: first, ends: .cut, on: world.daemon)
                try client.append(from: client.retrieve(on: world.daemon), on: world.daemon)
            },
            Scenario(name: "written by the front, pre-empted") { world in
                let client = world.client(.post)
                client.hasLane = true
                try client.create(upTo: first, ends: .cut, on: world.daemon)
                try preempt(client, world) { try client.retrieve(on: world.daemon) }
            },
        ]

    // MARK: Deliveries

    private static let deliveries =
        each("replay") { world, method in
            let client = world.client(method)
            try client.create(on: world.daemon)
            try client.retrieve(on: world.daemon)
            try client.append(from: client.length, on: world.daemon)
        }
        + each("not reached") { world, method in
            let client = world.client(method)
            world.origin.setReachable(false)
            try client.create(on: world.daemon)
            world.origin.setReachable(true)
            try client.append(from: client.retrieve(on: world.daemon), on: world.daemon)
        }
        + each("not reached after a promise") { world, method in
            let client = world.client(method)
            try client.create(upTo: first, complete: false, on: world.daemon)
            world.origin.setReachable(false)
            try client.append(from: first, on: world.daemon)
            try client.append(from: client.length, on: world.daemon)
            world.origin.setReachable(true)
            try client.append(from: client.length, on: world.daemon)
        }
        + each(
            "no slot",
            {
                $0.maximumDeliveries = 0; $0.inUseTimeout = .zero
            }
        ) { world, method in
            let client = world.client(method)
            try client.create(upTo: first, complete: false, on: world.daemon)
            try client.append(from: first, on: world.daemon)
            world.settings.maximumDeliveries = 4
            world.settings.inUseTimeout = .seconds(60)
            world.reload()
            try client.append(from: client.retrieve(on: world.daemon), on: world.daemon)
        }
        + each("no answer") { world, method in
            let client = world.client(method, response: .silent)
            try client.create(on: world.daemon)
            if method == .put { try client.append(from: client.length, on: world.daemon) }
        }
        + each("no answer after a promise") { world, method in
            let client = world.client(method, response: .silent)
            try client.create(upTo: first, complete: false, on: world.daemon)
            try client.append(from: first, on: world.daemon)
            if method == .put { try client.append(from: client.length, on: world.daemon) }
        }
        + each("heartbeat", { $0.interim.heartbeat = .nanoseconds(1) }) { world, method in
            try world.client(method, response: .late).create(on: world.daemon)
        }
        + each("no answer after a heartbeat", { $0.interim.heartbeat = .nanoseconds(1) }) {
            world,
            method in
            let client = world.client(method, response: .lateSilent)
            try client.create(on: world.daemon)
            // An offset sent now must hold although the next attempt has not been made.
            if method == .put { try client.retrieve(on: world.daemon) }
        }
        + [
            Scenario(name: "long response") { world in
                let client = world.client(.post, response: .long)
                try client.create(upTo: first, complete: false, on: world.daemon)
                try client.append(from: first, on: world.daemon)
                try client.append(from: client.length, on: world.daemon)
            },
            Scenario(name: "old dialect asks for what waits") { world in
                let client = world.client(.put, version: 6)
                world.origin.setReachable(false)
                try client.create(on: world.daemon)
                world.origin.setReachable(true)
                try client.retrieve(on: world.daemon)
                try client.append(from: client.length, on: world.daemon)
            },
        ]
}
