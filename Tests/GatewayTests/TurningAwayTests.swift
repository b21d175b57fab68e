// Requests that cannot be served now get an error response, or a closed connection if the client would take that for
// the upload's.

import Foundation
import HTTPTypes
@testable import SpoolgateExchange
import SpoolgatePosix
import SpoolgateRequests
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateTestSupport
import SpoolgateTextFormats
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Testing

@Suite struct TurningAwayTests {
    private func context(_ owner: String?) -> ExchangeContext {
        ExchangeContext(owner: owner.map { ExactText($0) }, interimStatuses: [104])
    }

    @Test(
        "without a thread, creations and ordinary requests are rejected, and existing uploads are not"
    )
    func noThread() throws {
        let slow = try SlowUpstream()
        let test = try GatewayUnderTest(slow.target) { settings, _ in
            settings.maximumThreads = 1
        }
        let location = test.createPartial("hello")
        let (running, _) = try test.startDelivery(to: slow)
        for isLast in [true, false] {
            let creation = ScriptedExchange.creation(["x"])
            let plain = ScriptedExchange(.post, "/p", [:], ["x"])
            let append = ScriptedExchange.append(location, at: 5, ["x"])
            for exchange in [creation, plain, append] {
                test.gateway.serve(exchange, isLast: isLast)
            }
            #expect(creation.record.events == [.head(503)])
            #expect(creation.record[.retryAfter] != nil)
            #expect(creation.record[.uploadComplete] == "?0")
            #expect(plain.record.events == [.head(503)])
            #expect(plain.record[.uploadComplete] == nil)
            #expect(append.record.events == [.abort])
            // Short requests are served from the reserve.
            let reserved = ScriptedExchange.retrieval(location)
            test.gateway.serve(reserved, isLast: isLast)
            #expect(reserved.record.offset == 5)
        }
        #expect(test.log.values(of: "limit", in: "requests rejected") == ["threads.maximum"])
        #expect(test.serve(.cancellation(location)).status == 204)
        slow.gate.open()
        #expect(try running.finish().status == 201)
    }

    /// Requests for which no thread is free.
    enum Comer: CaseIterable {
        case creation, ordinary, concatenation, append, retrieval, cancellation
    }

    /// Requests that hold the threads.
    enum Holder: CaseIterable {
        case creation, untoldCreation, ordinary

        func exchange(_ context: ExchangeContext) -> ScriptedExchange {
            var silent = context
            silent.interimStatuses = []
            return switch self {
            case .creation: .creation([.stuck], length: .unknown, context: context)
            case .untoldCreation: .creation([.stuck], length: .unknown, context: silent)
            case .ordinary:
                ScriptedExchange(.put, "/p", [:], [.stuck], length: .unknown, context: context)
            }
        }
    }

    @Test(
        "only an append takes another request's thread, and only from a client that can resume",
        arguments: Comer.allCases,
        Holder.allCases
    )
    func comers(comer: Comer, holder: Holder) throws {
        let test = try GatewayUnderTest { settings, _ in settings.maximumThreads = 1 }
        let mine = test.createPartial("hello", context: context("alice"))
        let stuck = holder.exchange(context("bob"))
        let running = try test.start(stuck)
        #expect(stuck.waitUntilStuck())
        // The stuck request is slow, but the lowest rate applies only after ten seconds.
        test.contentClock.update { $0 = $0.later(by: .seconds(5)) }
        let newcomer: ScriptedExchange =
            switch comer {
            case .creation: .creation(["x"], context: context("alice"))
            case .ordinary: ScriptedExchange(.put, "/p", [:], ["x"], context: context("alice"))
            case .concatenation:
                ScriptedExchange(
                    .post,
                    "/files",
                    [.tusResumable: "1.0.0", .uploadConcat: "final;\(mine)"],
                    context: context("alice")
                )
            case .append: .append(mine, at: 5, ["x"], context: context("alice"))
            case .retrieval: .retrieval(mine, context: context("alice"))
            case .cancellation: .cancellation(mine, context: context("alice"))
            }
        let record = test.serve(newcomer)
        switch comer {
        case .creation, .ordinary, .concatenation:
            #expect(record.events == [.head(503)])
            #expect(record[.retryAfter] != nil)
        case .append where holder == .creation: #expect(record.status == 201)
        case .append: #expect(record.events == [.abort])
        case .retrieval, .cancellation: #expect(record.status == 204)
        }
        #expect(stuck.isInterrupted == (comer == .append && holder == .creation))
        stuck.interrupt()
        _ = try running.finish()
    }

