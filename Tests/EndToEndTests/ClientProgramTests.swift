// The programs in docs/CLIENT.md, unchanged, against the gateway behind nginx.

import Foundation
import SpoolgateTestSupport
import Testing

@Suite("The programs in docs/CLIENT.md")
struct ClientProgramTests {
    private static let page =
        (try? String(
            contentsOf: Sandbox.root.appending(path: "docs/CLIENT.md"),
            encoding: .utf8
        )) ?? ""

    private static func built(_ name: String) -> String {
        URL(filePath: Sandbox.program).deletingLastPathComponent().appending(path: name).path()
    }

    /// Whether the page shows the program as built.
    private static func isShown(_ source: String) throws -> Bool {
        let source = Sandbox.root.appending(path: source)
        return page.contains(try String(contentsOf: source, encoding: .utf8))
    }

    @Test("one streams, pauses and continues in another process")
    func streamAndResume() throws {
        let sandbox = try Sandbox(front: .nginxWithModule, origin: "$scheme://$http_host")
        let proxy = try CuttingProxy(to: sandbox.port)
        let token = sandbox.directory.appending(path: "token").path()
        let url = "http://127.0.0.1:\(proxy.port)/files/made.bin"
        // Keeps the upload incomplete, however late the program pauses.
        proxy.hold(at: 24 << 20)
        let first = try Command(Self.built("stream-and-resume"), [url, token])
        #expect(first.output == "paused\n", "\(first.errors)")
        #expect(try sandbox.delivered().isEmpty)
        proxy.hold(at: nil)
        let second = try Command(Self.built("stream-and-resume"), [url, token])
        #expect(second.output == "accepted: 201\n", "\(second.errors)")
        #expect(!FileManager.default.fileExists(atPath: token))
        var whole = Data()
        for number in 0..<1024 {
            whole.append(Data(repeating: UInt8(truncatingIfNeeded: number), count: 1 << 16))
        }
        #expect(try Self.delivered(in: sandbox) == [whole])
        #expect(try Self.isShown("Tests/Samples/StreamAndResume/main.swift"))
    }

    @Test("one sends many files through one session")
    func sendMany() throws {
        let sandbox = try Sandbox(front: .nginxWithModule, origin: "$scheme://$http_host")
        let folder = try ScratchDirectory()
        var paths: [String] = []
        for number in 0..<30 {
            paths.append(folder.file("f\(number)"))
            // Some uploads are ordinary, some resumable.
            let content = Data(repeating: UInt8(number), count: number % 2 == 0 ? 5_000 : 1_100_000)
            try content.write(to: URL(filePath: paths[number]))
        }
        let url = "http://127.0.0.1:\(sandbox.port)/files/"
        let run = try Command(Self.built("send-many"), [url] + paths)
        let lines = Set(run.output.split(separator: "\n").map(String.init))
        #expect(lines == Set((0..<30).map { "f\($0): 201" }), "\(run.errors)")
        let sent = try Set(paths.map { try Data(contentsOf: URL(filePath: $0)) })
        #expect(try Set(Self.delivered(in: sandbox)) == sent)
        #expect(try Self.isShown("Tests/Samples/SendMany/main.swift"))
    }

    @Test("one writes a body while it is sent")
    func writeBody() throws {
        let sandbox = try Sandbox(front: .nginxWithModule, origin: "$scheme://$http_host")
        let url = "http://127.0.0.1:\(sandbox.port)/files/squares.csv"
        let run = try Command(Self.built("write-body"), [url])
        #expect(run.output == "accepted: 201\n", "\(run.errors)")
        let whole = (1...100_000).map { "\($0),\($0 * $0)\n" }.joined()
        #expect(try Self.delivered(in: sandbox) == [Data(whole.utf8)])
        #expect(try Self.isShown("Tests/Samples/WriteBody/main.swift"))
    }

    /// The program for async-http-client, built by `make client-test`.
    private static let relay = ProcessInfo.processInfo.environment["SPOOLGATE_RELAY"]

    @Test(
        "one forwards a response of async-http-client",
        .enabled(if: relay != nil, "run by make client-test")
    )
    func relays() throws {
        let sandbox = try Sandbox(front: .nginxWithModule, origin: "$scheme://$http_host")
        let bytes = Data((0..<3_000_000).map { UInt8(truncatingIfNeeded: $0 * 7) })
        let source = try LoopbackOrigin { connection in
            while try connection.receiveRequest() != nil {
                try connection.send(
                    "HTTP/1.1 200 OK\r\nContent-Length: \(bytes.count)\r\n\r\n"
                )
                try connection.send(Array(bytes))
            }
        }
        let url = "http://127.0.0.1:\(sandbox.port)/files/relayed.bin"
        let run = try Command(try #require(Self.relay), [source.base + "/f", url])
        #expect(run.output == "accepted: 201\n", "\(run.errors)")
        #expect(try Self.delivered(in: sandbox) == [bytes])
        #expect(try Self.isShown("Tests/ClientPackage/Sources/relay/main.swift"))
    }

    private static func delivered(in sandbox: Sandbox) throws -> [Data] {
        try sandbox.delivered().map { try Data(contentsOf: $0) }
    }
}
