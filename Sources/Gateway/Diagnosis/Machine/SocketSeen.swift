// The check of a gateway's socket: it exists, a process listens, and nginx may connect.

import SpoolgatePosix
import SpoolgateTextFormats

struct SocketSeen: Seen, Sendable {
    enum Kind: Sendable, Equatable {
        case uploads
        /// The admin socket, which the daemon creates with the group of the socket for uploads.
        case admin
    }

    enum State: Sendable, Equatable {
        case listening
        /// The reason why the socket is missing or not accessible.
        case unreachable(String)
        /// The socket exists, but no process listens.
        case deaf
    }

    var check: String { kind == .uploads ? "socket" : "admin" }
    var kind = Kind.uploads
    var path: String
    var state: State
    /// Each directory from the root on, then the socket; empty if the socket is not accessible.
    var way: [PathFacts]
    /// The users and groups of nginx's workers; empty if no worker runs.
    var workers: Set<Credentials>
}

extension SocketSeen {
    init(
        _ kind: Kind = .uploads,
        path: String,
        workers: Set<Credentials>
    ) {
        let way = PathWay(to: path)
        self.init(kind: kind, path: path, state: .listening, way: way.facts, workers: workers)
        if let obstacle = way.obstacle {
            state = .unreachable(obstacle)
        } else if (try? LocalSocket.isListening(path)) == false {
            // `try?`: a socket that this user may not connect to counts as listening.
            state = .deaf
        }
    }

    var finding: Finding {
        switch state {
        case .unreachable(let why):
            return failure(
                why,
                [
                    "systemctl enable --now spoolgate.socket; systemctl status spoolgate.socket spoolgate"
                ]
            )
        case .deaf:
            return failure(
                "no process listens on \(path): the gateway does not run",
                [
                    "systemctl start spoolgate.socket spoolgate; journalctl -u spoolgate  (shows why it ended)"
                ]
            )
        case .listening: break
        }
        guard let socket = way.last else { return ok(path) }
        // An unrelated nginx may also run on this machine.
        let refusals = workers.sorted { $0.user < $1.user }.map { ($0, refusal(of: $0)) }
        let able = refusals.filter { $0.1 == nil }.map(\.0)
        if able.isEmpty, let refused = refusals.first?.1 { return refused }
        let shown = "\(path) (\(socket.description))"
        guard !workers.isEmpty else {
            return warning("\(shown); no nginx worker runs", ["systemctl start nginx"])
        }
        let users = Set(able.map { SystemUser.name(ofUser: $0.user) }).sorted()
        return ok("\(shown); nginx (\(users.joined(separator: ", "))) may connect")
    }

    private func refusal(of worker: Credentials) -> Finding? {
        let name = SystemUser.name(ofUser: worker.user)
        if let directory = PathWay(path: path, facts: way).closed(to: worker) {
            return failure(
                "nginx's user \(name) may not pass \(directory.path) (\(directory.description))",
                ["chmod o+x \(directory.path.shellWord)"]
            )
        }
        guard let socket = way.last, !worker.has(.write, to: socket) else { return nil }
        let group = SystemUser.name(ofGroup: worker.mainGroup)
        let what = kind == .uploads ? "" : ": the status page and the metrics return 502"
        return failure(
            "nginx's user \(name) may not connect to \(path) (\(socket.description))\(what)",
            fixes(group)
        )
    }

    private func fixes(_ group: String) -> [String] {
        let restart =
            "systemctl stop spoolgate.service && systemctl restart spoolgate.socket "
            + "&& systemctl start spoolgate.service"
        var fixes = [
            "systemctl edit spoolgate.socket: [Socket], SocketGroup=\(group), SocketMode=0660; then "
                + restart,
            "socket-group: \(group) and socket-mode: \"0660\"  (in spoolgate.yaml, if the daemon "
                + "binds the socket itself)",
        ]
        if kind == .admin {
            fixes.insert(
                "systemctl restart spoolgate  (if nginx may connect to spoolgate.sock: admin.sock gets "
                    + "its group at each start)",
                at: 0
            )
        }
        return fixes
    }
}
