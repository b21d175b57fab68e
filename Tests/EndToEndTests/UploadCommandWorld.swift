// The gateway behind nginx, an unreliable network, and a state directory.

import Foundation
import SpoolgateTestSupport

final class UploadCommandWorld {
    let sandbox: Sandbox
    let proxy: CuttingProxy

    init(front: Front = .nginxWithModule, build: String = Sandbox.program) throws {
        let port = try FreePort.take(1)[0]
        proxy = try CuttingProxy(to: port)
        // URLs from the gateway lead through the proxy, too.
        let origin = "http://127.0.0.1:\(proxy.port)"
        sandbox = try Sandbox(front: front, origin: origin, port: port, build: build)
        try FileManager.default.createSymbolicLink(
            atPath: file("spoolgate-download"),
            withDestinationPath: Self.program
        )
    }

    static let program = URL(filePath: Sandbox.program).deletingLastPathComponent()
        .appending(path: "spoolgate-upload").path()

    var environment: [String: String] {
        ["XDG_STATE_HOME": file("state"), "no_proxy": "*", "TERM": "xterm"]
    }

    func file(_ name: String) -> String {
        sandbox.directory.appending(path: name).path(percentEncoded: false)
    }

    func url(_ name: String) -> String { "http://127.0.0.1:\(proxy.port)/files/\(name)" }

    func run(_ arguments: String...) throws -> Command {
        try Command(Self.program, arguments, environment: environment)
    }

    func start(_ arguments: String..., log: String = "command.log") throws -> Daemon {
        try Daemon(
            Self.program,
            arguments,
            log: URL(filePath: file(log)),
            environment: environment
        )
    }

    /// Runs shell on a terminal; `$program` is the command, and the output has control characters.
    func onTerminal(_ line: String) throws -> (output: String, status: Int32) {
        try line.write(toFile: file("typed.sh"), atomically: true, encoding: .utf8)
        let command = try Command(
            "/usr/bin/script",
            ["-qec", "/bin/sh \(file("typed.sh"))", "/dev/null"],
            environment: environment.merging(["program": Self.program]) { $1 }
        )
        return (command.output, command.status)
    }

    func states() -> [String] {
        let folder = file("state/spoolgate-upload")
        let names = (try? FileManager.default.contentsOfDirectory(atPath: folder)) ?? []
        return names.compactMap { try? String(contentsOfFile: folder + "/\($0)", encoding: .utf8) }
    }

    func delivered(_ name: String) throws -> [Data] {
        try sandbox.delivered().filter { $0.lastPathComponent.hasSuffix(name) }
            .map { try Data(contentsOf: $0) }
    }

    /// Starts an upload that stalls midway, stops it with a signal, and returns the exit status.
    func beginAndStop(_ path: String, _ name: String, signal: Int32) throws -> Int32 {
        let passed = proxy.passed
        proxy.hold(at: 2 << 20)
        let command = try start(path, url(name))
        try eventually("some content is sent: \(states())") {
            proxy.passed >= passed + (2 << 20) && states().contains { $0.contains("\ntoken: ") }
        }
        command.signal(signal)
        let status = command.wait()
        proxy.hold(at: nil)
        return status
    }
}
