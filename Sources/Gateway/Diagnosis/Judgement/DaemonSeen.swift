// The daemon's own answer on its admin socket. A socket that takes connections proves nothing: systemd may hold it.
//
// Pure: judges an answer.

/// The daemon's answer to the question of how it is.
package struct DaemonSeen: Seen, Sendable, Equatable {
    /// The outcome of the question.
    package enum Answer: Sendable, Equatable {
        /// The first line of its status, such as `OK: 0 receiving, …`.
        case status(String)
        /// No process takes the connection.
        case nobody
        /// This user may not connect.
        case denied
        /// Another reason for which there is no answer.
        case silence(String)
    }

    var check: String { "daemon" }
    /// The path of the socket.
    package var socket: String
    /// The outcome of the question.
    package var answer: Answer
    /// Whether the service runs, as systemd says; nil: systemd does not know it.
    package var run: UnitsSeen.Run?

    /// Makes it.
    package init(socket: String, answer: Answer, run: UnitsSeen.Run?) {
        (self.socket, self.answer, self.run) = (socket, answer, run)
    }

    /// The judgement.
    var finding: Finding {
        let log = "journalctl -u spoolgate -n 20"
        switch answer {
        case .status(let line):
            if line.hasPrefix("CRITICAL:") { return failure(line, ["spoolgate status"]) }
            if line.hasPrefix("WARNING:") { return warning(line, ["spoolgate status"]) }
            return ok(line)
        case .denied:
            return skipped("this user may not connect to \(socket) (root may)")
        case .nobody where run == .waiting:
            return skipped("the daemon does not run: the first connection starts it")
        case .nobody where run == .running:
            return warning(
                "the daemon runs, but no process listens on \(socket): no status, no metrics",
                [
                    "\(log)  (look for 'admin socket unavailable')",
                    "check admin-listen in spoolgate.yaml",
                ]
            )
        case .nobody:
            return failure(
                "no daemon responds on \(socket), even if the socket for uploads accepts connections",
                ["systemctl status spoolgate; \(log)"]
            )
        case .silence(let why):
            return failure(
                "the daemon does not respond: \(why)",
                ["systemctl restart spoolgate; \(log)"]
            )
        }
    }
}
