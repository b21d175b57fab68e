// The delivery queue: what it takes up, what it leaves to clients, and when it tries again.

import Foundation
import HTTPTypes
import Posix
import Synchronization
import TestSupport
import Testing
import UploadProtocol
import Upstream

@testable import Gateway
@testable import Spool

@Suite struct QueueTests {
    /// What an upstream does with one request.
    private enum Deed: Sendable {
        case answers(Int, fields: String = "")
        /// Reads it and ends the connection.
        case breaksOff
        /// Waits, and then answers 201.
        case waits(Gate)
    }

    /// An upstream that does one deed after the other, and answers 201 after them.
    private static func origin(
        _ deeds: [Deed],
        socketPath: String? = nil,
        afterEach: @escaping @Sendable () -> Void = {}
    ) throws -> LoopbackOrigin {
        let left = Mutex(deeds)
        return try LoopbackOrigin(socketPath: socketPath) { connection in
            _ = try connection.receiveRequest()
            let deed = left.withLock { $0.isEmpty ? Deed.answers(201) : $0.removeFirst() }
            afterEach()
            var (status, fields) = (201, "")
            switch deed {
            case .answers(let code, let lines): (status, fields) = (code, lines)
            case .breaksOff: return
            case .waits(let gate): gate.pass()
            }
            try connection.send("HTTP/1.1 \(status) Said\r\n\(fields)Content-Length: 2\r\n")
            try connection.send("Connection: close\r\n\r\nok")
        }
    }

    private static func socketPath() -> String {
        "\(NSTemporaryDirectory())/queue-\(UInt64.random(in: 0...(.max))).sock"
    }

    /// A gateway whose queue waits a second between attempts.
    private static func gateway(
        _ target: UpstreamTarget,
        _ change: @escaping (inout Settings, inout Route) -> Void = { _, _ in }
    ) throws -> GatewayUnderTest {
        try GatewayUnderTest(target) { settings, route in
            route.queue.minimumBackoff = .seconds(1)
            route.queue.maximumBackoff = .seconds(1)
            change(&settings, &route)
        }
    }

    private func summary(_ test: GatewayUnderTest, _ location: String) throws -> UploadSummary {
        try #require(try test.summaries().first { location.hasSuffix($0.id.description) })
    }

    private func waitUntil(
        _ location: String,
        isIn queue: Queue,
        of test: GatewayUnderTest
    ) throws {
        try eventually("\(location) in \(queue)") { try test.queue(of: location) == queue }
    }

    /// Serves a creation whose client is gone when the upstream has its first request.
    private func serveLeaving(
        _ test: GatewayUnderTest,
        _ exchange: ScriptedExchange
    ) throws -> String {
        try #require(test.serve(exchange).location)
    }

    // MARK: What it takes up

    @Test("an upload whose client left before any verdict is tried again until it is delivered")
    func clientGone() throws {
        let exchange = ScriptedExchange.creation([.text("hello")], complete: true, method: .put)
        let origin = try Self.origin([.breaksOff, .breaksOff], afterEach: { exchange.abandon() })
        let test = try Self.gateway(.http(base: origin.base))
        let location = try serveLeaving(test, exchange)
        let waiting = try summary(test, location)
        #expect(waiting.queue == .deferred)
        #expect(waiting.nextAttempt != nil)
        #expect(waiting.attempts == 1)
        try test.gateway.startQueue()
        try waitUntil(location, isIn: .delivered, of: test)
        #expect(origin.requests.map(\.content) == Array(repeating: Array("hello".utf8), count: 3))
        // Its client comes back, and hears what the upstream said.
        let replay = test.serve(.append(location, at: 5, complete: true))
        #expect(replay.status == 201)
        #expect(replay.text == "ok")
        #expect(origin.requests.count == 3)
    }

    @Test("one whose client was told that it is not delivered waits for that client")
    func clientTold() throws {
        let path = Self.socketPath()
        defer { unlink(path) }
        let test = try Self.gateway(.unix(path: path)) { settings, _ in
            settings.queueRunInterval = .milliseconds(20)
        }
        let told = test.serve(.creation([.text("hello")], complete: true))
        #expect(told.status == 502)
        let location = try #require(told.location)
        #expect(try summary(test, location).nextAttempt == nil)
        let origin = try Self.origin([], socketPath: path)
        try test.gateway.startQueue()
        // An upload that is the queue's shows that runs go on and leave the first alone.
        let other = try #require(test.serve(.creation([.text("x")], complete: false)).location)
        let upload = try #require(try test.spool.attach(try id(other), until: .never, release: {}))
        try upload.deferred(reason: "a test", next: .now)
        upload.detach()
        try waitUntil(other, isIn: .delivered, of: test)
        #expect(try summary(test, location).queue == .deferred)
        #expect(test.serve(.append(location, at: 5, complete: true)).status == 201)
        #expect(origin.requests.map(\.content) == [Array("x".utf8), Array("hello".utf8)])
    }

