// Scenarios of uploads that are queued, requeued, refused by the gateway, or verified first.
//
// The queue's steps run one by one without its threads, so that every run makes the same calls.

import HTTPTypes
@testable import SpoolgateDelivery
import SpoolgatePosix
import SpoolgateUploadProtocol

@testable import SpoolgateRequests
@testable import SpoolgateSettings
@testable import SpoolgateSpool

extension Scenario {
    private static let accepted: @Sendable (inout Settings) -> Void = {
        $0.routes[RouteSettings.defaultName]?.reply = .accepted
    }

    static let queued: [Scenario] = accepting + operating + refusing + verifying

    // MARK: The queue

    private static let accepting =
        each("accepted", accepted) { world, method in
            let client = world.client(method)
            try client.create(on: world.daemon)
            try world.runQueue(client)
        }
        + each("accepted in parts", accepted) { world, method in
            let client = world.client(method)
            guard try client.create(upTo: first, complete: false, on: world.daemon) == 201
            else { throw Stopped() }
            try client.append(from: first, on: world.daemon)
            try client.append(from: client.length, on: world.daemon)
            try world.runQueue(client)
        }
        + each("accepted, not reached", accepted) { world, method in
            let client = world.client(method)
            world.origin.setReachable(false)
            try client.create(on: world.daemon)
            try world.runQueue(client)
            world.origin.setReachable(true)
            try world.runQueue(client)
        }
        + each("accepted, no answer", accepted) { world, method in
            let client = world.client(method, response: .silent)
            try client.create(on: world.daemon)
            try world.runQueue(client)
        }
        + each("accepted, refused", accepted) { world, method in
            let client = world.client(method, response: .refusing)
            try client.create(on: world.daemon)
            try world.runQueue(client)
        }

    // MARK: The operator

    private static let operating =
        [
            Scenario(name: "no answer, queued again") { world in
                let client = world.client(.post, response: .silent)
                try client.create(on: world.daemon)
                try world.requeue(client)
                try world.runQueue(client)
            },
            Scenario(name: "no answer after a promise, queued again") { world in
                let client = world.client(.post, response: .silent)
                try client.create(upTo: first, complete: false, on: world.daemon)
                try client.append(from: first, on: world.daemon)
                try world.requeue(client)
                try world.runQueue(client)
            },
        ]
        + [
            Scenario(name: "refused, queued again", adjust: accepted) { world in
                let client = world.client(.post, response: .refusing)
                try client.create(on: world.daemon)
                try world.runQueue(client)
                try world.requeue(client)
                try world.runQueue(client)
            }
        ]
        + each("held and released", accepted) { world, method in
            let client = world.client(method)
            world.origin.setReachable(false)
            try client.create(on: world.daemon)
            try world.use(client) { upload in
                guard upload.state.phase == .deferred else { throw Stopped() }
                client.isHeldByOperator = true
                try upload.hold(.held, reason: "wait")
            }
            world.origin.setReachable(true)
            try world.requeue(client)
            try world.runQueue(client)
        }

    // MARK: The gateway's own refusal

    private static let refusing = [
        Scenario(name: "refused by the gateway at once") { world in
            let client = world.client(.put)
            try client.create(upTo: client.length, complete: false, on: world.daemon)
            try world.refuse(client)
        },
        Scenario(name: "refused by the gateway, waiting") { world in
            let client = world.client(.post)
            world.origin.setReachable(false)
            try client.create(on: world.daemon)
            try world.refuse(client)
        },
        Scenario(name: "refused by the gateway, unpromised") { world in
            let client = world.client(.post)
            try client.create(upTo: client.length, ends: .cut, on: world.daemon)
            try world.refuse(client)
        },
    ]

    // MARK: Verification

    private static let verifying = [
        Scenario(name: "verified") { world in
            try message(world, world.client(.post)) { upload, client in
                try upload.append(Array(client.content[first..<second]).span.bytes)
                try upload.verify()
            }
        },
        Scenario(name: "not what its digest says") { world in
            try message(world, world.client(.post)) { upload, _ in
                try upload.append([UInt8](repeating: 0, count: 500).span.bytes)
                try upload.discardUnverified()
            }
        },
        Scenario(name: "cut before it was verified") { world in
            try message(world, world.client(.post)) { upload, _ in
                try upload.append([UInt8](repeating: 0, count: 500).span.bytes)
                upload.unlock()
            }
        },
    ]

