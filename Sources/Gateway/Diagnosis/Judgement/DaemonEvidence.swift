// The daemon's own status, from its admin socket.
//
// Pure. An accepted connection alone proves nothing about the daemon, because systemd may hold the socket.

/// The result of asking the daemon for its status.
package struct DaemonEvidence: Evidence, Sendable, Equatable {
    /// The outcome of the request.
    package enum Response: Sendable, Equatable {
        /// The first line of the status, such as `OK: 0 receiving, …`.
        case status(String)
        /// No process listens on the socket.
        case noListener
        /// This process's user may not connect.
        case denied
        /// The daemon did not respond, for the given reason.
        case silence(String)
    }

    var check: String { "daemon" }
    var socket: String
    var response: Response
    /// The state of the service according to systemd, or nil if systemd does not know the service.
    var run: UnitsEvidence.Run?

    var finding: Finding {
        let log = "journalctl -u spoolgate -n 20"
        switch response {
        case .status(let line):
            if line.hasPrefix("CRITICAL:") { return failure(line, "spoolgate status") }
            if line.hasPrefix("WARNING:") { return warning(line, "spoolgate status") }
            return ok(line)
        case .denied:
            return skipped("this user may not connect to \(socket) (root may)")
        case .noListener where run == .waiting:
            return skipped("the daemon does not run: the first connection starts it")
        case .noListener where run == .running:
            return warning(
                "the daemon runs, but no process listens on \(socket): no status, no metrics",
                [
                    "\(log)  (look for 'admin socket unavailable')",
                    "check admin-listen in spoolgate.yaml",
                ]
            )
        case .noListener:
            return failure(
                "no daemon responds on \(socket), even if the socket for uploads accepts connections",
                "systemctl status spoolgate; \(log)"
            )
        case .silence(let why):
            let fix = "systemctl restart spoolgate; \(log)"
            return failure("the daemon does not respond: \(why)", fix)
        }
    }
}
