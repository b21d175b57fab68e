// A private environment for one test: spool, daemon, web server with its shipped configuration, and upstream.

import Foundation
import SpoolgateTestSupport
import Testing

final class Sandbox {
    let directory: URL
    let port: Int
    let tlsPort: Int
    let settingsFile: String
    let spool: URL
    /// The program of the next daemons and commands.
    var build: String
    private(set) var daemon: Daemon
    private let front: Front
    private let webServer: Daemon
    private var settings: String
    private let launcher: [String]

    static let program =
        Bundle.allBundles.map(\.bundleURL).first { $0.pathExtension == "xctest" }
        .map { $0.deletingLastPathComponent().appending(path: "spoolgate").path() }
        ?? URL(filePath: CommandLine.arguments[0]).deletingLastPathComponent()
        .appending(path: "spoolgate").path()

    static let root = URL(filePath: #filePath).deletingLastPathComponent()
        .deletingLastPathComponent().deletingLastPathComponent()

    /// Lines of a route are indented by four; a launcher must `exec` its command.
    init(
        upstream: String? = nil,
        routeSettings: [String] = [],
        routes: [String: [String]] = [:],
        extra: [String] = [],
        front: Front = .nginx,
        origin: String? = nil,
        port: Int? = nil,
        spool: String? = nil,
        spoolSettings: [String] = [],
        timeouts: String = "{stall: 60s, drain: 20s, in-use: 30s}",
        launcher: [String] = [],
        build: String = Sandbox.program,
        sources: URL = Sandbox.root
    ) throws {
        self.launcher = launcher
        self.build = build
        directory = FileManager.default.temporaryDirectory
            .appending(path: "spoolgate-\(UUID().uuidString.prefix(8))")
        settingsFile = directory.path() + "/spoolgate.yaml"
        self.spool = URL(filePath: spool ?? directory.path() + "/spool")
        try FileManager.default.createDirectory(
            at: directory.appending(path: "delivered"),
            withIntermediateDirectories: true
        )
        let ports = try FreePort.take(2)
        (self.port, tlsPort) = (port ?? ports[0], ports[1])
        settings =
            """
            listen: unix:\(directory.path())/spoolgate.sock
            socket-mode: "0666"
            spool:
              directory: \(spool ?? self.spool.path())
              reserve: 16MiB

            """
        settings += spoolSettings.map { "  \($0)\n" }.joined()
        settings += "timeouts: \(timeouts)\n"
        // Enough for any test, and within any machine's limit.
        if !extra.contains(where: { $0.hasPrefix("threads:") }) {
            settings += "threads: {maximum: 2000}\n"
        }
        settings += extra.map { $0 + "\n" }.joined()
        settings += "routes:\n  default:\n"
        settings += "    upstream: \(upstream ?? "directory:\(directory.path())/delivered")\n"
        settings += NginxConfiguration.lines(ofRoute: routeSettings)
        for (name, lines) in routes {
            settings += "  \(name):\n" + NginxConfiguration.lines(ofRoute: lines)
        }
        try settings.write(toFile: settingsFile, atomically: true, encoding: .utf8)
        daemon = try Self.startDaemon(build, in: directory, by: launcher)
        self.front = front
        webServer = try front.start(
            in: directory,
            from: sources,
            port: self.port,
            tlsPort: tlsPort,
            origin: origin
        )
        try waitUntilServing()
        try eventually("the web server listens on \(self.port)") {
            (try? WireClient(port: self.port)) != nil
        }
    }

    deinit {
        daemon.signal(SIGKILL)
        // `make sanitize`: sanitizers write their reports to the daemon's log.
        if let report = log.range(of: "(Thread|Address)Sanitizer", options: .regularExpression) {
            Issue.record("\(log[report.lowerBound...].prefix(6_000))")
        }
        webServer.signal(front.ending)
        _ = webServer.wait()
        try? FileManager.default.removeItem(at: directory)
    }

    private static func startDaemon(
        _ build: String,
        in directory: URL,
        by launcher: [String]
    ) throws -> Daemon {
        let command =
            launcher + [build, "serve", "--config", directory.path() + "/spoolgate.yaml"]
        return try Daemon(
            command[0],
            Array(command.dropFirst()),
            log: directory.appending(path: "spoolgate.log"),
            // The address sanitizer checks a daemon that exits by itself for leaks.
            environment: ["ASAN_OPTIONS": "detect_leaks=1:quarantine_size_mb=4"]
        )
    }

    /// Waits for the newest daemon, also on the operator's socket.
    func waitUntilServing() throws {
        // Settings may place the operator's socket elsewhere or disable it.
        let names = ["spoolgate.sock"] + (settings.contains("admin-listen:") ? [] : ["admin.sock"])
        try eventually("the daemon listens; its log: \(log.suffix(2_000))") {
            names.allSatisfy { UnixSocket.accepts(directory.path() + "/" + $0) }
        }
    }

    func kill() {
        daemon.signal(SIGKILL)
        _ = daemon.wait()
    }

    func crash() throws {
        kill()
        try startAgain()
    }

    var workers: [Int32] {
        let children = "/proc/\(webServer.id)/task/\(webServer.id)/children"
        let workers = (try? String(contentsOfFile: children, encoding: .utf8)) ?? ""
        return workers.split(separator: " ").compactMap { Int32($0) }
    }

    func killWorkers() {
        for worker in workers { Foundation.kill(worker, SIGKILL) }
    }

    /// Does not wait until the daemon serves.
    func launch() throws { daemon = try Self.startDaemon(build, in: directory, by: launcher) }

    func startAgain() throws {
        try launch()
        try waitUntilServing()
    }

    /// Starts the next daemon and kills the running one some time later.
    func replace(livingOnFor microseconds: UInt32) throws {
        let next = try Self.startDaemon(build, in: directory, by: launcher)
        usleep(microseconds)
        kill()
        daemon = next
        let socket = directory.path() + "/spoolgate.sock"
        try eventually("the next daemon listens; its log: \(log.suffix(2_000))") {
            if UnixSocket.accepts(socket) { return true }
            // The old daemon still had the socket; a service manager would restart the new one.
            if !daemon.process.isRunning { try launch() }
            return false
        }
    }

    func reload(replacing old: String, with new: String) throws {
        settings = settings.replacingOccurrences(of: old, with: new)
        try settings.write(toFile: settingsFile, atomically: true, encoding: .utf8)
        let before = log.components(separatedBy: "settings ").count
        daemon.signal(SIGHUP)
        try eventually("the settings are reloaded") {
            log.components(separatedBy: "settings ").count > before
        }
    }

    var log: String {
        (try? String(contentsOf: directory.appending(path: "spoolgate.log"), encoding: .utf8)) ?? ""
    }

    func spoolgate(_ arguments: String...) throws -> Command {
        try spoolgate(arguments)
    }

    func spoolgate(_ arguments: [String]) throws -> Command {
        try Command(build, arguments + ["--config", settingsFile])
    }

    /// The dropped files without their records.
    func delivered() throws -> [URL] {
        try FileManager.default.contentsOfDirectory(
            at: directory.appending(path: "delivered"),
            includingPropertiesForKeys: nil
        ).filter { $0.pathExtension != "json" && !$0.lastPathComponent.hasPrefix(".") }
    }

    func randomFile(_ size: Int, _ name: String = "input.bin") throws -> (url: URL, bytes: Data) {
        let source = try FileHandle(forReadingFrom: URL(filePath: "/dev/urandom"))
        let bytes = try source.read(upToCount: size) ?? Data()
        let url = directory.appending(path: name)
        try bytes.write(to: url)
        return (url, bytes)
    }

    func curl(_ arguments: [String]) throws -> Command {
        try Command(Command.find("curl") ?? "curl", ["-sS", "--max-time", "120"] + arguments)
    }
}

extension Sandbox {
    func ask(
        _ method: String,
        _ target: String,
        _ fields: [String] = [],
        content: Data? = nil
    ) throws -> WireClient.Answer {
        try WireClient(port: port).ask(method, target, fields, content: content)
    }

