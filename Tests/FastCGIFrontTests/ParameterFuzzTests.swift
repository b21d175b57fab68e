// Random FastCGI through the real listener into a real gateway: each connection gets a response or ends, and the next
// valid request is served.
//
// `make test` runs a sample; `make fuzz MINUTES=60` runs new seeds. SPOOLGATE_FUZZ_SEED=n repeats one seed.

import Foundation
import HTTPTypes
import Logging
import SpoolgateFastCGIFront
import SpoolgateJournal
import SpoolgatePosix
import SpoolgateRequests
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Testing

@Suite("Random FastCGI", .serialized)
struct ParameterFuzzTests {
    private static let environment = ProcessInfo.processInfo.environment
    private static var seeds: [UInt64] {
        environment["SPOOLGATE_FUZZ_SEED"].flatMap { UInt64($0) }.map { [$0] } ?? Array(0..<4)
    }

    @Test("no records and no parameters stop the daemon", arguments: seeds)
    func records(seed: UInt64) throws {
        let world = try FrontWorld()
        defer { world.end() }
        try world.play(seed, count: 60)
    }

    @Test("no records get an upload past an authorizer that refuses all", arguments: seeds)
    func closedGate(seed: UInt64) throws {
        let world = try FrontWorld(isClosed: true)
        defer { world.end() }
        try world.play(seed, count: 60)
    }

    @Test("any bytes as parameters give a head or a refusal", arguments: seeds)
    func parameters(seed: UInt64) { FuzzParameters(seed: seed).readMany(2_000) }

    @Test(
        "an hour as well",
        .enabled(if: environment["SPOOLGATE_FUZZ_MINUTES"] != nil)
    )
    func hour() throws {
        let minutes = Self.environment["SPOOLGATE_FUZZ_MINUTES"].flatMap { Int64($0) } ?? 1
        let deadline = Deadline.after(.seconds(60 * minutes))
        let first = UInt64(WallTime.now.seconds) << 20
        let (world, closed) = (try FrontWorld(), try FrontWorld(isClosed: true))
        defer {
            world.end()
            closed.end()
        }
        var (seed, heads) = (first, 0)
        print("fuzz: records from seed \(first) on")
        while !deadline.hasPassed {
            // Written first, because a trap ends the process.
            try Data("\(seed)\n".utf8).write(to: URL(fileURLWithPath: "/tmp/spoolgate-fuzz-front"))
            try world.play(seed, count: 60)
            try closed.play(seed, count: 60)
            FuzzParameters(seed: seed).readMany(2_000)
            heads += 2_000
            seed += 1
        }
        print(
            "fuzz: \(world.tally), closed \(closed.tally), parameters of \(heads) requests, the last seed \(seed - 1)"
        )
    }
}

/// If `closed`, an authorizer refuses every upload, and none may reach the upstream or the spool.
private final class FrontWorld {
    private let root = "/tmp/fcgi-fuzz-\(UUID().uuidString.prefix(8))"
    private let server: TestServer
    private let spool: Spool
    private let closed: (upstream: LoopbackOrigin, authorizer: LoopbackOrigin)?
    private(set) var tally = (connections: 0, responded: 0, ended: 0)

    init(isClosed: Bool = false) throws {
        var settings = Settings()
        var route = RouteSettings()
        route.upstream.targets = [.directory(path: "\(root)/delivered")]
        if isClosed {
            let authorizer = try LoopbackOrigin(status: "403 Forbidden", content: "")
            let upstream = try LoopbackOrigin(content: "")
            closed = (upstream, authorizer)
            route.upstream.targets = [.http(base: upstream.base)]
            route.authorization.url = try ServiceURL(authorizer.base)
        } else {
            closed = nil
        }
        route.limits.minSize = 0
        settings.routes[RouteSettings.defaultName] = route
        settings.inUseTimeout = .milliseconds(20)
        try FileManager.default.createDirectory(
            atPath: "\(root)/delivered",
            withIntermediateDirectories: true
        )
        let spool = try Spool(directory: "\(root)/spool")
        self.spool = spool
        let gateway = Gateway(
            settings: settings,
            spool: spool,
            log: Log(Logger(label: "fuzz") { _ in SwiftLogNoOpLogHandler() })
        )
        server = try TestServer { settings in
            settings.lingerIdle = .milliseconds(5)
        } response: {
            gateway.serve($0)
        }
    }

    func end() {
        server.stop()
        try? FileManager.default.removeItem(atPath: root)
    }

    func play(_ seed: UInt64, count: Int) throws {
        var drawn = FuzzParameters(seed: seed)
        for _ in 0..<count {
            let client = try server.client()
            client.send(drawn.connection())
            client.closeSending()
            let response = client.response()
            #expect(response.isClosed, "seed \(seed): the connection stays open")
            tally.connections += 1
            if response.status == nil { tally.ended += 1 } else { tally.responded += 1 }
        }
        let sound = Record.head(
            [("REQUEST_METHOD", "PUT"), ("REQUEST_URI", "/sound"), ("CONTENT_LENGTH", "2")]
        )
        let response = try server.exchange(sound + Record.stream(.stdin, Array("ok".utf8)))
        #expect(response.status == (closed == nil ? 201 : 403), "seed \(seed): \(response.text)")
        try checkGate(seed)
    }

    private func checkGate(_ seed: UInt64) throws {
        guard let closed else { return }
        let uploads = closed.upstream.all.filter {
            ["POST", "PUT", "PATCH"].contains($0.method.uppercased())
        }
        #expect(uploads.isEmpty, "seed \(seed): \(uploads.map(\.line)) reached the upstream")
        var count = 0
        try spool.forEachUpload { _ in count += 1 }
        #expect(count == 0, "seed \(seed): an upload is in the spool")
        for origin in [closed.upstream, closed.authorizer] { origin.forget { _ in true } }
    }
}