    private func id(_ location: String) throws -> UploadID {
        try #require(location.split(separator: "/").last.flatMap { UploadID(String($0)) })
    }

    @Test("a run at start takes up what another process left, and an attempt that it died in")
    func restart() throws {
        let path = Self.socketPath()
        defer { unlink(path) }
        let exchange = ScriptedExchange.creation([.text("hello")], complete: true, method: .put)
        let test = try Self.gateway(.unix(path: path))
        let location: String
        do {
            let first = try Self.origin(
                [.breaksOff],
                socketPath: path,
                afterEach: { exchange.abandon() }
            )
            location = try serveLeaving(test, exchange)
            #expect(first.requests.count == 1)
        }
        unlink(path)
        let second = try Self.origin([], socketPath: path)
        let heir = Gateway(
            settings: test.gateway.current.settings,
            spool: try Spool(directory: "\(test.root)/spool", reserve: 0),
            log: Log(test.log.logger)
        )
        try heir.startQueue()
        try waitUntil(location, isIn: .delivered, of: test)
        #expect(heir.stopQueue(until: .after(.seconds(60))) == 0)
        #expect(second.requests.map(\.content) == [Array("hello".utf8)])
    }

    @Test("two daemons on one spool deliver each upload once")
    func twoDaemons() throws {
        let origin = try Self.origin([])
        let test = try Self.gateway(.http(base: origin.base)) { settings, route in
            route.reply = .accepted
            settings.queueRunInterval = .milliseconds(10)
        }
        let other = Gateway(
            settings: test.gateway.current.settings,
            spool: try Spool(directory: "\(test.root)/spool", reserve: 0),
            log: Log(test.log.logger)
        )
        try test.gateway.startQueue()
        try other.startQueue()
        defer { _ = other.stopQueue(until: .after(.seconds(10))) }
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

    // MARK: The reply `accepted`

    @Test("202 comes before the upstream hears anything, and the status resource tells the rest")
    func accepted() throws {
        let path = Self.socketPath()
        defer { unlink(path) }
        let test = try Self.gateway(.unix(path: path)) { _, route in route.reply = .accepted }
        let record = test.serve(.creation([.text("hello")], complete: true))
        #expect(record.status == 202)
        #expect(record[.uploadComplete] == "?1")
        #expect(record.offset == 5)
        let location = try #require(record.location)
        #expect(record[.link] == "<\(location)/status>; rel=\"status\"")
        #expect(record.text.contains("\"status-resource\":\"\(location)/status\""))
        #expect(test.disk.count(.sync, on: "/data/") == 1, "a 202 is a promise")
        // A client that lost it, in every dialect: it is a success, and nothing is sent twice.
        for version in [3, 5, 6, 8, 9, 10] {
            #expect(test.serve(.retrieval(location, version: version)).offset == 5)
        }
        #expect(test.serve(.append(location, at: 5, complete: true)).status == 202)
        let waiting = test.serve(.status(location))
        #expect(waiting.status == 200)
        #expect(waiting.text.contains("\"state\":\"deferred\""))

        let origin = try Self.origin([], socketPath: path)
        try test.gateway.startQueue()
        try waitUntil(location, isIn: .delivered, of: test)
        let done = test.serve(.status(location))
        #expect(done.text.contains("\"state\":\"delivered\""))
        #expect(done.text.contains("\"status\":201"))
        #expect(test.serve(.append(location, at: 5, complete: true)).text == "ok")
        #expect(origin.requests.count == 1)
        let stranger = ExchangeContext(owner: "somebody else")
        #expect(test.serve(.status(location, context: stranger)).status == 404)
        #expect(test.serve(.status("\(location)x")).status == 404)
    }

    @Test("while the queue delivers, no request waits for it")
    func acceptedUnderWay() throws {
        let gate = Gate()
        let origin = try Self.origin([.waits(gate)])
        let test = try Self.gateway(.http(base: origin.base)) { _, route in
            route.reply = .accepted
        }
        try test.gateway.startQueue()
        let location = try #require(
            test.serve(.creation([.text("hello")], complete: true)).location
        )
        try eventually("the attempt") { origin.requests.count == 1 }
        #expect(test.serve(.retrieval(location)).offset == 5)
        #expect(test.serve(.append(location, at: 5, complete: true)).status == 202)
        #expect(test.serve(.status(location)).text.contains("\"state\":\"delivering\""))
        gate.open()
        try waitUntil(location, isIn: .delivered, of: test)
        #expect(origin.requests.count == 1)
    }

