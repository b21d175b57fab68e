// Content that the web server writes into the spool itself: its limits, the part that counts, and that no other request
// gets the upload before it has finished.

import Glibc
import HTTPTypes
import Logging
import SpoolgateExchange
import SpoolgateJournal
import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Testing

@testable import SpoolgateRequests
@testable import SpoolgateSettings
@testable import SpoolgateSpool

@Suite struct LaneTests {
    /// More than always goes through the gateway.
    private static let large = (0..<300_000).map { UInt8(truncatingIfNeeded: $0 / 3) }
    private static let rest: ContentLength = .unknown

    private static func begin(
        _ test: GatewayUnderTest,
        _ lane: ScriptedLane
    ) throws -> (running: Running, location: String) {
        let exchange = ScriptedExchange.creation([.bytes(large), .stuck], length: .unknown)
            .offer(lane)
        let running = try test.start(exchange)
        #expect(exchange.waitUntilStuck())
        return (running, try #require(exchange.record.location))
    }

    @Test("content that nginx wrote is delivered like any other")
    func delivered() throws {
        let test = try GatewayUnderTest()
        let lane = ScriptedLane()
        let halves = [Array(Self.large[..<100_000]), Array(Self.large[100_000...])]
        let record = test.serve(.creation(halves.map { .bytes($0) }).offer(lane))
        #expect(record.status == 201)
        #expect(try test.drops() == [Self.large])
        #expect(
            lane.events == ["grant 0 65536", "widen 131072", "widen 200000", "widen 300000 rest"]
        )
        let counts = test.gateway.metrics.routes[0].counts
        #expect(
            counts.content.writtenByNginx == 300_000
                && counts.content.received == 300_000
        )
    }

    @Test("little content, and content that may be taken back, arrives as usual")
    func notGranted() throws {
        let test = try GatewayUnderTest()
        let little = ScriptedLane()
        #expect(test.serve(.creation(["hello"]).offer(little)).status == 201)
        let verified = ScriptedLane()
        let digest: HTTPFields = [.contentDigest: "sha-256=:AAAA:"]
        let refused = test.serve(
            .creation([.bytes(Self.large)], complete: false, fields: digest).offer(verified)
        )
        #expect((400..<500).contains(refused.status ?? 0))
        #expect(little.events == [] && verified.events == [])
    }

    @Test("a route with spool-receive: off declines, and the gateway receives the content")
    func off() throws {
        #expect(RouteSettings().spoolReceive == .on)
        let test = try GatewayUnderTest { $1.spoolReceive = .off }
        let lane = ScriptedLane()
        let record = test.serve(.creation([.bytes(Self.large)], length: .unknown).offer(lane))
        #expect(record.status == 201)
        #expect(lane.events == [])
        #expect(try test.drops() == [Self.large])
        let counts = test.gateway.metrics.routes[0].counts
        #expect(
            counts.content.writtenByNginx == 0 && counts.content.received == 300_000
        )
    }

    private static let wrongDigest = "sha-256=:" + String(repeating: "A", count: 43) + "=:"

    struct Counted: Sendable, CustomTestStringConvertible {
        var path: ContentPath
        var hasOffer = true
        var setting = SpoolReceive.on
        var fields: HTTPFields = [:]
        var isOrdinary = false
        var isSmall = false
        var isShared = false

        var testDescription: String { path.label }
    }

    @Test(
        "the log, the counts and the daemon report which path content took, and why",
        arguments: [
            Counted(path: .used), Counted(path: .off, setting: .off),
            Counted(path: .notOffered, hasOffer: false),
            Counted(path: .notOffered, hasOffer: false, setting: .off),
            Counted(path: .digest, fields: [.contentDigest: wrongDigest]),
            Counted(path: .shared, isShared: true), Counted(path: .ordinary, isOrdinary: true),
            Counted(path: .small, isSmall: true),
        ]
    )
    func path(counted: Counted) throws {
        let test = try GatewayUnderTest(sharedNode: counted.isShared ? "n1" : nil) {
            $0.node = counted.isShared ? "n1" : nil
            $0.sharesSpool = counted.isShared
            $1.spoolReceive = counted.setting
        }
        let content = counted.isSmall ? Array("hello".utf8) : Self.large
        let exchange: ScriptedExchange =
            counted.isOrdinary
            ? ScriptedExchange(.post, "/files/a", [:], [.bytes(content)], length: .unknown)
            : .creation(
                [.bytes(content)],
                complete: false,
                length: counted.isSmall ? .known(5) : .unknown,
                fields: counted.fields
            )
        if counted.hasOffer { _ = exchange.offer(ScriptedLane()) }
        let record = test.serve(exchange)
        let isNginx = counted.path == .used
        let (nginx, gateway) = isNginx ? (content.count, 0) : (0, content.count)
        #expect(test.log.level(of: "content written") == .debug)
        #expect(test.log.values(of: "nginx-bytes", in: "content written") == ["\(nginx)"])
        #expect(
            test.log.values(of: "reason", in: "content written") == [counted.path.reason ?? "-"]
        )
        let counts = test.gateway.metrics.routes[0].counts
        #expect(counts.paths.all.map(\.key) == (counted.isSmall ? [] : [counted.path]))
        let isOfRoute = [.used, .off, .shared, .notOffered].contains(counted.path)
        #expect(counts.lastContentPath == (isOfRoute ? counted.path : nil))
        guard !counted.isOrdinary, counted.path != .digest else { return }
        #expect(test.log.values(of: "gateway-bytes", in: "content written") == ["\(gateway)"])
        let name = try #require(record.location?.split(separator: "/").last)
        let id = try #require(UploadID(name))
        let shares = try #require(test.gateway.transfers.shares(of: id))
        #expect(shares.nginx == nginx && shares.gateway == gateway)
        #expect(shares.path == (isNginx ? nil : counted.path))
        #expect(ContentShares(line: shares.line) == shares)
    }

    @Test("content that never arrived counts for no path")
    func none() throws {
        let test = try GatewayUnderTest()
        let cut = test.serve(.creation([.fails(.truncated)], length: .known(300_000)))
        let empty = test.serve(.creation([], complete: false, length: .known(0)))
        #expect(cut.isAborted && empty.status == 201)
        #expect(!test.log.messages.contains("content written"))
        let counts = test.gateway.metrics.routes[0].counts
        #expect(counts.paths.all.isEmpty && counts.lastContentPath == nil)
    }

    @Test("the bytes of an upload's messages are added up, also while one is received")
    func shares() throws {
        let test = try GatewayUnderTest()
        let (running, location) = try Self.begin(test, ScriptedLane())
        let id = try #require(location.split(separator: "/").last.flatMap { UploadID($0) })
        #expect(test.gateway.transfers.shares(of: id)?.words == "300000 bytes by nginx")
        #expect(test.serve(.retrieval(location)).offset == 300_000)
        _ = try running.finish()
        _ = test.serve(.append(location, at: 300_000, ["hello"], complete: false))
        #expect(
            test.gateway.transfers.shares(of: id)?.words
                == "300000 bytes by nginx, 5 by the gateway (the content is 256 KiB or less)"
        )
    }

    @Test("beyond the limit the oldest uploads are forgotten")
    func forgotten() {
        var table = SharesTable()
        let ids = (0..<SharesTable.maximum + 2).map { UploadID(high: 7, low: UInt64($0)) }
        for id in ids { table.add(ContentShares(gateway: 1), to: id) }
        // A known upload takes no additional place.
        table.add(ContentShares(gateway: 1), to: ids[2])
        #expect(table[ids[0]] == nil && table[ids[1]] == nil)
        #expect(table[ids[2]]?.gateway == 2 && table[ids[3]]?.gateway == 1)
        table.add(ContentShares(), to: ids[0])
        #expect(table[ids[0]] == nil && table[ids[2]] != nil)
    }

    @Test("a client that is cut continues after the bytes that nginx has written")
    func cut() throws {
        let test = try GatewayUnderTest()
        let lane = ScriptedLane()
        let start = Array(Self.large[..<123_456])
        let cut = test.serve(
            .creation([.bytesThenFails(start, .truncated)], length: .unknown).offer(lane)
        )
        #expect(cut.isAborted)
        let location = try #require(cut.location)
        #expect(test.serve(.retrieval(location)).offset == 123_456)
        let id = try #require(location.split(separator: "/").last.flatMap { UploadID($0) })
        #expect(test.gateway.transfers.shares(of: id)?.words == "123456 bytes by nginx")
        #expect(test.gateway.metrics.routes[0].counts.content.writtenByNginx == 123_456)
        let second = ScriptedLane()
        let rest = test.serve(
            .append(
                location,
                at: 123_456,
                [.bytes(Array(Self.large[123_456...]))],
                length: .unknown
            )
            .offer(second)
        )
        #expect(rest.status == 201)
        #expect(try test.drops() == [Self.large])
        #expect(second.events.first?.hasPrefix("grant 123456 ") == true)
    }

    @Test("the last byte goes through the gateway if its client takes the offset for success")
    func lastByte() throws {
        let test = try GatewayUnderTest()
        let lane = ScriptedLane()
        let record = test.serve(
            .creation([.bytes(Self.large)], uploadLength: 300_000, version: 6).offer(lane)
        )
        #expect(record.status == 201)
        #expect(lane.events.first == "grant 0 65536" && lane.events.last == "widen 299999 rest")
        #expect(try test.drops() == [Self.large])
        // Without a length, any byte may be the last.
        let none = ScriptedLane()
        let next = test.serve(
            .creation([.bytes(Self.large)], length: .unknown, version: 6).offer(none)
        )
        #expect(next.status == 201 && !none.events.contains { $0.hasPrefix("grant") })
    }

    @Test(
        "the grant doubles with received bytes up to 64 MiB, before the last one is used up"
    )
    func windows() throws {
        let test = try GatewayUnderTest()
        let lane = ScriptedLane()
        let part = [UInt8](repeating: 7, count: 4 << 20)
        let parts = [ScriptedExchange.Step](repeating: .bytes(part), count: 40)
        let record = test.serve(
            .creation(parts, complete: false, length: .unknown).offer(lane)
        )
        #expect(record.status == 201 && record.offset == 160 << 20)
        let limits = lane.events.compactMap { Int($0.split(separator: " ").last ?? "") }
        #expect(limits.prefix(8) == [16, 17, 18, 19, 20, 21, 22, 23].map { 1 << $0 }[...])
        let steps = zip(limits.dropFirst(), limits).map { $0 - $1 }
        #expect(limits.count == lane.events.count && limits.count < 20)
        #expect(steps.allSatisfy { $0 <= 64 << 20 } && steps.contains { $0 > 16 << 20 })
    }

    @Test("a client that has sent a byte reserves little more room, and no loan counts as content")
    func idle() throws {
        let test = try GatewayUnderTest(quota: 1 << 20) { settings, _ in
            settings.clients.maximumConcurrent = 32
        }
        var idle: [(exchange: ScriptedExchange, running: Running)] = []
        var ofOne: Int64 = 0
        for number in 0..<16 {
            let exchange = ScriptedExchange.creation([.bytes([1]), .stuck], length: .unknown)
                .offer(ScriptedLane())
            idle.append((exchange, try test.start(exchange)))
            try #require(exchange.waitUntilStuck())
            // The record and one byte.
            if number == 0 { ofOne = test.spool.figures.bytes }
        }
        #expect(ofOne < 32 << 10 && test.spool.figures.bytes <= 16 * ofOne)
        let lane = ScriptedLane()
        let content = [UInt8](repeating: 7, count: 200 << 10)
        let record = test.serve(
            .creation([.bytes(content)], length: .unknown).offer(lane)
        )
        #expect(record.status == 201)
        #expect(lane.events.count > 3)
        #expect(try test.drops() == [content])
        for (exchange, running) in idle {
            exchange.interrupt()
            #expect(try running.finish().isAborted)
            let location = try #require(exchange.record.location)
            #expect(test.serve(.cancellation(location)).status == 204)
        }
        // All lent room is free again.
        let full = [UInt8](repeating: 7, count: 1 << 20)
        let last = test.serve(
            .creation([.bytes(full)], complete: false, length: .unknown).offer(ScriptedLane())
        )
        #expect(last.status == 201 && last.offset == 1 << 20)
    }

    @Test("content of unknown length gets all the free room, and not a byte more")
    func lastByteOfRoom() throws {
        let test = try GatewayUnderTest(quota: 1 << 20)
        let lane = ScriptedLane()
        let content = [UInt8](repeating: 7, count: (1 << 20) + 1)
        let record = test.serve(
            .creation([.bytes(content)], complete: false, length: .unknown).offer(lane)
        )
        #expect(record.status == 507)
        let location = try #require(record.location)
        #expect(test.serve(.retrieval(location)).offset == 1 << 20)
    }

    @Test("nothing stays lent if nginx leaves before the grant, or during it")
    func returned() throws {
        let test = try GatewayUnderTest(quota: 1 << 20)
        for _ in 0..<40 {
            let record = test.serve(
                .creation([.bytesThenFails([1], .truncated)], length: .unknown)
                    .offer(ScriptedLane())
            )
            #expect(record.isAborted)
            #expect(test.serve(.cancellation(try #require(record.location))).status == 204)
            let silent = test.serve(
                .creation([.fails(.released)], length: .unknown).offer(ScriptedLane())
            )
            #expect(silent.isAborted)
            #expect(test.serve(.cancellation(try #require(silent.location))).status == 204)
        }
        let content = [UInt8](repeating: 7, count: 1 << 20)
        let last = test.serve(
            .creation([.bytes(content)], complete: false, length: .unknown).offer(ScriptedLane())
        )
        #expect(last.status == 201)
    }

    @Test("unreported bytes are cut off; reported ones never are")
    func untold() throws {
        let test = try GatewayUnderTest()
        let lane = ScriptedLane(untold: [1, 2, 3])
        let record = test.serve(
            .creation([.bytes(Self.large)], complete: false, length: .unknown).offer(lane)
        )
        #expect(record.offset == 300_000)
        let location = try #require(record.location)
        #expect(test.serve(.append(location, at: 300_000, ["x"])).status == 201)
        #expect(try test.drops() == [Self.large + Array("x".utf8)])
    }

    @Test("a client that sends little at a time is waited for, and a silent one is not")
    func slow() throws {
        let test = try GatewayUnderTest()
        let halves = [Array(Self.large[..<60_000]), Array(Self.large[60_000...])]
        let lane = ScriptedLane()
        // Written, but not yet reported.
        let slow = test.serve(
            .creation(
                [.happens { _ = lane.write(halves[0]) }, .fails(.stalled), .bytes(halves[1])],
                length: .unknown
            )
            .offer(lane)
        )
        #expect(slow.status == 201)
        #expect(try test.drops() == [Self.large])
        let silent = test.serve(
            .creation(
                [.bytes(halves[0]), .fails(.stalled), .bytes(halves[1])],
                length: .unknown
            )
            .offer(ScriptedLane())
        )
        #expect(silent.status != 201)
        #expect(try test.drops() == [Self.large])
        let location = try #require(silent.location)
        #expect(test.serve(.retrieval(location)).offset == 60_000)
    }

    @Test("an nginx that reports more than the file holds has not sent all")
    func toldTooMuch() throws {
        let test = try GatewayUnderTest()
        let record = test.serve(
            .creation([.bytes(Self.large)], length: .unknown).offer(ScriptedLane(excess: 5))
        )
        #expect(record.isAborted)
        #expect(try test.drops() == [])
        let location = try #require(record.location)
        #expect(test.serve(.retrieval(location)).offset == 300_000)
    }

    @Test("a full disk is reported as usual, and written content stays")
    func full() throws {
        let test = try GatewayUnderTest()
        let lane = ScriptedLane(errno: ENOSPC)
        let record = test.serve(
            .creation([.bytes(Self.large)], complete: false, length: .unknown).offer(lane)
        )
        #expect(record.status == 507)
        let location = try #require(record.location)
        #expect(test.serve(.retrieval(location)).offset == 300_000)
    }

    @Test(
        "content that cannot be made durable is cut off, with everything nginx wrote after it",
        arguments: [0, 1]
    )
    func failedSync(promises: Int) throws {
        let test = try GatewayUnderTest { settings, _ in
            (settings.interim.progressInterval, settings.interim.progressSize) = (.zero, 1)
        }
        let part = Array(Self.large[..<1000])
        let lane = ScriptedLane(late: Array("late".utf8))
        let record = test.serve(
            .creation(
                [ScriptedExchange.Step](repeating: .bytes(part), count: promises)
                    + [
                        .happens { test.disk.refuse(.sync, errno: SystemError.lost, times: 1) },
                        .bytes(part),
                        .bytes(part),
                    ],
                length: .unknown
            )
            .offer(lane)
        )
        #expect(record.status == 500)
        #expect(lane.events.last == "stop")
        test.disk.allow()
        let location = try #require(record.location)
        #expect(test.serve(.retrieval(location)).offset == Int64(promises * 1000))
        #expect(
            test.serve(.append(location, at: Int64(promises * 1000), ["rest"])).status == 201
        )
        let whole = [[UInt8]](repeating: part, count: promises).flatMap { $0 }
        #expect(try test.drops() == [whole + Array("rest".utf8)])
    }

    @Test(
        "an nginx that cannot use the file gets no other one before a reload",
        arguments: [EINVAL, EACCES]
    )
    func unusable(errno: Int32) throws {
        let test = try GatewayUnderTest()
        let refused = ScriptedLane(errno: errno)
        let failed = test.serve(.creation([], length: .unknown).offer(refused))
        #expect(failed.status == 500)
        let location = try #require(failed.location)
        let second = ScriptedLane()
        let rest = ScriptedExchange.append(
            location,
            at: 0,
            [.bytes(Self.large)],
            length: .unknown
        )
        #expect(test.serve(rest.offer(second)).status == 201)
        #expect(second.events == [])
        #expect(try test.drops() == [Self.large])
        #expect(test.log.messages.count { $0 == "nginx spool write failed" } == 1)
        test.reload()
        let third = ScriptedLane()
        let again = ScriptedExchange.creation([.bytes(Self.large)], length: .unknown)
        #expect(test.serve(again.offer(third)).status == 201)
        #expect(third.events.first?.hasPrefix("grant 0 ") == true)
        let counts = test.gateway.metrics.routes[0].counts.paths.all.map { "\($0.key) \($0.count)" }
        #expect(counts == ["used 2", "unusable 1"])
    }

    @Test("the quota limits what nginx may write, and the unwritten rest is free again")
    func quota() throws {
        let test = try GatewayUnderTest(quota: 70 << 20)
        let lane = ScriptedLane()
        let part = [UInt8](repeating: 7, count: 30 << 20)
        let record = test.serve(
            .creation(
                [.bytes(part), .bytes(part), .bytes(part)],
                complete: false,
                length: .unknown
            )
            .offer(lane)
        )
        #expect(record.status == 507)
        #expect(lane.events.last == "widen \(70 << 20) rest")
        let location = try #require(record.location)
        #expect(test.serve(.retrieval(location)).offset == 70 << 20)
        #expect(test.serve(.cancellation(location)).status == 204)
        let second = ScriptedLane()
        let again = test.serve(
            .creation([.bytes(part)], complete: false, length: .known(30 << 20)).offer(second)
        )
        #expect(again.status == 201)
    }

    @Test(
        "a newer request gets the upload once nginx has closed the file: by its message, or its connection",
        arguments: [false, true]
    )
    func released(isStubborn: Bool) throws {
        let test = try GatewayUnderTest()
        let lane = ScriptedLane(isStubborn: isStubborn, leavesWithConnection: true)
        let (running, location) = try Self.begin(test, lane)
        #expect(test.serve(.retrieval(location)).offset == 300_000)
        #expect(try running.finish().isAborted)
        #expect(lane.events.last == "stop" && !lane.isOpen)
    }

    @Test(
        "while nginx keeps the file, no offset of the upload is reported, and nothing is appended"
    )
    func stubborn() throws {
        let test = try GatewayUnderTest { settings, _ in settings.inUseTimeout = .milliseconds(300)
        }
        let lane = ScriptedLane(isStubborn: true)
        let (running, location) = try Self.begin(test, lane)
        let during = test.serve(.retrieval(location))
        #expect(during.offset == nil && (during.isAborted || during.status != 204))
        #expect(try running.finish().isAborted)
        let after = test.serve(.append(location, at: 300_000, ["x"]))
        #expect(after.offset == nil && after.status != 201)
        #expect(try test.drops() == [])
        lane.leave()
        #expect(test.serve(.retrieval(location)).offset == 300_000)
        #expect(test.serve(.append(location, at: 300_000, ["x"])).status == 201)
        #expect(try test.drops() == [Self.large + Array("x".utf8)])
    }
}
