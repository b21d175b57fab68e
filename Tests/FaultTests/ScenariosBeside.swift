// Scenarios of removals and of several processes.

import Foundation
import HTTPTypes
import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import Testing

@testable import SpoolgateRequests
@testable import SpoolgateSpool

extension Scenario {
    // MARK: Removal

    static let removals: [Scenario] = [
        Scenario(name: "cancelled") { world in
            let client = world.client()
            try client.create(upTo: first, complete: false, on: world.daemon)
            try client.cancel(on: world.daemon)
        },
        Scenario(name: "cancelled unpromised") { world in
            let client = world.client()
            try client.create(upTo: first, ends: .cut, on: world.daemon)
            try client.cancel(on: world.daemon)
        },
        Scenario(name: "cancelled after the delivery") { world in
            let client = world.client()
            try client.create(upTo: first, complete: false, on: world.daemon)
            try client.append(from: first, on: world.daemon)
            try client.cancel(on: world.daemon)
        },
        Scenario(name: "expired") { world in
            let client = world.client()
            try client.create(upTo: first, complete: false, on: world.daemon)
            try world.age(client)
            client.isGivenUp = true
            try client.serve(client.exchange(.retrieval, on: world.daemon), by: world.daemon)
        },
        Scenario(name: "purged beside the daemon") { world in
            let (old, delivered) = (world.client(), world.client())
            try old.create(upTo: first, complete: false, on: world.daemon)
            try delivered.create(upTo: first, complete: false, on: world.daemon)
            try delivered.append(from: first, on: world.daemon)
            let live = world.client(.post)
            try live.create(upTo: first, complete: false, on: world.daemon)
            let daemon = world.daemon
            let stuck = live.exchange(
                .append,
                from: first,
                to: second,
                complete: false,
                end: .stuck,
                on: daemon
            )
            try live.start(stuck, by: daemon)
            guard stuck.waitUntilStuck() else { return world.complain("an append is not stuck") }
            defer {
                stuck.hangUp()
                if !stuck.waitUntilOver() { world.complain("an append did not end") }
            }
            old.isGivenUp = true
            delivered.isGivenUp = true
            try world.purge(sparing: live)
            stuck.hangUp()
            guard stuck.waitUntilOver() else { return world.complain("an append did not end") }
            try live.note(stuck, of: daemon)
            try live.append(from: live.retrieve(on: daemon), on: daemon)
        },
    ]

    // MARK: Several processes

    static let besides: [Scenario] = [
        Scenario(name: "restart beside an append") { world in
            let client = world.client(.post)
            let old = world.daemon
            try client.create(upTo: first, complete: false, on: old)
            guard client.location != nil else { throw Stopped() }
            let stuck = client.exchange(
                .append,
                from: first,
                to: second,
                complete: false,
                end: .stuck,
                on: old
            )
            try client.start(stuck, by: old)
            guard stuck.waitUntilStuck() else { return world.complain("an append is not stuck") }
            let started = Result {
                let new = try world.startDaemon()
                try world.walk(by: new)
                return new
            }
            stuck.hangUp()
            guard stuck.waitUntilOver() else { return world.complain("an append did not end") }
            try client.note(stuck, of: old)
            let new = try started.get()
            try client.append(from: client.retrieve(on: new), on: new)
        },
        Scenario(name: "restart, the old one dies") { world in
            let client = world.client(.post)
            let old = world.daemon
            try client.create(upTo: first, ends: .cut, on: old)
            try client.retrieve(on: old)
            world.kill(old)
            let new = try world.startDaemon()
            try world.walk(by: new)
            try client.append(from: client.retrieve(on: new), on: new)
        },
        Scenario(name: "recovery of what a power cut left") { world in
            let (part, waiting) = (world.client(.post), world.client(.post))
            try part.create(upTo: first, complete: false, on: world.daemon)
            try part.append(
                from: first,
                upTo: second,
                complete: false,
                ends: .cut,
                on: world.daemon
            )
            world.origin.setReachable(false)
            try waiting.create(on: world.daemon)
            world.origin.setReachable(true)
            let undelivered = world.client()
            try undelivered.create(upTo: first, ends: .cut, on: world.daemon)
            try world.cutPower(PowerCut(content: .kept, names: .kept, order: .journal))
            let new = try world.startDaemon()
            try world.walk(by: new)
            try part.append(from: part.retrieve(on: new), on: new)
            try waiting.append(from: waiting.retrieve(on: new), on: new)
        },
    ]
}

extension World {
    /// Makes an upload look unused for years.
    func age(_ client: UploadClient) throws {
        guard let identity = client.identity else { throw Stopped() }
        let times = [
            timeval(tv_sec: 1_000_000_000, tv_usec: 0), timeval(tv_sec: 1_000_000_000, tv_usec: 0),
        ]
        let record = "\(machine.root)/spool/uploads/\(identity.prefix(1))/\(identity)"
        // The data file may be missing.
        for path in [record, record + ".data"] { _ = utimes(path, times) }
    }

    /// Purges everything in a separate process, as the command does.
    ///
    /// Tries to remove `live` only while it is locked, which must be refused.
    func purge(sparing live: UploadClient? = nil) throws {
        let process = machine.start()
        let spool = try openSpool(as: process)
        var old: [UploadSummary] = []
        try spool.forEachUpload { old.append($0) }
        old.sort { $0.queue.rawValue > $1.queue.rawValue }
        for summary in old where summary.isInUse || summary.id.description != live?.identity {
            let isRemoved = try spool.remove(summary.id, ifUnchangedSince: summary)
            if isRemoved, summary.isInUse { complain("a locked upload was purged") }
        }
        if machine.isDead(process) { throw Stopped() }
    }
}
