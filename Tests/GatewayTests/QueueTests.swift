// The delivery queue: the uploads it delivers or leaves to clients, and its retries.

import Foundation
import HTTPTypes
import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Synchronization
import Testing

@testable import SpoolgateDelivery
@testable import SpoolgateJournal
@testable import SpoolgateRequests
@testable import SpoolgateSettings
@testable import SpoolgateSpool

@Suite struct QueueTests {
    // MARK: Uploads of the queue

    @Test("an upload whose client left before the result is tried until it is delivered")
    func clientGone() throws {
        let exchange = ScriptedExchange.creation(method: .put)
        let origin = try QueueScene.origin(
            [.breaksOff, .breaksOff],
            afterEach: { exchange.abandon() }
        )
        let test = try QueueScene.gateway(origin.target)
        let location = try #require(test.serve(exchange).location)
        let waiting = try test.summary(location)
        #expect(waiting.queue == .deferred)
        #expect(waiting.nextAttempt != nil)
        #expect(waiting.attempts == 1)
        try test.gateway.deliveries.startQueue()
        try test.waitUntil(location, isIn: .delivered)
        #expect(origin.requests.map(\.content) == Array(repeating: Array("hello".utf8), count: 3))
        let replay = test.serve(.append(location, at: 5))
        #expect(replay.status == 201)
        #expect(replay.text == "ok")
        #expect(origin.requests.count == 3)
    }

    @Test("a queue run returns to an upload that another process had locked, and tries it")
    func lockedDuringWalk() throws {
        let origin = try QueueScene.origin([])
        let test = try QueueScene.gateway(origin.target) { settings, route in
            route.reply = .accepted
            settings.queueRunInterval = .seconds(1)
        }
        let location = try #require(test.serve(.creation()).location)
        let id = try test.id(location)
        // As after a power failure on btrfs: the record exists without its queue name.
        let spool = test.gateway.spool
        for name in try spool.layout.queue.names() where name.hasSuffix("\(id)") {
            unlink(spool.layout.queue.path(of: name))
        }
        // An older program repairs less.
        let other = try Spool(existing: spool.directory)
        let files = try #require(try other.openUnused(id))
        try test.gateway.deliveries.startQueue()
        try eventually("the walk has ended") { test.log.messages.contains("spool recovered") }
        #expect(try spool.layout.queue.names().isEmpty)
        files.close()
        try test.waitUntil(location, isIn: .delivered)
        #expect(origin.requests.count == 1)
    }

    @Test("a record that a crashed host may still have written is not left for a minute")
    func unsettledDuringWalk() throws {
        let test = try GatewayUnderTest(sharedNode: "n1") { settings, _ in
            settings.queueRunInterval = .seconds(3600)
        }
        let name = FileName(UploadID(high: 1, low: 1))
        let directory = test.spool.layout.directory(of: name)
        _ = try Disk().create(name.record, in: directory)
        try test.gateway.deliveries.startQueue()
        try eventually("the walk has ended") { test.log.messages.contains("spool recovered") }
        #expect(try directory.status(of: name.record) != nil)
        try eventually("the record is removed", seconds: 40) {
            try directory.status(of: name.record) == nil
        }
    }

    @Test(
        "an upload requeued during an attempt is attempted again, however long it was deferred"
    )
    func askedMeanwhile() throws {
        let deliveries = try GatewayUnderTest().gateway.deliveries
        let (queue, clock) = (DeliveryQueue(), deliveries.clock)
        let bounds = deliveries.current.bounds
        let (one, other) = (UploadID(high: 1, low: 1), UploadID(high: 2, low: 2))
        func take() -> UploadID? { queue.take(bounds, clock: clock)?.id }
        queue.add(DueHeap.Entry(due: clock.now, id: one, route: "a", client: .some))
        #expect(take() == one)
        queue.add(DueHeap.Entry(due: clock.now, id: one, route: "a", client: .some))
        queue.finish(one, route: "a", next: WallTime(seconds: clock.now.seconds + 3_600))
        #expect(take() == one)
        // Without another request, the other follows, then none.
        queue.finish(one, route: "a", next: nil)
        queue.add(DueHeap.Entry(due: clock.now, id: other, route: "a", client: .some))
        #expect(take() == other)
        queue.finish(other, route: "a", next: nil)
        #expect(take() == nil)
    }

