// Random requests, records and phases: each request gets a response or a closed connection and never ends the process.
//
// A seed is a gateway with random settings. `make test` runs a sample; `make fuzz MINUTES=60` runs new seeds for that
// long. A trap ends the process, so each seed is written first; SPOOLGATE_FUZZ_SEED=n repeats it.

import Foundation
import HTTPTypes
@testable import SpoolgateDelivery
import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Synchronization
import Testing

@testable import SpoolgateRequests
@testable import SpoolgateSettings
@testable import SpoolgateSpool

@Suite("Random requests")
struct RequestFuzzTests {
    private static let environment = ProcessInfo.processInfo.environment

    private static var seeds: [UInt64] {
        environment["SPOOLGATE_FUZZ_SEED"].flatMap { UInt64($0) }.map { [$0] } ?? Array(0..<24)
    }

    @Test("no request on any upload stops the daemon", arguments: seeds)
    func world(seed: UInt64) throws {
        let world = try FuzzWorld(seed: seed)
        try world.play()
        #expect(world.requests > 0)
    }

    @Test("no request gets an upload past a closed gate", arguments: seeds)
    func closedGate(seed: UInt64) throws {
        let gate = try GateFuzz(seed: seed)
        try gate.play()
        #expect(gate.requests > 0)
    }

    @Test(
        "an hour of requests neither",
        .enabled(if: environment["SPOOLGATE_FUZZ_MINUTES"] != nil)
    )
    func hour() throws {
        let minutes = Self.environment["SPOOLGATE_FUZZ_MINUTES"].flatMap { Int64($0) } ?? 1
        let deadline = Deadline.after(.seconds(60 * minutes))
        let first =
            Self.environment["SPOOLGATE_FUZZ_SEED"].flatMap { UInt64($0) }
            ?? UInt64(WallTime.now.seconds) << 20
        var tally = (worlds: 0, uploads: 0, joined: 0, requests: 0, recoveries: 0)
        var statuses: [Int: Int] = [:]
        var refused = 0
        print("fuzz: requests from seed \(first) on")
        while !deadline.hasPassed {
            let seed = first + UInt64(tally.worlds)
            try Data("\(seed)\n".utf8).write(to: URL(fileURLWithPath: "/tmp/spoolgate-fuzz-seed"))
            let world = try FuzzWorld(seed: seed)
            try world.play()
            let gate = try GateFuzz(seed: seed)
            try gate.play()
            refused += gate.requests
            tally.worlds += 1
            tally.uploads += world.uploads
            tally.joined += world.joined
            tally.requests += world.requests
            tally.recoveries += world.recoveries
            statuses.merge(world.statuses) { $0 + $1 }
            if tally.worlds % 1_000 == 0 { print("fuzz: \(tally)") }
        }
        let responses = statuses.sorted { $0.key < $1.key }.map { "\($0.key): \($0.value)" }
        print("fuzz: responses by status, 0 for a closed connection: \(responses)")
        print(
            "fuzz: \(tally), \(refused) requests at a closed gate, the last seed \(first + UInt64(max(0, tally.worlds - 1)))"
        )
    }
}

private final class FuzzWorld {
    private let test: GatewayUnderTest
    private let origin: LoopbackOrigin?
    private var drawn: FuzzRequests
    private var damage: FuzzRecords
    private var random: SplitMix
    private let hasQueue: Bool
    private let seed: UInt64
    private(set) var uploads = 0
    private(set) var joined = 0
    private(set) var requests = 0
    private(set) var recoveries = 0
    private(set) var statuses: [Int: Int] = [:]

    init(seed: UInt64) throws {
        var random = SplitMix(seed: seed)
        self.seed = seed
        hasQueue = random.once(in: 3)
        var target: UpstreamTarget?
        switch random.next() % 4 {
        case 0: origin = nil
        case 1:
            origin = nil
            target = .http(base: "http://127.0.0.1:1")
        default:
            let origin = try Self.origin(seed)
            self.origin = origin
            target = origin.target
        }
        let isHTTP = target != nil
        test = try GatewayUnderTest(
            target,
            quota: random.one(of: nil, nil, 30, 400_000)
        ) { settings, route in
            Self.draw(&settings, &route, isHTTP: isHTTP, &random)
        }
        drawn = FuzzRequests(random: SplitMix(seed: random.next()))
        damage = FuzzRecords(
            random: SplitMix(seed: random.next()),
            spool: "\(test.root)/spool",
            writer: test.spool.writer
        )
        self.random = random
    }

