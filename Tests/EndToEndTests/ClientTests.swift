// The client library against the gateway behind nginx, through an unreliable network.

import Foundation
import HTTPTypes
import ResumableUpload
import SpoolgatePosix
import SpoolgateTestSupport
import Testing

struct ClientWay: CustomTestStringConvertible, Sendable {
    var version: Int?
    var creation: Upload.Options.Creation
    var isStream: Bool
    var http: Transfer.Connection.Version

    var testDescription: String {
        "\(version.map { "version \($0)" } ?? "no version"), \(creation), "
            + "\(isStream ? "stream" : "file"), \(http)"
    }

    static func all(_ version: Int?) -> [ClientWay] {
        [Upload.Options.Creation.careful, .optimistic].flatMap { creation in
            [false, true].flatMap { isStream in
                [Transfer.Connection.Version.http1, .http2].map {
                    ClientWay(version: version, creation: creation, isStream: isStream, http: $0)
                }
            }
        }
    }
}

private final class ClientWorld {
    let sandbox: Sandbox
    let proxy: CuttingProxy
    let secureProxy: CuttingProxy
    let events = Monitor<[Upload.Event]>([])

    init() throws {
        sandbox = try Sandbox(front: .nginxWithModule, origin: "$scheme://$http_host")
        proxy = try CuttingProxy(to: sandbox.port)
        secureProxy = try CuttingProxy(to: sandbox.tlsPort)
    }

    func proxy(_ way: ClientWay) -> CuttingProxy { way.http == .http2 ? secureProxy : proxy }

    func url(_ way: ClientWay, _ name: String) -> String {
        way.http == .http2
            ? "https://localhost:\(secureProxy.port)/files/\(name)"
            : "http://127.0.0.1:\(proxy.port)/files/\(name)"
    }

    func options(_ way: ClientWay) -> Upload.Options {
        var options = Upload.Options()
        options.interopVersion = way.version
        options.creation = way.creation
        options.plainBelow = 0
        options.window = 1 << 20
        options.connection.version = way.http
        options.connection.firstPause = .milliseconds(20)
        options.connection.retryFor = .seconds(120)
        options.connection.certificateAuthority = sandbox.directory.path() + "/nginx/server.pem"
        return options
    }

    func upload(_ body: Upload.Body, _ way: ClientWay, _ name: String) -> Upload {
        Upload(body, to: url(way, name), options: options(way)) { [events] event in
            events.update { $0.append(event) }
        }
    }

    /// Whether the latest attempts failed: on a slow disk an optimistic creation may be cut before it knows its upload,
    /// wait longer each time and give up.
    static func isDiscouraged(_ events: Monitor<[Upload.Event]>) -> Bool {
        let vain = events.update { events in
            events.reversed().prefix { event in
                switch event {
                case .waiting: true
                case .progress(let progress): progress.received == 0
                default: false
                }
            }.count { if case .waiting = $0 { true } else { false } }
        }
        return vain >= 4
    }

    func delivered(_ name: String) throws -> [Data] {
        try sandbox.delivered().filter { $0.lastPathComponent.hasSuffix(name) }
            .map { try Data(contentsOf: $0) }
    }

    static func stream(_ bytes: Data) -> AsyncStream<[UInt8]> {
        AsyncStream { continuation in
            var rest = bytes[...]
            var size = 1_000
            while !rest.isEmpty {
                continuation.yield(Array(rest.prefix(size)))
                rest = rest.dropFirst(size)
                size = size * 5 % 65_537
            }
            continuation.finish()
        }
    }
}

