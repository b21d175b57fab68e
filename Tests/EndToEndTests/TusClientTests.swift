// Unmodified clients of tus 1.0.

import Foundation
import SpoolgateTestSupport
import Testing

@Suite("tus clients", .enabled(if: TusClient.areInstalled, TusClient.missing))
struct TusClientTests {
    private static let tries = ["--retries", "500"]

    @Test(
        "a file in one piece, also an empty one",
        arguments: TusClient.allCases,
        [0, 1, 5_000_003]
    )
    func whole(client: TusClient, size: Int) throws {
        let scene = try TusScene()
        let (file, bytes) = try scene.sandbox.randomFile(size)
        let report = try scene.start(client, [file], ["--chunk", "8000000"]).report()
        #expect(report.errors == [])
        #expect(report.url != nil)
        try scene.expectOnce(bytes)
        #expect(try scene.requests("PATCH") == (size == 0 ? 0 : 1))
    }

    @Test("in pieces", arguments: TusClient.allCases)
    func chunked(client: TusClient) throws {
        let scene = try TusScene()
        let (file, bytes) = try scene.sandbox.randomFile(1_000_017)
        let report = try scene.start(client, [file], ["--chunk", "100000"]).report()
        #expect(report.errors == [])
        try scene.expectOnce(bytes)
        #expect(try scene.requests("PATCH") == 11)
    }

    @Test("in pieces, each with its checksum")
    func checksummed() throws {
        let scene = try TusScene()
        let (file, bytes) = try scene.sandbox.randomFile(900_000)
        let options = ["--chunk", "400000", "--checksum"]
        let report = try scene.start(.tuspy, [file], options).report()
        #expect(report.errors == [])
        #expect(report.offset == bytes.count)
        try scene.expectOnce(bytes)
    }

    @Test("a length that is sent with the second half")
    func deferred() throws {
        let scene = try TusScene()
        let (file, bytes) = try scene.sandbox.randomFile(1_200_000)
        let options = ["--chunk", "250000", "--deferred"]
        let report = try scene.start(.aiotus, [file], options).report()
        #expect(report.errors == [])
        try scene.expectOnce(bytes)
    }

    @Test("several files become one, delivered once, and no partial upload by itself")
    func concatenated() throws {
        let scene = try TusScene()
        let (files, bytes) = try Self.parts(scene, [700_000, 1, 300_000, 65_536])
        let report = try scene.start(.aiotus, files, ["--chunk", "200000"]).report()
        #expect(report.errors == [])
        #expect(report.url != nil)
        try scene.expectOnce(bytes)
    }

    // MARK: Metadata

    private static let metadata = ["filename": "Übung – 1 (*'x').txt", "filetype": "text/x-note"]

