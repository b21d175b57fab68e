// The delivery queue: what it takes up, what it leaves to clients, and when it tries again.

@testable import Delivery
import Foundation
import HTTPTypes
import Posix
import Synchronization
import TestSupport
import Testing
import UploadProtocol
import Upstream

@testable import Gateway
@testable import Journal
@testable import Settings
@testable import Spool

@Suite struct QueueTests {
    // MARK: What it takes up

    @Test("an upload whose client left before any verdict is tried again until it is delivered")
    func clientGone() throws {
        let exchange = ScriptedExchange.creation([.text("hello")], complete: true, method: .put)
        let origin = try QueueScene.origin(
            [.breaksOff, .breaksOff],
            afterEach: { exchange.abandon() }
        )
        let test = try QueueScene.gateway(.http(base: origin.base))
        let location = try #require(test.serve(exchange).location)
        let waiting = try test.summary(location)
        #expect(waiting.queue == .deferred)
        #expect(waiting.nextAttempt != nil)
        #expect(waiting.attempts == 1)
        try test.gateway.deliveries.startQueue()
        try test.waitUntil(location, isIn: .delivered)
        #expect(origin.requests.map(\.content) == Array(repeating: Array("hello".utf8), count: 3))
        // Its client comes back, and hears what the upstream said.
        let replay = test.serve(.append(location, at: 5, complete: true))
        #expect(replay.status == 201)
        #expect(replay.text == "ok")
        #expect(origin.requests.count == 3)
    }

