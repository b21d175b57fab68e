// The daemon's own status, from its admin socket.
//
// Pure. An accepted connection alone proves nothing about the daemon, because systemd may hold the socket.

/// The result of asking the daemon for its status.
package struct DaemonSeen: Seen, Sendable, Equatable {
    /// The outcome of the request.
    package enum Answer: Sendable, Equatable {
        /// The first line of the status, such as `OK: 0 receiving, …`.
        case status(String)
        /// No process listens on the socket.
        case nobody
        /// This process's user may not connect.
        case denied
        /// The daemon did not respond, for the given reason.
        case silence(String)
    }

    var check: String { "daemon" }
    package var socket: String
    package var answer: Answer
    /// The state of the service according to systemd, or nil if systemd does not know the service.
    package var run: UnitsSeen.Run?

    /// Creates the observation from the path of the admin socket, the daemon's answer and systemd's.
    package init(socket: String, answer: Answer, run: UnitsSeen.Run?) {
        (self.socket, self.answer, self.run) = (socket, answer, run)
    }

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