    /// Sends the header section of a request over its own connection.
    func open(
        _ method: String,
        _ target: String,
        _ fields: [String] = [],
        length: Int? = nil
    ) throws -> WireClient {
        let client = try WireClient(port: port)
        client.sendHead(method, target, fields + (length.map { ["Content-Length: \($0)"] } ?? []))
        return client
    }

    func create(_ target: String, _ fields: [String] = []) throws -> String {
        let response = try ask("POST", target, ["Upload-Complete: ?0"] + fields, content: Data())
        guard response.status == 201, let location = response["location"] else {
            throw WireClient.Broken(description: "not created: \(response.status) \(response.text)")
        }
        return String(location.drop(upTo: "/files/"))
    }

    func append(
        _ resource: String,
        offset: Int = 0,
        _ content: Data = Data(),
        complete: Bool = true,
        fields: [String] = []
    ) throws -> WireClient.Answer {
        let all = Self.appendFields(offset, complete) + fields
        return try ask("PATCH", resource, all, content: content)
    }

    /// Starts a completing append whose content the test sends later; chunked without a length.
    func startAppend(
        _ resource: String,
        offset: Int = 0,
        length: Int?,
        sent: Data = Data(),
        fields: [String] = []
    ) throws -> WireClient {
        let chunked = length == nil ? ["Transfer-Encoding: chunked"] : []
        let all = Self.appendFields(offset, true) + chunked + fields
        let client = try open("PATCH", resource, all, length: length)
        client.send(sent)
        return client
    }

    private static func appendFields(_ offset: Int, _ isComplete: Bool) -> [String] {
        [
            "Upload-Offset: \(offset)", "Upload-Complete: ?\(isComplete ? 1 : 0)",
            "Content-Type: application/partial-upload",
        ]
    }

    func offset(of resource: String) throws -> Int {
        let response = try ask("HEAD", resource)
        guard response.status == 204, let offset = response["upload-offset"].flatMap({ Int($0) })
        else { throw WireClient.Broken(description: "no offset: \(response.status)") }
        return offset
    }

    /// From `list`, which does not disturb a writer; -1: no upload.
    func spooledOffset() throws -> Int {
        let line = try spoolgate("list", "--json").output
        guard !line.isEmpty else { return -1 }
        let object = try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any]
        return object?["offset"] as? Int ?? -1
    }
}

extension String {
    func drop(upTo mark: String) -> Substring {
        range(of: mark).map { self[$0.lowerBound...] } ?? self[...]
    }
}