    @Test(
        "if 80 percent of the threads are in use, requests without progress are ended, one by one"
    )
    func roomIsMade() throws {
        let test = try GatewayUnderTest { settings, _ in
            settings.maximumThreads = 5
            settings.clients.maximumConcurrent = 0
        }
        func serve() -> ScriptedExchange.Record {
            test.serve(.creation(["x"], context: context("alice")))
        }
        func pass(_ duration: Duration) { test.contentClock.update { $0 = $0.later(by: duration) } }
        var stuck: [(ScriptedExchange, Running)] = []
        func fill(_ count: Int) throws {
            for number in stuck.count..<count {
                let exchange = Holder.allCases[number % 3].exchange(context("bob \(number)"))
                stuck.append((exchange, try test.start(exchange)))
                #expect(exchange.waitUntilStuck())
            }
        }
        var ended: Int { stuck.count { $0.0.isInterrupted } }
        try fill(3)
        pass(.seconds(100))
        // The new request's thread is the fourth of five.
        #expect(serve().status == 201)
        #expect(ended == 1)
        try fill(6)
        // The next one may end only after a quarter of a second.
        for _ in 0..<10 { #expect(serve().status == 503) }
        #expect(ended == 1)
        pass(.milliseconds(250))
        #expect(serve().events == [.head(503)])
        #expect(ended == 2)
        try eventually("the ended request leaves, and a creation is served") {
            serve().status == 201
        }
        #expect(ended == 2, "the next one is not due")
        for (exchange, running) in stuck {
            exchange.interrupt()
            _ = try running.finish()
        }
        #expect(
            test.log.values(of: "requests", in: "slow requests interrupted") == ["1"],
            "one line a minute"
        )
    }

