// `make run` in its own clone, in a path with a space and a non-ASCII letter. Only `swift` is replaced, because the
// program is already built.

import Foundation
import SpoolgatePosix
import SpoolgateTestSupport

/// All processes of the run end with the test.
final class MakeRun {
    enum Role: String, CaseIterable, Sendable {
        case make, script, keeper, gateway, master, worker
    }

    let clone: URL
    let port: Int
    let tlsPort: Int
    private let directory: URL
    private let command: [String]
    private let environment: [String: String]
    private var make: Daemon

    /// Starts `make run` and waits until it serves, by default with the drop directory.
    init(
        user: String? = nil,
        upstream: String? = nil,
        variables: [String: String] = [:]
    ) throws {
        let files = FileManager.default
        directory = files.temporaryDirectory.appending(path: "run-\(UUID().uuidString.prefix(8))")
        clone = directory.appending(path: "x y/ü spoolgate")
        let built = clone.appending(path: ".build/release")
        let bin = directory.appending(path: "bin")
        for folder in [built, bin] {
            try files.createDirectory(at: folder, withIntermediateDirectories: true)
        }
        for name in ["Makefile", "deploy", "nginx", "README.md"] {
            let source = Sandbox.root.appending(path: name)
            try files.copyItem(at: source, to: clone.appending(path: name))
        }
        try files.copyItem(
            at: URL(filePath: Sandbox.program),
            to: built.appending(path: "spoolgate")
        )
        // The files of `make module` are newer than the copied sources, so nothing is rebuilt.
        for name in ["nginx-version", "nginx-module"] {
            let made = Sandbox.root.appending(path: ".build/\(name)")
            guard files.fileExists(atPath: made.path()) else { continue }
            try files.copyItem(at: made, to: clone.appending(path: ".build/\(name)"))
        }
        let swift = bin.appending(path: "swift")
        try Data("#!/bin/sh\n".utf8).write(to: swift)
        try files.setAttributes([.posixPermissions: 0o755], ofItemAtPath: swift.path())

        let ports = try FreePort.take(2)
        (port, tlsPort) = (ports[0], ports[1])
        var command = ["make", "-C", clone.path(percentEncoded: false), "run"]
        if let user {
            _ = try Command("/bin/chown", ["-R", user + ":", directory.path()])
            command = ["setpriv", "--reuid", user, "--clear-groups"] + command
        }
        self.command = command
        environment = [
            "PATH": bin.path() + ":" + (ProcessInfo.processInfo.environment["PATH"] ?? ""),
            "PORT": "\(port)", "TLS_PORT": "\(tlsPort)", "UPSTREAM": upstream ?? "",
            "ADDRESS": "", "NAMES": "", "BUILD": "",
        ].merging(variables) { $1 }
        make = try Self.start(command, environment, in: directory)
        try awaitServing()
    }

    private static func start(
        _ command: [String],
        _ environment: [String: String],
        in directory: URL
    ) throws -> Daemon {
        let output = directory.appending(path: "output")
        try? FileManager.default.removeItem(at: output)
        return try Daemon("/usr/bin/env", command, log: output, environment: environment)
    }

    private func awaitServing() throws {
        try eventually("make run serves; its output: \(output)") {
            if !make.process.isRunning { throw NeverHappened(description: output) }
            return output.contains("whole.bin")
        }
    }

    func startAgain() throws {
        make = try Self.start(command, environment, in: directory)
        try awaitServing()
    }

    deinit {
        for process in processes() { kill(process, SIGKILL) }
        make.signal(SIGKILL)
        try? FileManager.default.removeItem(at: directory)
    }

    var output: String {
        (try? String(contentsOf: directory.appending(path: "output"), encoding: .utf8)) ?? ""
    }

    private var state: String { clone.path(percentEncoded: false) + "/.run" }

    /// All processes in the run's directory: the script and its descendants.
    func processes() -> [Int32] {
        let entries = (try? FileManager.default.contentsOfDirectory(atPath: "/proc")) ?? []
        return entries.compactMap { Int32($0) }.filter { process in
            let folder = try? FileManager.default.destinationOfSymbolicLink(
                atPath: "/proc/\(process)/cwd"
            )
            return folder == state
        }
    }

    /// A process with this role, if it runs.
    func process(_ role: Role) -> Int32? {
        switch role {
        case .make: make.process.isRunning ? make.id : nil
        case .script: number(in: "run.pid")
        case .gateway: number(in: "spoolgate.pid")
        case .master: number(in: "nginx.pid")
        case .worker: processes().first { parent(of: $0) == number(in: "nginx.pid") }
        case .keeper: processes().first { arguments(of: $0).contains("run-keeper.sh") }
        }
    }

    private func number(in file: String) -> Int32? {
        (try? String(contentsOfFile: "\(state)/\(file)", encoding: .utf8))
            .flatMap { Int32($0.trimmingCharacters(in: .whitespacesAndNewlines)) }
            .flatMap { processes().contains($0) ? $0 : nil }
    }

    private func parent(of process: Int32) -> Int32? {
        let status = try? String(contentsOfFile: "/proc/\(process)/stat", encoding: .utf8)
        // State and parent follow the name in parentheses.
        return status?.split(separator: ") ").last?.split(separator: " ").dropFirst().first
            .flatMap { Int32($0) }
    }

    private func arguments(of process: Int32) -> String {
        let file = try? String(contentsOfFile: "/proc/\(process)/cmdline", encoding: .utf8)
        return file?.replacingOccurrences(of: "\0", with: " ") ?? ""
    }

    func listens(_ port: Int) -> Bool { (try? WireClient(port: port)) != nil }

    /// The addresses that listen on a port, in the kernel tables' notation.
    func addresses(of port: Int) throws -> Set<String> {
        let end = ":" + String(format: "%04X", port)
        let rows = try ["tcp", "tcp6"].flatMap {
            try TextFile.read("/proc/net/\($0)", limit: 16 << 20).split(separator: "\n")
                .map { $0.split(separator: " ") }
        }
        return Set(
            rows.filter { $0.count > 3 && $0[3] == "0A" && $0[1].hasSuffix(end) }
                .map { String($0[1].dropLast(end.count)) }
        )
    }

    func serves() -> Bool {
        let response = try? WireClient(port: port).ask(
            "POST",
            "/files/a",
            ["Upload-Complete: ?0"],
            content: Data()
        )
        return response?.status == 201
    }

    func awaitNothing() throws {
        try eventually("nothing is left; its output: \(output.suffix(500))") {
            processes().isEmpty && !make.process.isRunning && !listens(port) && !listens(tlsPort)
        }
    }

    /// Ends it as Ctrl-C or a service manager would.
    func end() { process(.script).map { _ = kill($0, SIGTERM) } }

    /// Runs commands as if pasted into another terminal.
    func paste(_ commands: String) throws -> Command {
        try Command(
            "/usr/bin/env",
            ["-C", clone.path(percentEncoded: false), "bash", "-c", commands]
        )
    }
}