@Suite("The client library through nginx")
struct ClientTests {
    // Long because each cut is followed by the pause of a real client, in every version.
    @Test(
        "each way of uploading, cut at random places, is delivered once and byte-identical",
        arguments: Portion.ofThisRun.taken(
            from: [nil] + Upload.Options.interopVersions.map(Optional.init),
            of: 3
        )
    )
    func cutAtRandomPlaces(version: Int?) async throws {
        let world = try ClientWorld()
        var random = SplitMix(seed: UInt64(version ?? 0))
        let places = 0..<(3 << 20)
        for (index, way) in ClientWay.all(version).enumerated() {
            let name = "way-\(index).bin"
            // Before the 104, only unsent content shows the client that a cut request was incomplete.
            let size = way.creation == .optimistic ? 24 << 20 : 3 << 20
            let file = try world.sandbox.randomFile(size, name)
            let body: Upload.Body =
                way.isStream ? .stream(ClientWorld.stream(file.bytes)) : .file(file.url.path())
            let proxy = world.proxy(way)
            let passed = proxy.passed
            proxy.cut(at: (0..<3).map { _ in passed + Int.random(in: places, using: &random) })
            let response = try await world.upload(body, way, name).run()
            #expect(response.status.code == 201, "\(way.testDescription)")
            #expect(proxy.cutsLeft == 0)
            proxy.cut(at: [])
            let delivered = try world.delivered(name)
            #expect(delivered.count == 1, "\(way.testDescription)")
            #expect(delivered.first == file.bytes, "\(way.testDescription)")
        }
    }

    // Long because each cut is followed by the pause of a real client.
    @Test("twenty cuts in one upload", arguments: ClientWay.all(10))
    func twentyCuts(way: ClientWay) async throws {
        let world = try ClientWorld()
        var random = SplitMix(seed: 20)
        let file = try world.sandbox.randomFile(24 << 20)
        let body: Upload.Body =
            way.isStream
            ? .stream(ClientWorld.stream(file.bytes), length: 24 << 20) : .file(file.url.path())
        let proxy = world.proxy(way)
        let places = (0..<20).map { _ in Int.random(in: 0..<(24 << 20), using: &random) }
        proxy.cut(at: places) { [events = world.events] in !ClientWorld.isDiscouraged(events) }
        let response = try await world.upload(body, way, "film.mkv").run()
        #expect(response.status.code == 201)
        #expect(proxy.cutsLeft == 0)
        #expect(try world.delivered("film.mkv") == [file.bytes])
        let waits = world.events.update { $0 }.filter {
            if case .waiting = $0 { true } else { false }
        }
        #expect(waits.count >= 15)
    }

    @Test(
        "a stream is one append while the gateway reports durable offsets, and a second one completes it",
        arguments: [Transfer.Connection.Version.http1, .http2]
    )
    func openAppend(http: Transfer.Connection.Version) async throws {
        let world = try ClientWorld()
        let file = try world.sandbox.randomFile(40 << 20)
        let way = ClientWay(version: 10, creation: .careful, isStream: true, http: http)
        // The report at 4 MiB arrives before the append has sent half the window.
        let first = 6 << 20
        let isReported = Gate()
        let sent = Monitor(0)
        let stream = AsyncThrowingStream<[UInt8], any Error> {
            let start = sent.update { $0 }
            if start >= first { try await isReported.passed() }
            let piece = Array(file.bytes[start..<min(start + 65_536, file.bytes.count)])
            sent.update { $0 += piece.count }
            return piece.isEmpty ? nil : piece
        }
        var options = world.options(way)
        options.window = 16 << 20
        let name = "open.bin"
        let upload = Upload(.stream(stream), to: world.url(way, name), options: options) { event in
            if case .progress(let progress) = event, progress.received > 0 { isReported.open() }
        }
        #expect(try await upload.run().status.code == 201)
        #expect(try world.delivered(name) == [file.bytes])
        let received = world.sandbox.log.split(separator: "\n").filter {
            $0.contains("content received")
        }
        // Creation, append and final append; one more if the first report took over a second.
        #expect((3...4).contains(received.count), "\(received)")
    }