    @Test("a client at its limit gets 429 for new uploads, and its offsets; others are served")
    func clientBound() throws {
        let test = try GatewayUnderTest { settings, _ in settings.clients.maximumConcurrent = 2 }
        let mine = test.createPartial("hello", context: context("alice"))
        let stuck = try (0..<2).map { _ in
            let exchange = ScriptedExchange.creation(
                [.stuck],
                length: .unknown,
                context: context("alice")
            )
            let running = try test.start(exchange)
            #expect(exchange.waitUntilStuck())
            return (exchange, running)
        }
        func serve(_ owner: String) -> ScriptedExchange.Record {
            test.serve(.creation(["x"], context: context(owner)))
        }
        let refused = serve("alice")
        #expect(refused.events == [.head(429)])
        #expect(refused[.retryAfter] != nil)
        #expect(refused.text.contains("Too Many Requests"))
        let plain = test.serve(ScriptedExchange(.put, "/p", [:], ["x"], context: context("alice")))
        #expect(plain.status == 429)
        let append = test.serve(.append(mine, at: 5, ["x"], context: context("alice")))
        #expect(append.isAborted && append.head == nil)
        #expect(test.serve(.retrieval(mine, context: context("alice"))).offset == 5)
        #expect(serve("bob").status == 201)
        for (exchange, running) in stuck {
            exchange.interrupt()
            _ = try running.finish()
        }
        #expect(serve("alice").status == 201)
        #expect(
            test.log.values(of: "client", in: "requests rejected") == ["alice"],
            "one line for three rejected requests"
        )
    }

    @Test("a client with too many unfinished uploads gets 429, and its existing ones continue")
    func uploadBound() throws {
        let test = try GatewayUnderTest { settings, _ in settings.clients.maximumUploads = 2 }
        let locations = (0..<2).map { _ in test.createPartial("hello") }
        let refused = test.serve(.creation(["x"], complete: false))
        #expect(refused.events == [.head(429)])
        #expect(test.log.level(of: "spool error") == nil)
        #expect(test.serve(.append(locations[0], at: 5, ["!"])).status == 201)
        #expect(test.serve(.creation(["x"], complete: false)).status == 201)
    }

    @Test("requests waiting for a silent authorizer are limited, per client and in total")
    func authorizer() throws {
        let silent = try SlowUpstream()
        let test = try GatewayUnderTest { settings, route in
            // Those of all clients may wait in half of the threads, and those of one in a quarter.
            settings.maximumThreads = 8
            route.authorization.url = try? ServiceURL(silent.origin.base + "/ask")
            route.authorization.timeout = .seconds(60)
        }
        func creation(_ owner: String) -> ScriptedExchange {
            .creation(["x"], context: context(owner))
        }
        var waiting = try (0..<2).map { _ in try test.start(creation("alice")) }
        try silent.waitForRequest(2)
        #expect(test.serve(creation("alice")).events == [.head(429)])
        for count in 3...4 {
            waiting.append(try test.start(creation("bob")))
            try silent.waitForRequest(count)
        }
        #expect(test.serve(creation("carol")).events == [.head(503)])
        silent.gate.open()
        for running in waiting { #expect(try running.finish().status == 201) }
        #expect(test.serve(creation("alice")).status == 201)
    }

    @Test("a wait for a result ends when its client leaves")
    func abandoned() throws {
        let slow = try SlowUpstream()
        let test = try GatewayUnderTest(slow.target)
        let (delivering, location) = try test.startDelivery(to: slow)
        let append = ScriptedExchange.append(location, at: 5)
        let waiting = try test.start(append)
        #expect(append.waitUntilLooked())
        append.abandon()
        #expect(try waiting.finish().isAborted)
        slow.gate.open()
        #expect(try delivering.finish().status == 201)
    }

    @Test("empty appends to an upload under delivery are aborted above their limit")
    func waitingAppends() throws {
        let slow = try SlowUpstream()
        let test = try GatewayUnderTest(slow.target) { settings, _ in
            settings.maximumThreads = 4
            settings.clients.maximumConcurrent = 0
        }
        let (delivering, location) = try test.startDelivery(to: slow)
        let appends = try (0..<4).map { _ in try test.start(.append(location, at: 5)) }
        try eventually("all but one are aborted") { appends.count { $0.isEnded } == 3 }
        slow.gate.open()
        #expect(try delivering.finish().status == 201)
        let records = try appends.map { try $0.finish() }
        #expect(records.count { $0.isAborted && $0.head == nil } == 3)
        #expect(records.count { $0.status == 201 } == 1)
        #expect(slow.origin.requests.count == 1)
    }

    @Test("requests waiting for a delivery slot are limited, and lose nothing")
    func waitingDeliveries() throws {
        let slow = try SlowUpstream()
        let test = try GatewayUnderTest(slow.target) { settings, _ in
            settings.maximumDeliveries = 1
            settings.inUseTimeout = .seconds(600)
            settings.maximumThreads = 4
            settings.clients.maximumConcurrent = 0
        }
        let (first, _) = try test.startDelivery(to: slow)
        let others = try (0..<3).map { _ in try test.start(.creation()) }
        try eventually("all but one are aborted") { others.count { $0.isEnded } == 2 }
        #expect(try test.summaries().count { $0.queue == .deferred && $0.offset == 5 } == 2)
        slow.gate.open()
        #expect(try first.finish().status == 201)
        let records = try others.map { try $0.finish() }
        #expect(records.count { $0.isAborted && $0.head == nil } == 2)
        #expect(records.count { $0.status == 201 } == 1)
    }

    @Test("an offset retrieval in the reserve begins no delivery")
    func hurriedLook() throws {
        let socket = QueueScene.socketPath()
        let test = try GatewayUnderTest(.unix(path: socket))
        // In version 5, offset == length is sent only after the result.
        let creation = test.serve(.creation(version: 5))
        #expect(creation.status == 502)
        let location = try #require(creation.location)
        let origin = try LoopbackOrigin(socketPath: socket)
        defer { unlink(socket) }
        let hurried = ScriptedExchange.retrieval(location, version: 5)
        test.gateway.serve(hurried, isLast: true)
        #expect(hurried.record.events == [.abort])
        #expect(origin.requests.isEmpty)
        #expect(test.serve(.retrieval(location, version: 5)).status == 204)
        #expect(origin.requests.count == 1)
    }
}
