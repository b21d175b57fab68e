// strace on a running daemon: writes down some of its system calls, or makes them fail.
//
// It attaches to every thread there is and follows the new ones. Invariant: `stop` leaves the daemon
// running as if nobody had looked.

import Foundation
import SpoolgateTestSupport

/// One look at a daemon's system calls.
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

    /// Attaches.
    ///
    /// - Parameters:
    ///   - sandbox: whose daemon.
    ///   - calls: the calls to write down.
    ///   - fault: what happens to them, in strace's words after `inject=CALL:`; nil: nothing.
    ///   - path: the only file or directory whose calls are looked at; nil: all.
    /// - Throws: `NeverHappened` when strace cannot attach.
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
        // Foundation starts programs with most signals blocked, and strace leaves that so.
        strace = try Daemon(
            Command.find("env") ?? "env",
            ["--default-signal=TERM", Command.find("strace") ?? "strace"] + arguments,
            log: said
        )
        try eventually("strace is attached") {
            try String(contentsOf: said, encoding: .utf8).contains("attached")
        }
    }

    /// The calls so far, a line each.
    var lines: [String] {
        let text = (try? String(contentsOf: output, encoding: .utf8)) ?? ""
        return text.components(separatedBy: "\n").filter { $0.contains("(") }
    }

    /// Calls that were made to fail so far.
    var injected: Int { lines.count { $0.contains("INJECTED") } }

    /// Detaches.
    func stop() {
        strace.signal(SIGTERM)
        _ = strace.wait()
    }
}
