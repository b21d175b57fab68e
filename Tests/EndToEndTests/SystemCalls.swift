// strace on a running daemon: records some of its system calls or makes them fail.
//
// It attaches to all threads and follows new ones. Invariant: after `stop` the daemon runs as before.

import Foundation
import SpoolgateTestSupport

/// One trace of a daemon's system calls.
final class SystemCalls {
    /// Whether strace can attach here; containers may forbid it.
    static let canTrace: Bool = {
        let probe = try? Command(
            Command.find("strace") ?? "strace",
            ["-qq", "-o", "/dev/null", "true"]
        )
        return probe?.status == 0
    }()

    private let strace: Daemon
    private let output: URL

    /// Attaches strace.
    ///
    /// - Parameters:
    ///   - sandbox: the sandbox of the daemon.
    ///   - calls: the calls to record.
    ///   - fault: their fault, in strace's syntax after `inject=CALL:`; nil: none.
    ///   - path: the only file or directory whose calls are traced; nil: all.
    /// - Throws: `NeverHappened` if strace cannot attach.
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
        // Foundation starts programs with most signals blocked, and strace does not unblock them.
        strace = try Daemon(
            Command.find("env") ?? "env",
            ["--default-signal=TERM", Command.find("strace") ?? "strace"] + arguments,
            log: said
        )
        try eventually("strace is attached") {
            try String(contentsOf: said, encoding: .utf8).contains("attached")
        }
    }

    /// The calls so far, one on each line.
    var lines: [String] {
        let text = (try? String(contentsOf: output, encoding: .utf8)) ?? ""
        return text.components(separatedBy: "\n").filter { $0.contains("(") }
    }

    /// The number of calls that were made to fail so far.
    var injected: Int { lines.count { $0.contains("INJECTED") } }

    /// Detaches strace.
    func stop() {
        strace.signal(SIGTERM)
        _ = strace.wait()
    }
}