    @Test("a cut ordinary request starts over and is delivered once")
    func plain() async throws {
        let world = try ClientWorld()
        let file = try world.sandbox.randomFile(24 << 20)
        let way = ClientWay(version: 10, creation: .plain, isStream: false, http: .http1)
        world.proxy.cut(at: [1 << 20, 3 << 20])
        let response = try await world.upload(.file(file.url.path()), way, "plain.bin").run()
        #expect(response.status.code == 201)
        #expect(world.proxy.cutsLeft == 0)
        #expect(try world.delivered("plain.bin") == [file.bytes])
    }

    @Test("a network outage")
    func away() async throws {
        let world = try ClientWorld()
        let file = try world.sandbox.randomFile(8 << 20)
        let way = ClientWay(version: 10, creation: .careful, isStream: false, http: .http1)
        world.proxy.hold(at: 4 << 20)
        let upload = world.upload(.file(file.url.path()), way, "away.bin")
        let run = Task { try await upload.run() }
        try await comesTrue("half the content is sent") { world.proxy.passed >= 4 << 20 }
        world.proxy.cut()
        try await comesTrue("it tried again") { world.proxy.refused >= 4 }
        world.proxy.hold(at: nil)
        world.proxy.restore()
        #expect(try await run.value.status.code == 201)
        #expect(try world.delivered("away.bin") == [file.bytes])
    }

    @Test("an upload is paused and resumed from the token's text; one that expired starts over")
    func pausedAndGone() async throws {
        let world = try ClientWorld()
        let file = try world.sandbox.randomFile(16 << 20)
        let way = ClientWay(version: 10, creation: .optimistic, isStream: false, http: .http1)
        for isGone in [false, true] {
            let name = isGone ? "gone.bin" : "paused.bin"
            let passed = world.proxy.passed
            world.proxy.hold(at: 2 << 20)
            let upload = world.upload(.file(file.url.path()), way, name)
            let run = Task { try await upload.run() }
            try await comesTrue("some content is sent") { world.proxy.passed >= passed + (2 << 20) }
            try await comesTrue("the resource is named") { upload.token != nil }
            let paused = await upload.pause()
            let token = try #require(paused.flatMap { Upload.Token($0.text) })
            #expect(paused == token && !token.mayBeComplete)
            do {
                _ = try await run.value
                Issue.record("the upload was not paused")
            } catch let error as TransferError {
                #expect(error.kind == .paused && error.token == token)
            }
            world.proxy.hold(at: nil)
            if isGone { try Upload.remove(token, options: world.options(way)) }
            let events = Monitor<[Upload.Event]>([])
            let response = try await Upload.resume(
                from: token,
                body: .file(file.url.path()),
                options: world.options(way)
            ) { event in events.update { $0.append(event) } }.run()
            #expect(response.status.code == 201)
            let anew = events.update { $0 }.contains {
                if case .begunAnew = $0 { true } else { false }
            }
            #expect(anew == isGone)
            #expect(try world.delivered(name) == [file.bytes])
        }
    }

    @Test("a changed file is refused, and nothing is delivered")
    func changed() async throws {
        let world = try ClientWorld()
        let file = try world.sandbox.randomFile(16 << 20, "changed.bin")
        let way = ClientWay(version: 10, creation: .careful, isStream: false, http: .http1)
        world.proxy.hold(at: 2 << 20)
        let upload = world.upload(.file(file.url.path()), way, "changed.bin")
        let run = Task { try await upload.run() }
        try await comesTrue("some content is sent") { world.proxy.passed >= 2 << 20 }
        let token = try #require(await upload.pause())
        await #expect(throws: TransferError.self) { try await run.value }
        world.proxy.hold(at: nil)
        try Data(file.bytes.reversed()).write(to: file.url)
        let again = Upload.resume(
            from: token,
            body: .file(file.url.path()),
            options: world.options(way)
        )
        do {
            _ = try await again.run()
            Issue.record("a changed file was uploaded")
        } catch let error as TransferError {
            #expect(error.kind == .changed && error.reason.contains("changed.bin"))
        }
        #expect(try world.sandbox.delivered().isEmpty)
    }
}