    @Test("an ordinary upload is accepted too, without fields of the protocol")
    func acceptedPlain() throws {
        let origin = try Self.origin([])
        let test = try Self.gateway(.http(base: origin.base)) { _, route in
            route.reply = .accepted
        }
        let record = test.serve(ScriptedExchange(.post, "/form", [:], [.text("hello")]))
        #expect(record.status == 202)
        #expect(record[.uploadComplete] == nil && record[.uploadOffset] == nil)
        let link = try #require(record[.link])
        let status = String(link.dropFirst().prefix { $0 != ">" })
        #expect(test.serve(ScriptedExchange(.get, status)).status == 200)
        try test.gateway.startQueue()
        try eventually("delivered") {
            test.serve(ScriptedExchange(.get, status)).text.contains("\"state\":\"delivered\"")
        }
        #expect(origin.requests.map(\.line) == ["POST /form HTTP/1.1"])
        // What does not come whole is gone.
        let cut = ScriptedExchange(.post, "/form", [:], [.text("hel"), .fails(.truncated)])
        #expect(test.serve(cut).isAborted)
        #expect(try test.summaries().count == 1)
    }

    @Test("an accepted upload that the upstream refuses has failed, is kept, and can be requeued")
    func acceptedRefused() throws {
        let origin = try Self.origin([.answers(400)])
        let test = try Self.gateway(.http(base: origin.base)) { settings, route in
            route.reply = .accepted
            settings.queueRunInterval = .milliseconds(20)
        }
        try test.gateway.startQueue()
        let location = try #require(
            test.serve(.creation([.text("hello")], complete: true)).location
        )
        try waitUntil(location, isIn: .hold, of: test)
        let status = test.serve(.status(location))
        #expect(status.text.contains("\"state\":\"failed\""))
        #expect(status.text.contains("\"status\":400"))
        #expect(test.serve(.retrieval(location)).status == 410)
        #expect(test.serve(.append(location, at: 5, complete: true)).status == 400)
        #expect(test.log.messages.contains("delivery failed"))