    /// Finishes an upload with content that must be verified.
    private static func message(
        _ world: World,
        _ client: UploadClient,
        _ body: (Upload, UploadClient) throws -> Void
    ) throws {
        try client.create(upTo: first, complete: false, on: world.daemon)
        try world.use(client) { upload in
            guard upload.state.offset == first else { throw Stopped() }
            try upload.beginUnverified()
            try body(upload, client)
            guard upload.dataFile != nil else { return }
            try upload.sync()
            if !world.machine.isDead(world.daemon.process) {
                client.noteTold(upload.durableOffset)
            }
        }
        try client.append(from: client.retrieve(on: world.daemon), on: world.daemon)
    }
}

extension World {
    func use(_ client: UploadClient, _ body: (Upload) throws -> Void) throws {
        guard let id = client.identity.flatMap({ UploadID($0) }),
            let upload = try daemon.spool.tryLock(id)
        else { throw Stopped() }
        defer { upload.unlock() }
        try body(upload)
        if machine.isDead(daemon.process) { throw Stopped() }
    }

    /// Refuses a complete upload without an attempt; its client requests the response.
    func refuse(_ client: UploadClient) throws {
        try use(client) { upload in
            guard [.receiving, .deferred].contains(upload.state.phase),
                upload.state.offset == client.length
            else { throw Stopped() }
            try upload.finish(with: UploadClient.refusal)
        }
        origin.setReachable(true)
        try client.append(from: client.length, on: daemon)
    }

    /// Makes the queue's attempt that an upload waits for, due or not.
    func runQueue(_ client: UploadClient) throws {
        guard let id = client.identity.flatMap({ UploadID($0) }) else { throw Stopped() }
        try runQueue(id)
    }

    func runQueue() throws {
        var all: [UploadID] = []
        try daemon.spool.forEachUpload { all.append($0.id) }
        // After a power failure, locking an upload without a promise removes it.
        for id in all where try daemon.spool.tryLock(id) != nil { try runQueue(id) }
    }

    func runQueue(_ id: UploadID) throws {
        let daemon = daemon
        guard let upload = try daemon.spool.tryLock(id) else { throw Stopped() }
        defer { upload.unlock() }
        guard upload.state.phase == .deferred, let next = upload.nextAttempt else { return }
        // Only a power failure removes names, until the walk restores them.
        let name = QueueName(next, id).text
        if !mayHaveLost, try daemon.spool.layout.queue.status(of: name) == nil {
            complain("\(id) waits for the queue without a name in it")
        }
        guard let delivery = daemon.gateway.deliveries.delivery(of: upload) else { throw Stopped() }
        try delivery.deliverQueued(upload)
        if machine.isDead(daemon.process) { throw Stopped() }
    }

    func requeue(_ client: UploadClient) throws {
        try command(client) { upload in
            guard ![.delivered, .receiving].contains(upload.state.phase) else { throw Stopped() }
            client.requeues += 1
            try upload.requeue(at: .now)
        }
        client.isHeldByOperator = false
        client.attemptsBeforeRequeue = client.identity.map { machine.attempts(of: $0) }
    }

    func hold(_ client: UploadClient) throws {
        try command(client) { upload in
            guard upload.state.phase == .deferred else { throw Stopped() }
            client.isHeldByOperator = true
            try upload.hold(.held, reason: "wait")
        }
    }

    /// Runs in a separate process, as commands do.
    private func command(_ client: UploadClient, _ body: (Upload) throws -> Void) throws {
        guard let id = client.identity.flatMap({ UploadID($0) }) else { throw Stopped() }
        let process = machine.start()
        let spool = try openSpool(as: process)
        guard let upload = try spool.tryLock(id) else { throw Stopped() }
        defer { upload.unlock() }
        try body(upload)
        if machine.isDead(process) { throw Stopped() }
    }

    /// Checks that a queue run finds an upload despite changes of the clock.
    func expectDue(_ client: UploadClient) throws {
        let scope = RunScope(settings, at: daemon.spool.clock.now, looksFar: true)
        var isFound = false
        try daemon.spool.forEachWaiting {
            $1.map(scope.contains) ?? false
        } _: {
            isFound = isFound || $0.id.description == client.identity
        }
        // By the wrong clock, the upload may have expired and be on hold.
        let queue = client.identity.flatMap { UploadID($0) }.flatMap {
            try? daemon.spool.look(at: $0)?.queue
        }
        if !isFound, queue == .deferred {
            complain("no queue run finds the upload after a wrong clock")
        }
    }
}
