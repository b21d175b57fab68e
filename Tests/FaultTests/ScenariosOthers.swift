// All other scenarios.

import HTTPTypes
import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import SpoolgateUpstream

@testable import SpoolgateRequests
@testable import SpoolgateSettings
@testable import SpoolgateSpool

extension Scenario {
    static let others =
        making + dropping + ordinary + full + clocks + commands + daemons + responses + promising

    private static func route(
        _ change: @escaping @Sendable (inout RouteSettings) -> Void
    ) -> @Sendable (inout Settings) -> Void {
        { settings in
            var route = settings.routes[RouteSettings.defaultName] ?? RouteSettings()
            change(&route)
            settings.routes[RouteSettings.defaultName] = route
        }
    }

    private static let accepted = route { $0.reply = .accepted }
    /// The world replaces the path with its own directory.
    private static let drops = route {
        $0.upstream = UpstreamSettings(targets: [.directory(path: "/")])
    }
    private static let process = route { $0.promise = .process }

    // MARK: The spool and its upstream

    private static let making = [Scenario(name: "a spool from nothing") { try $0.makeFresh() }]

    private static let dropping =
        each("dropped", drops) { world, method in
            try world.client(method).create(on: world.daemon)
        }
        + each("dropped in parts", drops) { world, method in
            let client = world.client(method)
            try client.create(upTo: first, complete: false, on: world.daemon)
            try client.append(from: first, on: world.daemon)
            try client.append(from: client.length, on: world.daemon)
        }

    // MARK: Clients of all kinds

    private static let ordinary =
        each("ordinary, accepted", accepted) { world, method in
            try world.client(method).send(on: world.daemon)
            try world.runQueue()
        }
        + [
            Scenario(name: "ordinary, long") { world in
                let client = world.client(.post)
                client.sendMore()
                try client.send(on: world.daemon)
            },
            Scenario(name: "long") { world in
                let client = world.client(.post)
                client.sendMore()
                try client.create(on: world.daemon)
            },
        ]

    private static let full = [
        Scenario(name: "over the quota", adjust: { $0.spoolQuota = 18_500 }) { world in
            let (one, other, late) = (world.client(), world.client(.post), world.client(.post))
            for (client, end) in [(one, first), (other, second)] {
                let status = try client.create(upTo: end, complete: false, on: world.daemon)
                guard status == 201 else { throw Stopped() }
            }
            if try late.create(on: world.daemon) < 400 { world.complain("the quota was exceeded") }
            try one.cancel(on: world.daemon)
            try late.create(on: world.daemon)
            try other.append(from: second, on: world.daemon)
        }
    ]

    // MARK: The clock

    private static let clocks = [6, -6].map { days in
        Scenario(name: "the clock \(days) days off", adjust: accepted) { world in
            let client = world.client(.post)
            world.origin.setReachable(false)
            world.machine.setClock(wrongBy: Int64(days) * 86_400)
            try client.create(on: world.daemon)
            try world.runQueue(client)
            world.machine.setClock(wrongBy: 0)
            world.origin.setReachable(true)
            guard client.isAccepted else { throw Stopped() }
            try world.expectDue(client)
            try world.runQueue(client)
        }
    }

    // MARK: Several processes

    private static let commands =
        each("held and released by commands", accepted) { world, method in
            let client = world.client(method)
            world.origin.setReachable(false)
            try client.create(on: world.daemon)
            try world.hold(client)
            world.origin.setReachable(true)
            try world.requeue(client)
            try world.runQueue(client)
        }
        + [
            Scenario(name: "purged while it waits", adjust: accepted) { world in
                let client = world.client()
                world.origin.setReachable(false)
                try client.create(on: world.daemon)
                client.isGivenUp = true
                try world.purge()
                try client.serve(client.exchange(.retrieval, on: world.daemon), by: world.daemon)
            }
        ]

    private static let daemons = each("two daemons, one dies") { world, method in
        let old = world.daemon
        let (one, other) = (world.client(method), world.client(method))
        try one.create(upTo: first, complete: false, on: old)
        let new = try world.startDaemon()
        try world.walk(by: new)
        try one.append(from: first, upTo: second, complete: false, on: old)
        try other.create(upTo: first, complete: false, on: new)
        guard let id = one.identity.flatMap({ UploadID($0) }),
            let upload = try old.spool.tryLock(id)
        else { throw Stopped() }
        // The lock ends with the process.
        defer { upload.unlock() }
        guard upload.state.offset == second else { throw Stopped() }
        try upload.append(Array(one.content[second...]).span.bytes)
        try upload.beginAttempt()
        world.kill(old)
        upload.unlock()
        try world.walk(by: new)
        try other.append(from: first, on: new)
        try one.append(from: one.length, on: new)
    }

    // MARK: Responses that are not final

    private static let responses: [Scenario] = [
        ("redirected", .redirecting), ("refused credentials", .unauthorized),
        ("unavailable", .unavailable),
    ].flatMap { (name: String, response: Origin.Answer) in
        each(name, { _ in }) { world, method in
            let client = world.client(method, response: response)
            try client.create(upTo: first, complete: false, on: world.daemon)
            try client.append(from: first, on: world.daemon)
            if !client.hasFinal, !client.isHeld {
                try client.append(from: client.length, on: world.daemon)
            }
        }
    }

    // MARK: Promises

    private static let promising =
        each("promised until a power cut", process) { world, method in
            let client = world.client(method)
            try client.create(upTo: first, complete: false, on: world.daemon)
            try client.append(from: first, upTo: second, ends: .cut, on: world.daemon)
            try client.append(from: client.retrieve(on: world.daemon), on: world.daemon)
        }
        + each("promised until a power cut, no answer", process) { world, method in
            let client = world.client(method, response: .silent)
            try client.create(upTo: first, complete: false, on: world.daemon)
            try client.append(from: first, on: world.daemon)
            if method == .put { try client.append(from: client.length, on: world.daemon) }
        }
        + each("promised until a power cut, stopped cleanly", process) { world, method in
            let client = world.client(method)
            try client.create(upTo: first, complete: false, on: world.daemon)
            try client.append(from: first, upTo: second, ends: .cut, on: world.daemon)
            try client.retrieve(on: world.daemon)
            client.isKeptByStop = try world.stopCleanly()
            try world.cutPower(PowerCut(content: .lost, names: .undone, order: .apart))
            client.isKeptByStop = false
            let new = try world.startDaemon()
            try world.walk(by: new)
            try client.append(from: client.retrieve(on: new), on: new)
        }
}

extension World {
    /// Ends the daemon as SIGTERM does; returns whether it made all uploads durable.
    fileprivate func stopCleanly() throws -> Bool {
        let isDurable = (try? daemon.spool.makeAllDurable()) != nil
        if machine.isDead(daemon.process) { throw Stopped() }
        daemon.spool.leave()
        return isDurable
    }
}