    @Test("the file's name and type reach the upstream, and the client again")
    func metadata() throws {
        for client in TusClient.allCases {
            let scene = try TusScene()
            let (file, bytes) = try scene.sandbox.randomFile(1_000)
            let report = try scene.start(client, [file], try Self.metadataOptions()).report()
            #expect(report.errors == [])
            let heard = try scene.expectOnce(bytes)
            let name = heard.disposition?.replacing("attachment; filename*=UTF-8''", with: "")
            #expect(name?.removingPercentEncoding == Self.metadata["filename"], "\(client)")
            #expect(heard.type == Self.metadata["filetype"], "\(client)")
            if client == .aiotus { #expect(report.metadata == Self.metadata) }
        }
    }

    @Test("in a form they are the file's too", arguments: TusClient.allCases)
    func form(client: TusClient) throws {
        let scene = try TusScene(routeSettings: ["form: multipart"])
        let (file, bytes) = try scene.sandbox.randomFile(300_000)
        let report = try scene.start(client, [file], try Self.metadataOptions()).report()
        #expect(report.errors == [])
        let heard = try scene.heard()
        #expect(heard.count == 1)
        let files = try #require(heard.first).files.byField.values
        #expect(files.map(\.name) == [Self.metadata["filename"]])
        #expect(files.map(\.type) == [Self.metadata["filetype"]])
        #expect(files.map(\.sha1) == [try RealUpstream.sha1(of: bytes)])
    }

    private static func metadataOptions() throws -> [String] {
        let text = try JSONSerialization.data(withJSONObject: metadata)
        return ["--metadata", String(decoding: text, as: UTF8.self)]
    }

    // MARK: An interrupted network

    @Test("cut in the middle, it resumes at the server's offset", arguments: TusClient.allCases)
    func cut(client: TusClient) throws {
        let scene = try TusScene()
        let (file, bytes) = try scene.sandbox.randomFile(4_000_000)
        scene.network.hold(at: 3_000_000)
        let run = try scene.start(client, [file], ["--chunk", "4000000"] + Self.tries)
        try eventually("most of the content is received") {
            try scene.sandbox.spooledOffset() > 2_000_000
        }
        try Self.cut(scene)
        let report = try run.report()
        #expect(report.url != nil)
        try scene.expectOnce(bytes)
        #expect(scene.network.passed < 3_000_000 + 2_000_000 + 100_000)
    }

    @Test("cut while it uploads several partial uploads, it resumes each")
    func cutInParts() throws {
        let scene = try TusScene()
        let (files, bytes) = try Self.parts(scene, [1_500_000, 1_600_000, 1_700_000])
        scene.network.hold(at: 1_000_000)
        let run = try scene.start(.aiotus, files, ["--chunk", "2000000"] + Self.tries)
        try eventually("all parts are being received") { scene.network.passed >= 3_000_000 }
        try Self.cut(scene)
        #expect(try run.report().url != nil)
        try scene.expectOnce(bytes)
    }

    @Test("killed and restarted, it resumes its upload")
    func killed() throws {
        let scene = try TusScene()
        let (file, bytes) = try scene.sandbox.randomFile(4_000_000)
        let options = ["--store", scene.sandbox.directory.path() + "/uploads.json"] + Self.tries
        scene.network.hold(at: 3_000_000)
        let first = try scene.start(.tuspy, [file], options)
        try eventually("most of the content is received") {
            try scene.sandbox.spooledOffset() > 2_000_000
        }
        first.kill()
        scene.network.hold(at: nil)
        let report = try scene.start(.tuspy, [file], options).report()
        #expect(report.offset == bytes.count)
        #expect(report.began.map { $0 > 2_000_000 } == true)
        try scene.expectOnce(bytes)
        #expect(try scene.requests("POST") == 1)
    }

    /// Cuts the network until the client has noticed.
    private static func cut(_ scene: TusScene) throws {
        scene.network.cut()
        try eventually("the client tries again") { scene.network.refused > 0 }
        scene.network.hold(at: nil)
        scene.network.restore()
    }

    // MARK: An upstream that refuses

    // Long because each client meets each status, in a sandbox of its own.
    @Test(
        "the upstream's refusal is reported, and nothing is sent again",
        arguments: TusClient.allCases,
        [400, 422, 409, 500, 503]
    )
    func refused(client: TusClient, status: Int) throws {
        let scene = try TusScene()
        let (file, bytes) = try scene.sandbox.randomFile(400_000)
        let options = ["--retries", "3"]
        let query = "?status=\(status)"
        let report = try scene.start(client, [file], query: query, options).report()
        #expect(report.url == nil)
        #expect(report.met(Self.told(status)), "\(report.errors)")
        // A further request gets 410.
        #expect(report.met(410), "\(report.errors)")
        if client == .tuspy {
            // The content of PHP's response.
            #expect(report.errors.last?.contains("\"markers\":[]") == true, "\(report.errors)")
        }
        try scene.expectOnce(bytes)
        #expect(try scene.requests("PATCH") == 1)
    }

    @Test(
        "a repeated request for a refused concatenation gets the same refusal",
        arguments: [422, 500]
    )
    func refusedParts(status: Int) throws {
        let scene = try TusScene()
        let (files, bytes) = try Self.parts(scene, [200_000, 100_000])
        let query = "?status=\(status)"
        let report = try scene.start(.aiotus, files, query: query, ["--retries", "3"]).report()
        #expect(report.url == nil)
        #expect(report.errors.count == 4)
        #expect(report.met(Self.told(status)), "\(report.errors)")
        try scene.expectOnce(bytes)
        // Two parts, and the same creation four times.
        #expect(try scene.requests("POST") == 6)
    }

    /// Never a status after which a tus client would send the upload again.
    private static func told(_ status: Int) -> Int {
        status < 500 && status != 409 ? status : 424
    }

    // MARK: An unreachable upstream

    @Test(
        "it waits for an upstream that is down, and sends nothing again",
        arguments: TusClient.allCases
    )
    func upstreamDown(client: TusClient) throws {
        let scene = try TusScene(isUpstreamUp: false)
        let (file, bytes) = try scene.sandbox.randomFile(600_000)
        let run = try scene.start(client, [file], Self.tries)
        try eventually("a delivery failed") { scene.sandbox.log.contains("deferred") }
        try scene.startUpstream()
        #expect(try run.report().url != nil)
        try scene.expectOnce(bytes)
        #expect(scene.network.passed < bytes.count + 400_000)
    }

    @Test("so does one that concatenates uploads")
    func upstreamDownForParts() throws {
        let scene = try TusScene(isUpstreamUp: false)
        let (files, bytes) = try Self.parts(scene, [200_000, 100_000])
        let run = try scene.start(.aiotus, files, Self.tries)
        try eventually("a delivery failed") { scene.sandbox.log.contains("deferred") }
        try scene.startUpstream()
        #expect(try run.report().url != nil)
        try scene.expectOnce(bytes)
    }

    private static func parts(_ scene: TusScene, _ sizes: [Int]) throws -> ([URL], Data) {
        let files = try sizes.enumerated().map { try scene.sandbox.randomFile($1, "part-\($0)") }
        return (files.map(\.url), files.reduce(Data()) { $0 + $1.bytes })
    }
}