    @Test("one whose client was told that it is not delivered waits for that client")
    func clientTold() throws {
        let path = QueueScene.socketPath()
        defer { unlink(path) }
        let test = try QueueScene.gateway(.unix(path: path)) { settings, _ in
            settings.queueRunInterval = .milliseconds(20)
        }
        let told = test.serve(.creation([.text("hello")], complete: true))
        #expect(told.status == 502)
        let location = try #require(told.location)
        #expect(try test.summary(location).nextAttempt == nil)
        let origin = try QueueScene.origin([], socketPath: path)
        try test.gateway.deliveries.startQueue()
        // An upload that is the queue's shows that runs go on and leave the first alone.
        let other = try #require(test.serve(.creation([.text("x")], complete: false)).location)
        let upload = try #require(
            try test.spool.lock(try test.id(other), until: .never, requestRelease: {})
        )
        try upload.postpone(reason: "a test", next: .now)
        upload.unlock()
        try test.waitUntil(other, isIn: .delivered)
        #expect(try test.summary(location).queue == .deferred)
        #expect(test.serve(.append(location, at: 5, complete: true)).status == 201)
        #expect(origin.requests.map(\.content) == [Array("x".utf8), Array("hello".utf8)])
    }

    @Test(
        "one in the queue whose client comes back, and hears that it is not delivered, waits for it"
    )
    func clientBack() throws {
        let path = QueueScene.socketPath()
        defer { unlink(path) }
        let test = try QueueScene.gateway(.unix(path: path))
        let made = test.serve(.creation([.text("hello")], complete: false))
        let location = try #require(made.location)
        let upload = try #require(
            try test.spool.lock(try test.id(location), until: .never, requestRelease: {})
        )
        try upload.postpone(reason: "its client was gone", next: .now)
        upload.unlock()
        let back = test.serve(.append(location, at: 5, complete: true))
        #expect(back.status == 502)
        #expect(back[.uploadComplete] == "?0")
        #expect(try test.summary(location).nextAttempt == nil)
        #expect(try test.queue(of: location) == .deferred)
    }

    @Test("every attempt of the queue has the credentials of the completing request")
    func credentials() throws {
        let exchange = ScriptedExchange.creation(
            [.text("hello")],
            complete: true,
            method: .put,
            fields: [.authorization: "Bearer mine"]
        )
        let origin = try QueueScene.origin(
            [.breaksOff, .answers(503)],
            afterEach: { exchange.abandon() }
        )
        let test = try QueueScene.gateway(.http(base: origin.base)) { _, route in
            route.fields.credentials = .completing
        }
        let location = try #require(test.serve(exchange).location)
        try test.gateway.deliveries.startQueue()
        try test.waitUntil(location, isIn: .delivered)
        let sent = origin.requests.flatMap { $0.values("Authorization") }
        #expect(sent == Array(repeating: "Bearer mine", count: 3))
    }

    @Test("a run at start takes up what another process left, and an attempt that it died in")
    func restart() throws {
        let path = QueueScene.socketPath()
        defer { unlink(path) }
        let exchange = ScriptedExchange.creation([.text("hello")], complete: true, method: .put)
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
        let heir = Gateway(
            settings: test.gateway.deliveries.current.settings,
            spool: try Spool(directory: "\(test.root)/spool", reserve: 0),
            log: Log(test.log.logger)
        )
        try heir.deliveries.startQueue()
        try test.waitUntil(location, isIn: .delivered)
        #expect(heir.deliveries.stopQueue(until: .after(.seconds(60))) == 0)
        #expect(second.requests.map(\.content) == [Array("hello".utf8)])
    }

    @Test("new settings end the pause of the old ones")
    func reload() throws {
        let origin = try QueueScene.origin([])
        let test = try QueueScene.gateway(.http(base: origin.base)) { settings, _ in
            settings.queueRunInterval = .seconds(3_600)
        }
        func leave() throws -> String {
            let made = test.serve(.creation([.text("x")], complete: false))
            let location = try #require(made.location)
            let upload = try #require(
                try test.spool.lock(try test.id(location), until: .never, requestRelease: {})
            )
            defer { upload.unlock() }
            try upload.postpone(reason: "a test", next: .now)
            return location
        }
        let first = try leave()
        try test.gateway.deliveries.startQueue()
        try test.waitUntil(first, isIn: .delivered)
        let second = try leave()
        test.gateway.reload(test.gateway.deliveries.current.settings)
        try test.waitUntil(second, isIn: .delivered)
    }

    @Test("two daemons on one spool deliver each upload once")
    func twoDaemons() throws {
        let origin = try QueueScene.origin([])
        let test = try QueueScene.gateway(.http(base: origin.base)) { settings, route in
            route.reply = .accepted
            settings.queueRunInterval = .milliseconds(10)
        }
        let other = Gateway(
            settings: test.gateway.deliveries.current.settings,
            spool: try Spool(directory: "\(test.root)/spool", reserve: 0),
            log: Log(test.log.logger)
        )
        try test.gateway.deliveries.startQueue()
        try other.deliveries.startQueue()
        defer { _ = other.deliveries.stopQueue(until: .after(.seconds(10))) }
        for number in 0..<100 {
            let record = test.serve(.creation([.text("upload \(number)")], complete: true))
            #expect(record.status == 202)
        }
        try eventually("all delivered") {
            try test.summaries().allSatisfy { $0.queue == .delivered }
        }
        let contents = origin.requests.map { String(decoding: $0.content, as: UTF8.self) }
        #expect(contents.sorted() == (0..<100).map { "upload \($0)" }.sorted())
    }

    // MARK: Trying again

    @Test(
        "an upstream that cannot now is tried again where that is safe, and only there",
        arguments: [429, 502, 503, 504]
    )
    func putOff(status: Int) throws {
        for (method, isSafe) in [(HTTPRequest.Method.put, true), (.post, false)] {
            let origin = try QueueScene.origin([.answers(status), .answers(status)])
            let test = try QueueScene.gateway(.http(base: origin.base)) { _, route in
                route.reply = .accepted
            }
            try test.gateway.deliveries.startQueue()
            let record = test.serve(
                .creation([.text("hello")], complete: true, method: method)
            )
            let location = try #require(record.location)
            try test.waitUntil(location, isIn: isSafe ? .delivered : .hold)
            #expect(origin.requests.count == (isSafe ? 3 : 1))
        }
    }

    @Test(
        "a waiting client hears that the upstream is busy, and for how long; its next append tries"
    )
    func busyUpstream() throws {
        let origin = try QueueScene.origin([.answers(503, fields: "Retry-After: 77\r\n")])
        let test = try QueueScene.gateway(.http(base: origin.base))
        let record = test.serve(.creation([.text("hello")], complete: true, method: .put))
        #expect(record.status == 503)
        #expect(record[.uploadComplete] == "?0")
        #expect(record[.retryAfter] == "77")
        let location = try #require(record.location)
        #expect(try test.summary(location).nextAttempt == nil)
        #expect(test.serve(.append(location, at: 5, complete: true)).status == 201)
        #expect(origin.requests.count == 2)
    }

    @Test("a POST that got no answer is held, by the queue too, and never sent again")
    func indeterminate() throws {
        let origin = try QueueScene.origin([.breaksOff])
        let test = try QueueScene.gateway(.http(base: origin.base)) { settings, route in
            route.reply = .accepted
            settings.queueRunInterval = .milliseconds(20)
        }
        try test.gateway.deliveries.startQueue()
        let location = try #require(
            test.serve(.creation([.text("hello")], complete: true)).location
        )
        try test.waitUntil(location, isIn: .hold)
        #expect(try test.summary(location).holdCause == .indeterminate)
        // One more goes all the way, while the first is left alone.
        let other = try #require(test.serve(.creation([.text("other")], complete: true)).location)
        try test.waitUntil(other, isIn: .delivered)
        #expect(test.serve(.retrieval(location)).status == 410)
        #expect(origin.requests.map(\.content) == [Array("hello".utf8), Array("other".utf8)])
    }

    @Test("what a reload has made a POST of is sent once, however it was created")
    func madePost() throws {
        let path = QueueScene.socketPath()
        defer { unlink(path) }
        let test = try QueueScene.gateway(.unix(path: path))
        let told = test.serve(.creation([.text("hello")], complete: true, method: .put))
        let location = try #require(told.location)
        #expect(told.status == 502)
        var settings = test.gateway.deliveries.current.settings
        settings.routes[RouteSettings.defaultName]?.form = .multipart
        test.gateway.reload(settings)
        let origin = try QueueScene.origin([.breaksOff], socketPath: path)
        let broken = test.serve(.append(location, at: 5, complete: true))
        #expect(broken[.uploadComplete] == "?1", "nothing tries again")
        #expect(try test.queue(of: location) == .hold)
        #expect(try test.summary(location).holdCause == .indeterminate)
        #expect(origin.requests.map(\.line) == ["POST /files HTTP/1.1"])
    }

    @Test("a place in the table that is out of date ends no upload before its time")
    func staleTable() throws {
        let test = try QueueScene.gateway(.http(base: "http://127.0.0.1:1"))
        let told = test.serve(.creation([.text("hello")], complete: true))
        let location = try #require(told.location)
        let upload = try #require(
            try test.spool.lock(try test.id(location), until: .never, requestRelease: {})
        )
        defer { upload.unlock() }
        #expect(upload.nextAttempt == nil)
        try #require(test.gateway.deliveries.delivery(of: upload)).deliverQueued(upload)
        #expect(upload.state.phase == .deferred)
    }

    @Test("when its time in the queue is over it has failed, and its content is kept")
    func lifetime() throws {
        let test = try QueueScene.gateway(.http(base: "http://127.0.0.1:1")) { _, route in
            route.queue.lifetime = .zero
        }
        let record = test.serve(.creation([.text("hello")], complete: true))
        #expect(record.status == 502)
        #expect(record[.uploadComplete] == "?1", "nothing tries again")
        let location = try #require(record.location)
        let failed = try test.summary(location)
        #expect(failed.holdCause == .failed)
        #expect(failed.offset == 5)
        #expect(failed.reason?.hasPrefix("its time in the queue is over") == true)
        #expect(test.serve(.retrieval(location)).status == 410)
        #expect(test.serve(.append(location, at: 5, complete: true)).status == 502)
    }

    @Test("one that a request uses when it is due is tried soon after that")
    func inUse() throws {
        let origin = try QueueScene.origin([])
        let test = try QueueScene.gateway(.http(base: origin.base)) { settings, route in
            route.reply = .accepted
            route.queue.maximumConcurrent = 1
            settings.queueRunInterval = .seconds(3_600)
        }
        let location = try #require(
            test.serve(.creation([.text("hello")], complete: true)).location
        )
        let next = try #require(test.serve(.creation([.text("x")], complete: true)).location)
        let holder = try Spool(directory: "\(test.root)/spool", reserve: 0)
        let held = try #require(try holder.tryLock(try test.id(location)))
        try test.gateway.deliveries.startQueue()
        // One after the other, in the order in which they came: the first was found in use.
        try test.waitUntil(next, isIn: .delivered)
        held.unlock()
        try test.waitUntil(location, isIn: .delivered)
        #expect(origin.requests.map(\.content) == [Array("x".utf8), Array("hello".utf8)])
    }

    @Test("a stored response is told for as long as the route says, and removed after that")
    func retention() throws {
        let origin = try QueueScene.origin([])
        let test = try QueueScene.gateway(.http(base: origin.base)) { _, route in
            route.responseRetention = .seconds(3_600)
        }
        let locations = try (0..<3).map { _ in
            try #require(test.serve(.creation([.text("hello")], complete: true)).location)
        }
        try test.age(locations[0], by: 3_500)
        try test.age(locations[1], by: 3_700)
        try test.age(locations[2], by: 3_700)
        #expect(test.serve(.append(locations[0], at: 5, complete: true)).status == 201)
        #expect(test.serve(.append(locations[1], at: 5, complete: true)).status == 404)
        try test.gateway.deliveries.startQueue()
        try eventually("the last is removed") {
            try test.summaries().map(\.id) == [try test.id(locations[0])]
        }
        #expect(origin.requests.count == 3)
    }
}