    @Test("a due queue run blocks no other work")
    func workFirst() throws {
        let deliveries = try GatewayUnderTest().gateway.deliveries
        let (queue, clock) = (DeliveryQueue(), deliveries.clock)
        let bounds = deliveries.current.bounds
        func step() -> DeliveryQueue.Step {
            queue.nextStep(nextRun: .after(.zero), bounds: bounds, clock: clock)
        }
        #expect(step() == .run)
        queue.add(
            DueHeap.Entry(due: clock.now, id: UploadID(high: 1, low: 1), route: "a", client: .some)
        )
        #expect(step() == .startThread)
        #expect(queue.take(bounds, clock: clock) != nil)
        #expect(step() == .run)
    }

    @Test(
        "a long queue keeps the earliest of each route in memory; the others follow once there is room"
    )
    func bounded() throws {
        let deliveries = try GatewayUnderTest().gateway.deliveries
        let (queue, clock) = (DeliveryQueue(maximum: 4), deliveries.clock)
        let bounds = deliveries.current.bounds
        let start = clock.now.seconds - 1_000
        var due = DueUploads(maximum: 4)
        // In any order, as names are read.
        for low in (0..<100).map({ UInt64($0 * 37 % 100) }) {
            let time = WallTime(seconds: start + Int64(low))
            due.add(
                DueHeap.Entry(
                    due: time,
                    id: UploadID(high: 1, low: low),
                    route: "long",
                    client: .some
                )
            )
        }
        due.add(
            DueHeap.Entry(
                due: clock.now,
                id: UploadID(high: 2, low: 0),
                route: "short",
                client: .some
            )
        )
        due.addAll(to: queue)
        // An addition to the full queue waits for a queue run.
        queue.add(
            DueHeap.Entry(
                due: clock.now,
                id: UploadID(high: 3, low: 0),
                route: "long",
                client: .some
            )
        )
        var order: [String: [UploadID]] = [:]
        for _ in 0..<5 {
            let (id, route) = try #require(queue.take(bounds, clock: clock))
            order[route, default: []].append(id)
            queue.finish(id, route: route, next: nil)
        }
        #expect(order["long"] == (0..<4).map { UploadID(high: 1, low: $0) })
        #expect(order["short"] == [UploadID(high: 2, low: 0)])
        #expect(
            queue.nextStep(nextRun: .after(.seconds(600)), bounds: bounds, clock: clock) == .run,
            "no run looks for the uploads that were left out"
        )
    }

    @Test("once the clock has jumped past the horizon, a run finds what is due now")
    func clockJumps() throws {
        let deliveries = try GatewayUnderTest().gateway.deliveries
        let (queue, clock) = (DeliveryQueue(), deliveries.clock)
        let bounds = deliveries.current.bounds
        queue.setHorizon(WallTime(seconds: clock.now.seconds - 1))
        queue.add(
            DueHeap.Entry(due: clock.now, id: UploadID(high: 1, low: 1), route: "a", client: .some)
        )
        #expect(
            queue.nextStep(nextRun: .after(.seconds(600)), bounds: bounds, clock: clock) == .run
        )
    }

    @Test("an upload due long after the next run displaces no due one")
    func beyondHorizon() throws {
        let deliveries = try GatewayUnderTest().gateway.deliveries
        let (queue, clock) = (DeliveryQueue(maximum: 1), deliveries.clock)
        let (far, near) = (UploadID(high: 1, low: 1), UploadID(high: 2, low: 2))
        queue.setHorizon(WallTime(seconds: clock.now.seconds + 60))
        queue.add(
            DueHeap.Entry(
                due: WallTime(seconds: clock.now.seconds + 3_600),
                id: far,
                route: "a",
                client: .some
            )
        )
        queue.add(DueHeap.Entry(due: clock.now, id: near, route: "a", client: .some))
        #expect(queue.take(deliveries.current.bounds, clock: clock)?.id == near)
    }

    @Test("an upload whose client was told of the failed delivery waits for that client")
    func clientTold() throws {
        let path = QueueScene.socketPath()
        defer { unlink(path) }
        let test = try QueueScene.gateway(.unix(path: path)) { settings, _ in
            settings.queueRunInterval = .milliseconds(20)
        }
        let told = test.serve(.creation())
        #expect(told.status == 502)
        let location = try #require(told.location)
        #expect(try test.summary(location).nextAttempt == nil)
        let origin = try QueueScene.origin([], socketPath: path)
        try test.gateway.deliveries.startQueue()
        // Another upload's delivery shows that runs continue without this one.
        let other = test.createPartial("x")
        try test.enqueue(other)
        try test.waitUntil(other, isIn: .delivered)
        #expect(try test.summary(location).queue == .deferred)
        #expect(test.serve(.append(location, at: 5)).status == 201)
        #expect(origin.requests.map(\.content) == [Array("x".utf8), Array("hello".utf8)])
    }

    @Test(
        "a queued upload whose client returns and is told of the failure waits for it"
    )
    func clientBack() throws {
        let path = QueueScene.socketPath()
        defer { unlink(path) }
        let test = try QueueScene.gateway(.unix(path: path))
        let location = test.createPartial()
        try test.enqueue(location)
        let back = test.serve(.append(location, at: 5))
        #expect(back.status == 502)
        #expect(back[.uploadComplete] == "?0")
        #expect(try test.summary(location).nextAttempt == nil)
        #expect(try test.queue(of: location) == .deferred)
    }

    @Test("every attempt of the queue has the credentials of the completing request")
    func credentials() throws {
        let exchange = ScriptedExchange.creation(
            method: .put,
            fields: [.authorization: "Bearer mine"]
        )
        let origin = try QueueScene.origin(
            [.breaksOff, .responses(503)],
            afterEach: { exchange.abandon() }
        )
        let test = try QueueScene.gateway(origin.target) { _, route in
            route.fields.credentials = .completing
        }
        let location = try #require(test.serve(exchange).location)
        try test.gateway.deliveries.startQueue()
        try test.waitUntil(location, isIn: .delivered)
        let sent = origin.requests.flatMap { $0.values("Authorization") }
        #expect(sent == Array(repeating: "Bearer mine", count: 3))
    }

    @Test("a run at start continues another process's uploads, and an attempt it died in")
    func restart() throws {
        let path = QueueScene.socketPath()
        defer { unlink(path) }
        let exchange = ScriptedExchange.creation(method: .put)
        let test = try QueueScene.gateway(.unix(path: path))
        let location: String
        do {
            let first = try QueueScene.origin(
                [.breaksOff],
                socketPath: path,
                afterEach: { exchange.abandon() }
            )
            location = try #require(test.serve(exchange).location)
            #expect(first.requests.count == 1)
        }
        unlink(path)
        let second = try QueueScene.origin([], socketPath: path)
        let heir = try test.another()
        try heir.deliveries.startQueue()
        try test.waitUntil(location, isIn: .delivered)
        #expect(heir.deliveries.stopQueue(until: .after(.seconds(300))) == 0)
        #expect(second.requests.map(\.content) == [Array("hello".utf8)])
    }

    @Test("new settings end the pause of the old ones")
    func reload() throws {
        let origin = try QueueScene.origin([])
        let test = try QueueScene.gateway(origin.target) { settings, _ in
            settings.queueRunInterval = .seconds(3_600)
        }
        func leave() throws -> String {
            let location = test.createPartial("x")
            try test.enqueue(location)
            return location
        }
        let first = try leave()
        try test.gateway.deliveries.startQueue()
        try test.waitUntil(first, isIn: .delivered)
        let second = try leave()
        test.reload()
        try test.waitUntil(second, isIn: .delivered)
    }

    @Test("two daemons on one spool deliver each upload once")
    func twoDaemons() throws {
        let origin = try QueueScene.origin([])
        let test = try QueueScene.gateway(origin.target) { settings, route in
            route.reply = .accepted
            settings.queueRunInterval = .milliseconds(10)
        }
        let other = try test.another()
        try test.gateway.deliveries.startQueue()
        try other.deliveries.startQueue()
        defer { _ = other.deliveries.stopQueue(until: .after(.seconds(10))) }
        for number in 0..<100 {
            let record = test.serve(.creation([.text("upload \(number)")]))
            #expect(record.status == 202)
        }
        try eventually("all delivered") {
            try test.summaries().allSatisfy { $0.queue == .delivered }
        }
        let contents = origin.requests.map { String(decoding: $0.content, as: UTF8.self) }
        #expect(contents.sorted() == (0..<100).map { "upload \($0)" }.sorted())
    }

    // MARK: Retries

    // Long because each row waits for the queue's pauses of whole seconds.
    @Test(
        "a temporary refusal of the upstream is retried if that is safe, or if it processed nothing",
        arguments: [408, 423, 425, 429, 502, 503, 504, 507, 511]
    )
    func deferred(status: Int) throws {
        let isUnprocessed = status == 425 || status == 429
        for (method, isSafe) in [(HTTPRequest.Method.put, true), (.post, isUnprocessed)] {
            let origin = try QueueScene.origin([.responses(status), .responses(status)])
            let test = try QueueScene.gateway(origin.target) { _, route in route.reply = .accepted }
            try test.gateway.deliveries.startQueue()
            let record = test.serve(.creation(method: method))
            let location = try #require(record.location)
            try test.waitUntil(location, isIn: isSafe ? .delivered : .hold)
            #expect(origin.requests.count == (isSafe ? 3 : 1))
        }
    }

    @Test(
        "a waiting client is told that the upstream is busy, and for how long; its next append tries"
    )
    func busyUpstream() throws {
        let origin = try QueueScene.origin([.responses(503, fields: "Retry-After: 77\r\n")])
        let test = try QueueScene.gateway(origin.target)
        let record = test.serve(.creation(method: .put))
        #expect(record.status == 503)
        #expect(record[.uploadComplete] == "?0")
        #expect(record[.retryAfter] == "77")
        let location = try #require(record.location)
        #expect(try test.summary(location).nextAttempt == nil)
        #expect(test.serve(.append(location, at: 5)).status == 201)
        #expect(origin.requests.count == 2)
    }

    @Test("a POST without a response is held, by the queue too, and never sent again")
    func indeterminate() throws {
        let origin = try QueueScene.origin([.breaksOff])
        let test = try QueueScene.gateway(origin.target) { settings, route in
            route.reply = .accepted
            settings.queueRunInterval = .milliseconds(20)
        }
        try test.gateway.deliveries.startQueue()
        let location = try #require(test.serve(.creation()).location)
        try test.waitUntil(location, isIn: .hold)
        #expect(try test.summary(location).holdCause == .indeterminate)
        let other = try #require(test.serve(.creation(["other"])).location)
        try test.waitUntil(other, isIn: .delivered)
        #expect(test.serve(.retrieval(location)).status == 410)
        #expect(origin.requests.map(\.content) == [Array("hello".utf8), Array("other".utf8)])
    }

    @Test("an upload that a reload turned into a POST is sent once, however it was created")
    func madePost() throws {
        let path = QueueScene.socketPath()
        defer { unlink(path) }
        let test = try QueueScene.gateway(.unix(path: path))
        let told = test.serve(.creation(method: .put))
        let location = try #require(told.location)
        #expect(told.status == 502)
        test.reload { $0.routes[RouteSettings.defaultName]?.form = .multipart }
        let origin = try QueueScene.origin([.breaksOff], socketPath: path)
        let broken = test.serve(.append(location, at: 5))
        #expect(broken[.uploadComplete] == "?1", "no retry follows")
        #expect(try test.queue(of: location) == .hold)
        #expect(try test.summary(location).holdCause == .indeterminate)
        #expect(origin.requests.map(\.line) == ["POST /files HTTP/1.1"])
    }

    @Test("an outdated entry in the table ends no upload before its time")
    func staleTable() throws {
        let test = try QueueScene.gateway(.http(base: "http://127.0.0.1:1"))
        let told = test.serve(.creation())
        let location = try #require(told.location)
        try test.withUpload(location) { upload in
            #expect(upload.nextAttempt == nil)
            try #require(test.gateway.deliveries.delivery(of: upload)).deliverQueued(upload)
            #expect(upload.state.phase == .deferred)
        }
    }

    @Test("after its time in the queue an upload has failed, and its content is kept")
    func lifetime() throws {
        let test = try QueueScene.gateway(.http(base: "http://127.0.0.1:1")) { _, route in
            route.queue.lifetime = .zero
        }
        let record = test.serve(.creation())
        #expect(record.status == 502)
        #expect(record[.uploadComplete] == "?1", "no retry follows")
        let location = try #require(record.location)
        let failed = try test.summary(location)
        #expect(failed.holdCause == .failed)
        #expect(failed.offset == 5)
        #expect(failed.reason?.hasPrefix("not delivered within queue.lifetime") == true)
        #expect(test.serve(.retrieval(location)).status == 410)
        #expect(test.serve(.append(location, at: 5)).status == 502)
    }

    @Test("an upload that is in use when due is tried soon after")
    func inUse() throws {
        let origin = try QueueScene.origin([])
        let test = try QueueScene.gateway(origin.target) { settings, route in
            route.reply = .accepted
            route.queue.maximumConcurrent = 1
            settings.queueRunInterval = .seconds(3_600)
        }
        let location = try #require(test.serve(.creation()).location)
        let next = try #require(test.serve(.creation(["x"])).location)
        let holder = try Spool(directory: "\(test.root)/spool")
        let held = try #require(try holder.tryLock(try test.id(location)))
        try test.gateway.deliveries.startQueue()
        // One delivery at a time, so the first upload was found in use.
        try test.waitUntil(next, isIn: .delivered)
        held.unlock()
        try test.waitUntil(location, isIn: .delivered)
        #expect(origin.requests.map(\.content) == [Array("x".utf8), Array("hello".utf8)])
    }

    @Test("a stored response is sent for as long as the route says, and then removed")
    func retention() throws {
        let origin = try QueueScene.origin([])
        let test = try QueueScene.gateway(origin.target) { _, route in
            route.responseRetention = .seconds(3_600)
        }
        let locations = try (0..<3).map { _ in
            try #require(test.serve(.creation()).location)
        }
        try test.age(locations[0], by: 3_500)
        try test.age(locations[1], by: 3_700)
        try test.age(locations[2], by: 3_700)
        #expect(test.serve(.append(locations[0], at: 5)).status == 201)
        #expect(test.serve(.append(locations[1], at: 5)).status == 404)
        try test.gateway.deliveries.startQueue()
        try eventually("the last is removed") {
            try test.summaries().map(\.id) == [try test.id(locations[0])]
        }
        #expect(origin.requests.count == 3)
    }

    // MARK: Limits

    @Test("a route's limit covers its requests and its queue together")
    func routeBound() throws {
        let now = Mutex(0)
        let maximum = Mutex(0)
        let origin = try LoopbackOrigin { connection in
            _ = try connection.receiveRequest()
            let count = now.withLock { count in
                count += 1
                return count
            }
            maximum.withLock { $0 = max($0, count) }
            // If two may run at a time, the first waits for the second.
            try eventually("a second delivery") { maximum.withLock { $0 } >= 2 }
            usleep(1_000)
            now.withLock { $0 -= 1 }
            try connection.send("HTTP/1.1 201 Created\r\nContent-Length: 0\r\n")
            try connection.send("Connection: close\r\n\r\n")
        }
        let test = try QueueScene.gateway(origin.target) { _, route in
            route.reply = .accepted
            route.queue.maximumConcurrent = 2
        }
        for _ in 0..<40 { test.serve(.creation(["x"])) }
        try test.gateway.deliveries.startQueue()
        try eventually("all delivered") {
            try test.summaries().allSatisfy { $0.queue == .delivered }
        }
        #expect(origin.requests.count == 40)
        #expect(maximum.withLock { $0 } == 2)
    }

    @Test("stopping waits for running attempts and begins no other")
    func stopping() throws {
        let slow = try SlowUpstream()
        let test = try QueueScene.gateway(slow.target) { _, route in
            route.reply = .accepted
            route.queue.maximumConcurrent = 1
        }
        try test.gateway.deliveries.startQueue()
        let first = try #require(test.serve(.creation(["1"])).location)
        let second = try #require(test.serve(.creation(["2"])).location)
        try slow.waitForRequest()
        #expect(test.gateway.deliveries.stopQueue(until: .after(.zero)) == 1)
        slow.gate.open()
        #expect(test.gateway.deliveries.stopQueue(until: .after(.seconds(300))) == 0)
        let queues = try [first, second].map { try test.queue(of: $0) }
        #expect(queues.contains(.delivered) && queues.contains(.deferred))
        #expect(slow.origin.requests.count == 1)
    }

    @Test(
        "a run reads uploads due before the next one, and a far one that no setting defers so long"
    )
    func scope() {
        var settings = Settings()
        settings.queueRunInterval = .seconds(60)
        settings.routes = ["a": RouteSettings(), "b": RouteSettings()]
        settings.routes["a"]?.queue.maximumBackoff = .seconds(100)
        settings.routes["b"]?.queue.maximumBackoff = .seconds(200)
        func read(looksFar: Bool) -> [Int64] {
            let scope = RunScope(settings, at: WallTime(seconds: 1_000), looksFar: looksFar)
            return [0, 1_060, 1_061, 1_200, 1_201, 9_999].filter {
                scope.contains(WallTime(seconds: $0))
            }
        }
        #expect(read(looksFar: false) == [0, 1_060])
        #expect(read(looksFar: true) == [0, 1_060, 1_201, 9_999])
    }

    @Test("pauses double up to the maximum, minus a random part of up to half")
    func pauses() {
        var policy = QueuePolicy()
        policy.minimumBackoff = .seconds(10)
        policy.maximumBackoff = .seconds(100)
        for (attempts, whole) in [(0, 10), (1, 10), (2, 20), (4, 80), (5, 100), (200, 100)] {
            for random in [0, 1, 7, UInt64.max] {
                let pause = policy.pause(after: attempts, retryAfter: nil, random: random)
                #expect(pause >= .seconds(whole / 2) && pause <= .seconds(whole))
            }
        }
        #expect(policy.pause(after: 1, retryAfter: 60, random: 0) == .seconds(60))
        #expect(policy.pause(after: 1, retryAfter: 6_000, random: 0) == .seconds(100))
    }
}

extension ClientName {
    fileprivate static let some = ClientName(owner: nil, address: "127.0.0.1")
}
