// The gateway's socket: whether it is there, somebody listens, and nginx may connect.
//
// Pure but for the looking.

import SpoolgatePosix

/// The gateway's socket, as nginx meets it.
struct SocketSeen: Seen, Sendable {
    var check: String { "socket" }
    /// What stands in the way to it.
    enum State: Sendable, Equatable {
        /// Nothing: somebody listens.
        case listening
        /// It is not there, or cannot be reached.
        case unreachable(String)
        /// It is there, and nobody listens.
        case deaf
    }

    /// Its path.
    var path: String
    /// What stands in the way of this process.
    var state: State
    /// The directories on the way, from the root on, and the socket; empty where it is not there.
    var way: [PathFacts]
    /// nginx's workers, each kind once; empty: none run.
    var workers: Set<Credentials>
}

extension SocketSeen {
    /// Looks at a socket.
    init(path: String, workers: Set<Credentials>) {
        self.init(path: path, state: .listening, way: [], workers: workers)
        do throws(PathObstacle) {
            var way: [PathFacts] = []
            let socket = try PathAccess.require([], to: path)
            var directory = PathAccess.parent(of: socket.path)
            while true {
                way.insert(try PathAccess.require([], to: directory), at: 0)
                if directory == "/" { break }
                directory = PathAccess.parent(of: directory)
            }
            self.way = way + [socket]
            // `try?`: where it cannot be asked it is not known to be deaf.
            if (try? LocalSocket.isListening(path)) == false { state = .deaf }
        } catch {
            state = .unreachable("\(path) \(Self.words(error))")
        }
    }

    private static func words(_ obstacle: PathObstacle) -> String {
        switch obstacle {
        case .missing(let path, _): "is not there (\(path))"
        case .notDirectory(let facts): "is below \(facts.path), which is no directory"
        case .denied(let facts, _, _): "cannot be looked at: \(facts.path) (\(facts.description))"
        case .readOnly(let facts): "is on a file system that is read-only: \(facts.path)"
        case .failed(let error): "cannot be looked at: \(error)"
        }
    }

    /// What it means.
    var finding: Finding {
        switch state {
        case .unreachable(let why):
            return failure(
                why,
                [
                    "systemctl enable --now spoolgate.socket; systemctl status spoolgate.socket "
                        + "spoolgate"
                ]
            )
        case .deaf:
            return failure(
                "nobody listens on \(path): the gateway does not run",
                [
                    "systemctl start spoolgate.socket spoolgate; journalctl -u spoolgate says why it "
                        + "ended"
                ]
            )
        case .listening: break
        }
        guard let socket = way.last else { return ok(path) }
        // Another nginx may run here that has nothing to do with it.
        let refusals = workers.sorted { $0.user < $1.user }.map { ($0, refusal(of: $0)) }
        let able = refusals.filter { $0.1 == nil }.map(\.0)
        if able.isEmpty, let refused = refusals.first?.1 { return refused }
        let shown = "\(path) (\(socket.description))"
        guard !workers.isEmpty else {
            return warning("\(shown); no worker of nginx runs", ["systemctl start nginx"])
        }
        let users = Set(able.map { SystemUser.name(ofUser: $0.user) }).sorted()
        return ok("\(shown); nginx (\(users.joined(separator: ", "))) may connect")
    }

    private func refusal(of worker: Credentials) -> Finding? {
        let name = SystemUser.name(ofUser: worker.user)
        for directory in way.dropLast() where !worker.has(.search, to: directory) {
            return failure(
                "nginx's user \(name) may not pass \(directory.path) (\(directory.description))",
                ["chmod o+x \(directory.path)"]
            )
        }
        guard let socket = way.last, !worker.has(.write, to: socket) else { return nil }
        let group = worker.groups.sorted().map { SystemUser.name(ofGroup: $0) }.first ?? name
        return failure(
            "nginx's user \(name) may not connect to \(path) (\(socket.description))",
            [
                "SocketGroup=\(group) and SocketMode=0660  (systemctl edit spoolgate.socket)",
                "socket-group: \(group) and socket-mode: \"0660\"  (spoolgate.yaml, where the daemon "
                    + "binds it)",
            ]
        )
    }
}
