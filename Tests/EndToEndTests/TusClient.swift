// tuspy and aiotus as the Python package index has them, each driven by a script of Tests/TusClients, before
// nginx, the daemon and PHP; between the client and nginx a network that can be cut.

import Foundation
import SpoolgateTestSupport
import Testing

/// A client of tus 1.0.
enum TusClient: String, CaseIterable, CustomTestStringConvertible, Sendable {
    case tuspy, aiotus

    /// Whether a test can have them, in the versions that are asked for; it says in its skip message what
    /// is missing.
    static let areInstalled: Bool = {
        let asked = try? Data(contentsOf: scripts.appending(path: "requirements.txt"))
        let installed = try? Data(contentsOf: installation.appending(path: "requirements.txt"))
        return asked != nil && asked == installed
    }()
    static let missing: Comment =
        "tuspy and aiotus are not installed: deploy/install-dependencies.sh test"

    private static let scripts = Sandbox.root.appending(path: "Tests/TusClients")
    private static let installation = Sandbox.root.appending(path: ".build/tus-clients")

    /// The Python that has them, and Django.
    static let python = installation.appending(path: "bin/python").path()

    var testDescription: String { rawValue }

    /// Starts its script.
    fileprivate func start(_ arguments: [String], log: URL) throws -> Daemon {
        try Daemon(
            Self.python,
            [Self.scripts.appending(path: "upload_\(rawValue).py").path()] + arguments,
            log: log
        )
    }
}

/// What a client tells of its upload.
struct TusReport: Decodable {
    /// The upload's URL; nil: it gave up.
    var url: String?
    /// What it met with, each with the status that it was answered.
    var errors: [String]
    /// The offset at which it began.
    var began: Int?
    /// The offset that it is told once all is there.
    var offset: Int?
    /// The metadata that it read back.
    var metadata: [String: String]?

    /// Whether it was answered with a status once.
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

/// A client at work.
final class TusRun {
    private let process: Daemon
    private let log: URL

    fileprivate init(_ process: Daemon, log: URL) { (self.process, self.log) = (process, log) }

    /// Ends it in the middle of whatever it does.
    func kill() {
        process.signal(SIGKILL)
        _ = process.wait()
    }

    /// Waits for its end; what it tells.
    func report() throws -> TusReport {
        let status = process.wait()
        let lines = try String(contentsOf: log, encoding: .utf8)
        guard status == 0, let last = lines.split(separator: "\n").last else {
            throw NeverHappened(description: "the client ended with \(status): \(lines)")
        }
        return try JSONDecoder().decode(TusReport.self, from: Data(last.utf8))
    }
}

/// A client, and everything that its uploads go through.
final class TusScene {
    let sandbox: Sandbox
    let network: CuttingProxy
    private let upstreamPort: Int
    private var upstream: RealUpstream?
    private var runs = 0

    /// Starts everything but the client.
    ///
    /// - Parameters:
    ///   - routeSettings: further lines of the route.
    ///   - isUpstreamUp: whether PHP is there from the beginning.
    /// - Throws: what does not start.
    init(routeSettings: [String] = [], isUpstreamUp: Bool = true) throws {
        let ports = try FreePort.take(2)
        network = try CuttingProxy(to: ports[0])
        upstreamPort = ports[1]
        sandbox = try Sandbox(
            upstream: "http://127.0.0.1:\(upstreamPort)",
            routeSettings: routeSettings,
            // Clients go on with an upload where they are told that it is.
            origin: "http://127.0.0.1:\(network.port)",
            port: ports[0]
        )
        if isUpstreamUp { try startUpstream() }
    }

    /// Starts PHP.
    func startUpstream() throws { upstream = try RealUpstream(port: upstreamPort) }

    /// Starts a client.
    ///
    /// - Parameters:
    ///   - client: which one.
    ///   - files: what it uploads; several become one upload.
    ///   - query: of the URL that it creates uploads at.
    ///   - options: of its script.
    /// - Returns: the client at work.
    /// - Throws: what starting it throws.
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

    /// The requests that PHP was called with.
    func heard() throws -> [RealUpstream.Heard] {
        try upstream.map { upstream in
            let heard = try upstream.phpHeard()
            #expect(try upstream.phpCalls() == heard.count)
            return heard
        } ?? []
    }

    /// Requires that PHP was called once, with these bytes and nothing of the protocol.
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

    /// How often nginx was asked so.
    func requests(_ method: String) throws -> Int {
        let log = sandbox.directory.appending(path: "nginx/log/access.log")
        return try String(contentsOf: log, encoding: .utf8)
            .components(separatedBy: "\"\(method) /files/").count - 1
    }
}