        let upload = try #require(
            try test.spool.attach(try id(location), until: .never, release: {})
        )
        try upload.requeue(at: .now)
        upload.detach()
        try waitUntil(location, isIn: .delivered, of: test)
        #expect(origin.requests.map(\.content) == Array(repeating: Array("hello".utf8), count: 2))
    }

    // MARK: Trying again

    @Test(
        "an upstream that cannot now is tried again where that is safe, and only there",
        arguments: [429, 502, 503, 504]
    )
    func putOff(status: Int) throws {
        for (method, isSafe) in [(HTTPRequest.Method.put, true), (.post, false)] {
            let origin = try Self.origin([.answers(status), .answers(status)])
            let test = try Self.gateway(.http(base: origin.base)) { _, route in
                route.reply = .accepted
            }
            try test.gateway.startQueue()
            let record = test.serve(
                .creation([.text("hello")], complete: true, method: method)
            )
            let location = try #require(record.location)
            try waitUntil(location, isIn: isSafe ? .delivered : .hold, of: test)
            #expect(origin.requests.count == (isSafe ? 3 : 1))
        }
    }

    @Test(
        "a waiting client hears that the upstream is busy, and for how long; its next append tries"
    )
    func busyUpstream() throws {
        let origin = try Self.origin([.answers(503, fields: "Retry-After: 77\r\n")])
        let test = try Self.gateway(.http(base: origin.base))
        let record = test.serve(.creation([.text("hello")], complete: true, method: .put))
        #expect(record.status == 503)
        #expect(record[.uploadComplete] == "?0")
        #expect(record[.retryAfter] == "77")
        let location = try #require(record.location)
        #expect(try summary(test, location).nextAttempt == nil)
        #expect(test.serve(.append(location, at: 5, complete: true)).status == 201)
        #expect(origin.requests.count == 2)
    }

    @Test("a POST that got no answer is held, by the queue too, and never sent again")
    func indeterminate() throws {
        let origin = try Self.origin([.breaksOff])
        let test = try Self.gateway(.http(base: origin.base)) { settings, route in
            route.reply = .accepted
            settings.queueRunInterval = .milliseconds(20)
        }
        try test.gateway.startQueue()
        let location = try #require(
            test.serve(.creation([.text("hello")], complete: true)).location
        )
        try waitUntil(location, isIn: .hold, of: test)
        #expect(try summary(test, location).holdCause == .indeterminate)
        // One more goes all the way, while the first is left alone.
        let other = try #require(test.serve(.creation([.text("other")], complete: true)).location)
        try waitUntil(other, isIn: .delivered, of: test)
        #expect(test.serve(.retrieval(location)).status == 410)
        #expect(origin.requests.map(\.content) == [Array("hello".utf8), Array("other".utf8)])
    }

    @Test("when its time in the queue is over it has failed, and its content is kept")
    func lifetime() throws {
        let test = try Self.gateway(.http(base: "http://127.0.0.1:1")) { _, route in
            route.queue.lifetime = .zero
        }
        let record = test.serve(.creation([.text("hello")], complete: true))
        #expect(record.status == 502)
        #expect(record[.uploadComplete] == "?1", "nothing tries again")
        let location = try #require(record.location)
        let failed = try summary(test, location)
        #expect(failed.holdCause == .failed)
        #expect(failed.offset == 5)
        #expect(failed.reason?.hasPrefix("its time in the queue is over") == true)
        #expect(test.serve(.retrieval(location)).status == 410)
        #expect(test.serve(.append(location, at: 5, complete: true)).status == 502)
    }

    // MARK: Bounds

    @Test("a route's bound holds for its requests and its queue together")
    func routeBound() throws {
        let now = Mutex(0)
        let most = Mutex(0)
        let origin = try LoopbackOrigin { connection in
            _ = try connection.receiveRequest()
            let count = now.withLock { count in
                count += 1
                return count
            }
            most.withLock { $0 = max($0, count) }
            usleep(1_000)
            now.withLock { $0 -= 1 }
            try connection.send("HTTP/1.1 201 Created\r\nContent-Length: 0\r\n")
            try connection.send("Connection: close\r\n\r\n")
        }
        let test = try Self.gateway(.http(base: origin.base)) { _, route in
            route.reply = .accepted
            route.queue.maximumConcurrent = 2
        }
        for _ in 0..<40 { test.serve(.creation([.text("x")], complete: true)) }
        try test.gateway.startQueue()
        try eventually("all delivered") {
            try test.summaries().allSatisfy { $0.queue == .delivered }
        }
        #expect(origin.requests.count == 40)
        #expect(most.withLock { $0 } == 2)
    }

    @Test("stopping waits for the attempts under way and begins no other")
    func stopping() throws {
        let gate = Gate()
        let origin = try Self.origin([.waits(gate)])
        let test = try Self.gateway(.http(base: origin.base)) { _, route in
            route.reply = .accepted
            route.queue.maximumConcurrent = 1
        }
        try test.gateway.startQueue()
        let first = try #require(test.serve(.creation([.text("1")], complete: true)).location)
        let second = try #require(test.serve(.creation([.text("2")], complete: true)).location)
        try eventually("the attempt") { origin.requests.count == 1 }
        #expect(test.gateway.stopQueue(until: .after(.zero)) == 1)
        gate.open()
        #expect(test.gateway.stopQueue(until: .after(.seconds(60))) == 0)
        let queues = try [first, second].map { try test.queue(of: $0) }
        #expect(queues.contains(.delivered) && queues.contains(.deferred))
        #expect(origin.requests.count == 1)
    }

    @Test("pauses double up to the most, and a random half of them is taken off")
    func pauses() {
        var policy = QueuePolicy()
        policy.minimumBackoff = .seconds(10)
        policy.maximumBackoff = .seconds(100)
        for (attempts, whole) in [(0, 10), (1, 10), (2, 20), (4, 80), (5, 100), (200, 100)] {
            for random in [0, 1, 7, UInt64.max] {
                let pause = policy.pause(after: attempts, asked: nil, random: random)
                #expect(pause >= .seconds(whole / 2) && pause <= .seconds(whole))
            }
        }
        #expect(policy.pause(after: 1, asked: 60, random: 0) == .seconds(60))
        #expect(policy.pause(after: 1, asked: 6_000, random: 0) == .seconds(100))
    }
}
