// tuspy and aiotus, driven by Tests/TusClients, and a network that can be cut.

import Foundation
import SpoolgateTestSupport
import Testing

enum TusClient: String, CaseIterable, CustomTestStringConvertible, Sendable {
    case tuspy, aiotus

    /// In the required versions.
    static let areInstalled: Bool = {
        let asked = try? Data(contentsOf: scripts.appending(path: "requirements.txt"))
        let installed = try? Data(contentsOf: installation.appending(path: "requirements.txt"))
        return asked != nil && asked == installed
    }()
    static let missing: Comment =
        "tuspy and aiotus are not installed: deploy/install-dependencies.sh test"

    private static let scripts = Sandbox.root.appending(path: "Tests/TusClients")
    private static let installation = Sandbox.root.appending(path: ".build/tus-clients")

    static let python = installation.appending(path: "bin/python").path()

    var testDescription: String { rawValue }

    fileprivate func start(_ arguments: [String], log: URL) throws -> Daemon {
        try Daemon(
            Self.python,
            [Self.scripts.appending(path: "upload_\(rawValue).py").path()] + arguments,
            log: log
        )
    }
}

struct TusReport: Decodable {
    /// nil: the client gave up.
    var url: String?
    var errors: [String]
    var began: Int?
    /// The server's offset of the complete upload.
    var offset: Int?
    var metadata: [String: String]?

    func met(_ status: Int) -> Bool {
        errors.contains { line in
            line.ranges(of: "\(status)").contains { range in
                let next = line[range.upperBound...].first
                let before = line[..<range.lowerBound].last
                return (next == ":" || next == ",") && before?.isNumber != true
            }
        }
    }
}

final class TusRun {
    private let process: Daemon
    private let log: URL

    fileprivate init(_ process: Daemon, log: URL) { (self.process, self.log) = (process, log) }

    func kill() {
        process.signal(SIGKILL)
        _ = process.wait()
    }

    func report() throws -> TusReport {
        let status = process.wait()
        let lines = try String(contentsOf: log, encoding: .utf8)
        guard status == 0, let last = lines.split(separator: "\n").last else {
            throw NeverHappened(description: "the client exited with \(status): \(lines)")
        }
        return try JSONDecoder().decode(TusReport.self, from: Data(last.utf8))
    }
}

final class TusScene {
    let sandbox: Sandbox
    let network: CuttingProxy
    private let upstreamPort: Int
    private var upstream: RealUpstream?
    private var runs = 0

    init(routeSettings: [String] = [], isUpstreamUp: Bool = true) throws {
        let ports = try FreePort.take(2)
        network = try CuttingProxy(to: ports[0])
        upstreamPort = ports[1]
        sandbox = try Sandbox(
            upstream: "http://127.0.0.1:\(upstreamPort)",
            routeSettings: routeSettings,
            // Clients resume at the URL that the gateway returns.
            origin: "http://127.0.0.1:\(network.port)",
            port: ports[0]
        )
        if isUpstreamUp { try startUpstream() }
    }

    func startUpstream() throws { upstream = try RealUpstream(port: upstreamPort) }

    /// Several files become one upload.
    func start(
        _ client: TusClient,
        _ files: [URL],
        query: String = "",
        _ options: [String] = []
    ) throws -> TusRun {
        runs += 1
        let log = sandbox.directory.appending(path: "client-\(runs).log")
        let endpoint = "http://127.0.0.1:\(network.port)/files/index.php\(query)"
        let arguments = [endpoint] + files.map { $0.path() } + options
        return TusRun(try client.start(arguments, log: log), log: log)
    }

    func heard() throws -> [RealUpstream.Heard] {
        try upstream.map { upstream in
            let heard = try upstream.phpHeard()
            #expect(try upstream.phpCalls() == heard.count)
            return heard
        } ?? []
    }

    /// PHP received one request with these bytes and no protocol fields.
    @discardableResult
    func expectOnce(_ bytes: Data) throws -> RealUpstream.Heard {
        let heard = try heard()
        #expect(heard.count == 1)
        let first = try #require(heard.first)
        #expect(first.method == "POST")
        #expect(first.length == "\(bytes.count)")
        #expect(first.sha1 == (try RealUpstream.sha1(of: bytes)))
        #expect(first.markers == [])
        return first
    }

    /// The requests in nginx's log.
    func requests(_ method: String) throws -> Int {
        let log = sandbox.directory.appending(path: "nginx/log/access.log")
        return try String(contentsOf: log, encoding: .utf8)
            .components(separatedBy: "\"\(method) /files/").count - 1
    }
}