private struct FuzzParameters {
    private var random: SplitMix

    init(seed: UInt64) { random = SplitMix(seed: seed) }

    func readMany(_ count: Int) {
        var drawn = self
        for _ in 0..<count {
            let all = drawn.pairs().map { $0.0 + [UInt8(ascii: "=")] + $0.1 }
            let last = drawn.bytes(20)
            let ((head, _), seconds) = ProcessorTime.of { RequestParameters.read(all + [last]) }
            #expect(seconds < 1)
            if case .failure(let refusal) = head {
                #expect([400, 414, 431, 500].contains(refusal.status.code))
            }
        }
    }

    private mutating func bytes(_ maximum: UInt64) -> [UInt8] {
        (0..<random.next() % (maximum + 1)).map { _ in UInt8(truncatingIfNeeded: random.next()) }
    }

    private static let names = [
        "REQUEST_METHOD", "REQUEST_URI", "CONTENT_LENGTH", "CONTENT_TYPE", "FCGI_ROLE",
        "REMOTE_ADDR", "REQUEST_SCHEME", "SPOOLGATE_ROUTE", "SPOOLGATE_OWNER", "SPOOLGATE_ORIGIN",
        "SPOOLGATE_INTERIM", "SPOOLGATE_BODY_FILE", "HTTP_HOST", "HTTP_UPLOAD_OFFSET",
        "HTTP_UPLOAD_COMPLETE", "HTTP_UPLOAD_LENGTH", "HTTP_UPLOAD_DRAFT_INTEROP_VERSION",
        "HTTP_TUS_RESUMABLE", "HTTP_X_HTTP_METHOD_OVERRIDE", "HTTP_UPLOAD_CONCAT",
        "HTTP_EXPECT", "HTTP_CONNECTION", "HTTP_", "HTTP__", "HTTP_:PATH", "HTTPS", "",
    ]
    private static let values = [
        "", "PUT", "POST", "PATCH", "HEAD", "/", "/a", "*", "/a/upload-resource/", "-1", "0", "5",
        "9223372036854775807", "9223372036854775808", "99999999999999999999", "?1", "?0", "10", "3",
        "RESPONDER", "http://localhost", "https://[::1]:65535", "http://localhost:99999",
        "http://u@h", "104", "104 100", "999", "100-continue", "default", "keep-alive", "1.0.0",
        "put", "partial", "final;/a", "\u{0}",
        "alice\u{0}x", "\u{FF}", "\t", "a\r\nb: c",
    ]

    private mutating func pairs() -> [([UInt8], [UInt8])] {
        var pairs: [([UInt8], [UInt8])] = []
        if !random.once(in: 6) {
            let method = random.one(of: "PUT", "POST", "PATCH", "HEAD", "GET", "OPTIONS")
            pairs.append((Array("REQUEST_METHOD".utf8), Array(method.utf8)))
            pairs.append((Array("REQUEST_URI".utf8), Array("/f".utf8)))
        }
        for _ in 0..<random.next() % 12 {
            let name =
                random.once(in: 10) ? bytes(12) : Array(random.one(from: Self.names).utf8)
            var value = Array(random.one(from: Self.values).utf8)
            if random.once(in: 8) { value = bytes(40) }
            if random.once(in: 200) { value = [UInt8](repeating: 0x61, count: 70_000) }
            pairs.append((name, value))
        }
        return pairs
    }

    mutating func connection() -> [UInt8] {
        if random.once(in: 12) { return bytes(200) }
        var all = Record.begin(
            role: random.one(of: 1, 1, 1, 1, 2, 3, 0, 65_535),
            keepsConnection: random.once(in: 4)
        )
        if random.once(in: 12) { all += stray() }
        var parameters = pairs().flatMap { length($0.0.count) + length($0.1.count) + $0.0 + $0.1 }
        if random.once(in: 10), !parameters.isEmpty {
            let index = Int(random.next() % UInt64(parameters.count))
            parameters[index] = UInt8(truncatingIfNeeded: random.next())
        }
        all += Record.stream(
            .params,
            parameters,
            size: random.one(of: 65_535, 65_535, 8_192, 7, 1),
            padding: random.one(of: 0, 0, 1, 255),
            isEnded: !random.once(in: 12)
        )
        if random.once(in: 12) { all += stray() }
        all += Record.stream(
            .stdin,
            [UInt8](repeating: 0x61, count: random.one(of: 0, 0, 2, 5, 70_000)),
            size: random.one(of: 65_535, 3),
            isEnded: !random.once(in: 6)
        )
        if random.once(in: 8) { all = Array(all.prefix(Int(random.next() % UInt64(all.count)))) }
        return all
    }

    /// Of one or four bytes, and occasionally invalid.
    private mutating func length(_ count: Int) -> [UInt8] {
        if random.once(in: 150) { return bytes(4) }
        if count < 128, !random.once(in: 8) { return [UInt8(count)] }
        return [UInt8(count >> 24) | 0x80, UInt8(count >> 16 & 255), UInt8(count >> 8 & 255)]
            + [UInt8(count & 255)]
    }

    private mutating func stray() -> [UInt8] {
        let head: [UInt8] = [
            random.one(of: 1, 1, 1, 0, 2), UInt8(truncatingIfNeeded: random.next() % 14), 0,
            random.one(of: 0, 1, 2), 0, 4, 0, 0,
        ]
        return head + [1, 2, 3, 4]
    }
}