    private static func draw(
        _ settings: inout Settings,
        _ route: inout RouteSettings,
        isHTTP: Bool,
        _ random: inout SplitMix
    ) {
        settings.inUseTimeout = .milliseconds(5)
        settings.interim.progressSize = random.one(of: 0, 1, 1 << 20)
        settings.interim.progressInterval = random.one(of: .zero, .seconds(5))
        settings.interim.heartbeat = random.one(of: .zero, .nanoseconds(1), .seconds(5))
        settings.correlationField = HTTPField.Name("x-request-id")
        route.reply = random.one(of: .upstream, .upstream, .accepted)
        route.honoursIdempotencyKey = random.once(in: 2)
        route.uploadResources = random.one(of: nil, nil, "/r/")
        route.limits = UploadLimits(
            maxSize: random.one(of: 10, 300_000, 999_999_999_999_999),
            minSize: random.one(of: 0, 0, 6),
            maxAppendSize: random.one(of: nil, nil, 7, 999_999_999_999_999),
            maxAge: random.one(of: 60, 86_400, 31_536_000)
        )
        route.tus = random.one(of: .on, .on, .on, .on, .on, .off, .pass)
        defer { if route.contradiction != nil { route.tus = .on } }
        route.tusFinalResponse = random.one(from: TusFinalResponse.allCases)
        route.maxResponseSize = random.one(of: 0, 3, 256 << 10)
        route.digest = random.one(of: nil, .sha256, .sha512)
        route.queue.minimumBackoff = .seconds(1)
        route.queue.maximumBackoff = random.one(of: .seconds(1), .seconds(604_800))
        route.queue.lifetime = random.one(of: .seconds(60), .seconds(31_536_000))
        if isHTTP { route.form = random.one(of: .body, .multipart) }
        route.fields.credentials = random.one(of: .creation, .completing, .none)
        route.fields.forwarding = random.one(from: FieldPolicy.Forwarding.allCases)
    }

    private static func origin(_ seed: UInt64) throws -> LoopbackOrigin {
        let shared = Mutex(SplitMix(seed: seed &+ 1))
        return try LoopbackOrigin { connection in
            _ = try connection.receiveRequest()
            let (status, content, breaks) = shared.withLock { random in
                (
                    random.one(of: 200, 201, 204, 304, 409, 413, 429, 500, 503, 999),
                    random.one(of: "", "ok", "long enough"), random.once(in: 8)
                )
            }
            if breaks { return }
            let hasContent = status != 204 && status != 304
            try connection.send("HTTP/1.1 \(status) Said\r\nRetry-After: 9223372036854775807\r\n")
            try connection.send("Content-Length: \(hasContent ? content.utf8.count : 0)\r\n")
            try connection.send("Connection: close\r\n\r\n\(hasContent ? content : "")")
        }
    }

    func play() throws {
        if hasQueue { try test.gateway.deliveries.startQueue() }
        for _ in 0..<12 {
            let creation = drawn.creation()
            let record = serve(creation)
            let location = path(record.location)
            guard let id = location.split(separator: "/").last.flatMap({ UploadID(String($0)) })
            else { continue }
            uploads += 1
            if creation.request.fields[.uploadConcat] == "partial" || random.once(in: 4) {
                drawn.remember(location)
                // Only undamaged uploads can be joined.
                if !random.once(in: 3) { continue }
            }
            for _ in 0..<2 + random.next() % 8 {
                if random.once(in: 3) { damage.damage(id) }
                if hasQueue, random.once(in: 4) { test.gateway.deliveries.runQueue() }
                let size = random.once(in: 4) ? 0 : damage.size(of: id)
                serve(drawn.next(.init(location: location, size: size)))
            }
            _ = try test.summaries()
        }
        _ = test.gateway.deliveries.stopQueue(until: .after(.seconds(10)))
        try recover()
    }

    private func lengthFault(
        _ record: ScriptedExchange.Record,
        _ request: RequestHead
    ) -> String? {
        guard !record.isAborted, record.leavesAfter == nil, request.method != .head,
            let length = record.contentLength, Int64(record.content.count) != length
        else { return nil }
        return "\(record.content.count) bytes instead of \(length)"
    }

    @discardableResult
    private func serve(_ exchange: ScriptedExchange) -> ScriptedExchange.Record {
        let (record, seconds) = ProcessorTime.of { test.serve(exchange) }
        // An honest request takes some milliseconds; debug builds and sanitizers multiply them.
        if seconds > 5 { Issue.record("seed \(seed): \(seconds) s for \(exchange.request)") }
        let fault = record.faults.first ?? lengthFault(record, exchange.request)
        if let fault { Issue.record("seed \(seed): \(fault): \(exchange.request) \(record)") }
        requests += 1
        let isFinal = exchange.request.fields[.uploadConcat]?.hasPrefix("final;") ?? false
        if isFinal, record.status == 201, record.location != nil { joined += 1 }
        statuses[record.isAborted ? 0 : record.status ?? 0, default: 0] += 1
        return record
    }

    private func path(_ location: String?) -> String {
        guard let location else { return "/files" }
        guard let scheme = location.range(of: "://") else { return location }
        return location[scheme.upperBound...].firstIndex(of: "/").map { String(location[$0...]) }
            ?? "/"
    }

    /// Recovers as the next daemon does, also after a power failure.
    private func recover() throws {
        let writer = random.once(in: 2) ? "another" : nil
        let spool = try Spool(directory: "\(test.root)/spool") { $0.writer = writer }
        _ = spool.recover()
        recoveries += 1
    }
}
