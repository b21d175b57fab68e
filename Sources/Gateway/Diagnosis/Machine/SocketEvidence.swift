// The check of a gateway's socket: it exists, a process listens, and nginx may connect.
//
// Only owner, group and mode count; access control lists are ignored.

import SpoolgatePosix
import SpoolgateTextFormats

/// A path and the permissions of each directory on it.
struct PathWay: Sendable, Equatable {
    var path: String
    /// Each directory from the root on, then the file; empty if the path is not accessible.
    var facts: [PathFacts] = []
    /// The reason why the path is not accessible, if any.
    var obstacle: String?
    var isMissing = false

    var last: PathFacts? { facts.last }

    /// Returns the first directory that a process may not enter, if any.
    func closed(to process: Credentials) -> PathFacts? {
        facts.dropLast().first { !process.has(.search, to: $0) }
    }
}

extension PathWay {
    /// Inspects an absolute path.
    init(to path: String) {
        self.init(path: path)
        do throws(PathObstacle) {
            var way = [try PathAccess.require([], to: path)]
            while let first = way.first?.path, first != "/" {
                way.insert(try PathAccess.require([], to: PathAccess.parent(of: first)), at: 0)
            }
            facts = way
        } catch {
            obstacle = "\(path) \(words(error))"
        }
    }

    private mutating func words(_ obstacle: PathObstacle) -> String {
        switch obstacle {
        case .missing(let missing, _):
            isMissing = true
            return missing == path ? "does not exist" : "does not exist (\(missing) is missing)"
        case .notDirectory(let facts), .denied(let facts, _, _), .readOnly(let facts):
            return "cannot be accessed: \(facts.path) (\(facts.description))"
        case .failed(let error): return "cannot be accessed: \(error)"
        }
    }
}

struct SocketEvidence: Evidence, Sendable {
    var check: String { isAdmin ? "admin" : "socket" }
    /// Whether it is the admin socket, which the daemon creates with the group of the socket for uploads.
    var isAdmin = false
    var way: PathWay
    /// Whether a process listens, as far as this user may know.
    var isListening = true
    /// The users and groups of nginx's workers; empty if no worker runs.
    var workers: Set<Credentials>
}

extension SocketEvidence {
    init(isAdmin: Bool = false, path: String, workers: Set<Credentials>) {
        self.init(isAdmin: isAdmin, way: PathWay(to: path), workers: workers)
        // `try?`: a socket that this user may not connect to counts as listening.
        isListening = way.obstacle == nil && (try? LocalSocket.isListening(path)) != false
    }

    var finding: Finding {
        let path = way.path
        if let obstacle = way.obstacle {
            return failure(
                obstacle,
                "systemctl enable --now spoolgate.socket; systemctl status spoolgate.socket spoolgate"
            )
        }
        guard isListening else {
            return failure(
                "no process listens on \(path): the gateway does not run",
                "systemctl start spoolgate.socket spoolgate; journalctl -u spoolgate  (shows why it ended)"
            )
        }
        guard let socket = way.last else { return ok(path) }
        // An unrelated nginx may also run on this machine.
        let refusals = workers.sorted { $0.user < $1.user }.map { ($0, refusal(of: $0)) }
        let able = refusals.filter { $0.1 == nil }.map(\.0)
        if able.isEmpty, let refused = refusals.first?.1 { return refused }
        let shown = "\(path) (\(socket.description))"
        guard !workers.isEmpty else {
            return warning("\(shown); no nginx worker runs", "systemctl start nginx")
        }
        let users = Set(able.map { SystemUser.name(ofUser: $0.user) }).sorted()
        return ok("\(shown); nginx (\(users.joined(separator: ", "))) may connect")
    }

    private func refusal(of worker: Credentials) -> Finding? {
        let name = SystemUser.name(ofUser: worker.user)
        if let directory = way.closed(to: worker) {
            return failure(
                "nginx's user \(name) may not pass \(directory.path) (\(directory.description))",
                "chmod o+x \(directory.path.shellWord)"
            )
        }
        guard let socket = way.last, !worker.has(.write, to: socket) else { return nil }
        let what = isAdmin ? ": the status page and the metrics return 502" : ""
        return failure(
            "nginx's user \(name) may not connect to \(way.path) (\(socket.description))\(what)",
            fixes(SystemUser.name(ofGroup: worker.group))
        )
    }

    private func fixes(_ group: String) -> [String] {
        let restart =
            "systemctl stop spoolgate.service && systemctl restart spoolgate.socket "
            + "&& systemctl start spoolgate.service"
        let follow =
            "systemctl restart spoolgate  (if nginx may connect to spoolgate.sock: admin.sock gets "
            + "its group at each start)"
        return (isAdmin ? [follow] : []) + [
            "systemctl edit spoolgate.socket: [Socket], SocketGroup=\(group), SocketMode=0660; then "
                + restart,
            "socket-group: \(group) and socket-mode: \"0660\"  (in spoolgate.yaml, if the daemon "
                + "binds the socket itself)",
        ]
    }
}
