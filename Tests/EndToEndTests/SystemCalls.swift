// strace on a running daemon: records system calls or makes them fail. After `stop` the daemon runs as before.

import Foundation
import SpoolgateTestSupport

final class SystemCalls {
    /// False in containers that forbid it.
    static let canTrace: Bool = {
        let probe = try? Command(
            Command.find("strace") ?? "strace",
            ["-qq", "-o", "/dev/null", "true"]
        )
        return probe?.status == 0
    }()

    private let strace: Daemon
    private let output: URL

    /// `fault` is in strace's syntax after `inject=CALL:`.
    init(
        of sandbox: Sandbox,
        _ calls: [String],
        fault: String? = nil,
        on path: String? = nil
    ) throws {
        let name = "strace-\(UUID().uuidString.prefix(8))"
        output = sandbox.directory.appending(path: name)
        let said = sandbox.directory.appending(path: name + ".err")
        var arguments = [
            "-f", "-y", "-p", "\(sandbox.daemon.id)", "-o", output.path(), "-e",
            "trace=" + calls.joined(separator: ","),
        ]
        if let path { arguments += ["-P", path] }
        if let fault {
            arguments += ["-e", "inject=" + calls.joined(separator: ",") + ":" + fault]
        }
        // Foundation starts programs with most signals blocked; strace does not unblock them.
        strace = try Daemon(
            Command.find("env") ?? "env",
            ["--default-signal=TERM", Command.find("strace") ?? "strace"] + arguments,
            log: said
        )
        try eventually("strace is attached") {
            try String(contentsOf: said, encoding: .utf8).contains("attached")
        }
    }

    var lines: [String] {
        let text = (try? String(contentsOf: output, encoding: .utf8)) ?? ""
        return text.components(separatedBy: "\n").filter { $0.contains("(") }
    }

    var injected: Int { lines.count { $0.contains("INJECTED") } }

    func stop() {
        strace.signal(SIGTERM)
        _ = strace.wait()
    }
}
