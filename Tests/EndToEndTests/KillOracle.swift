// Whether every promise of a round was kept: by what its clients were told, what the backend got, what
// lies in the spool, and what the daemons logged.

import Foundation
import TestSupport

struct KillOracle {
    let world: KillWorld
    let clients: [ResumingClient]
    /// The runs of `spoolgate purge`.
    let purges: [Command]

    /// Everything that is wrong; the spool is empty afterwards.
    func faults(kills: [Kill], log: String) throws -> [String] {
        var faults: [String] = []
        for client in clients {
            if purges.isEmpty, client.creations.last?.end == .answered {
                client.checkReplay()
                world.tally.replays += 1
            }
            faults += client.faults.map { "upload \(client.task.number): \($0)" }
            for creation in client.creations {
                faults += check(creation, of: client.task, kills: kills.count)
                    .map { "\(client.task.method) \(creation.target): \($0)" }
                world.backend.forget(creation.target)
            }
        }
        for purge in purges where purge.status != 0 && purge.status != -SIGKILL {
            faults.append("purge ended with \(purge.status): \(purge.output)")
        }
        faults += checkLog(log)
        faults += try SpoolInspection(world.sandbox).faults()
        return faults
    }

    private func check(
        _ creation: ResumingClient.Creation,
        of task: ResumingClient.Task,
        kills: Int
    ) -> [String] {
        var faults: [String] = []
        let entries = world.backend.entries(to: creation.target)
        let whole = entries.filter(\.isWhole)
        for entry in entries {
            if entry.method != task.method { faults.append("the backend got \(entry.method)") }
            let isRight =
                entry.isWhole
                ? entry.content == task.content : task.content.starts(with: entry.content)
            if !isRight { faults.append("the backend got other bytes") }
        }
        // A killed attempt is repeated only where that is safe; one that was not killed, never.
        let most = task.method == "POST" ? 1 : 1 + kills
        if entries.count > most { faults.append("the backend got it \(entries.count) times") }
        if whole.count > 1 { world.tally.repeated += whole.count - 1 }
        switch creation.end {
        case .answered:
            if whole.isEmpty { faults.append("answered, and the backend does not have it") }
        case .unknown:
            if task.method == "PUT" { faults.append("held, though repeating is safe") }
        case .gone:
            if !wasPurged(creation) { faults.append("gone, and nobody purged it") }
        case nil:
            // Without a Location its client could not come back to it.
            if creation.location != nil { faults.append("no end") }
        }
        return faults
    }

    private func wasPurged(_ creation: ResumingClient.Creation) -> Bool {
        guard let id = creation.location?.suffix(26) else { return false }
        return purges.contains { purge in
            // One that was killed may have done more than it came to say.
            purge.status != 0
                || purge.output.components(separatedBy: "\n").contains {
                    $0.contains(id) && $0.contains("\"removed\"")
                }
        }
    }

    private func checkLog(_ log: String) -> [String] {
        var faults: [String] = []
        let lines = log.components(separatedBy: "\n")
        for line in lines {
            // The backend is killed never, so that nothing but the daemon's death leaves an upload held.
            if line.contains(" error spoolgate") || line.contains("Fatal error")
                || line.contains(" warning spoolgate")
            {
                faults.append("logged: \(line)")
            }
            if line.contains("spool recovered") {
                for word in ["cut-back=0", "corrupt=0", "forgotten=0"] where !line.contains(word) {
                    faults.append("recovery was not clean: \(line)")
                }
            }
        }
        if !lines.contains(where: { $0.contains("spool recovered") }) {
            faults.append("no daemon recovered the spool")
        }
        return faults
    }
}

/// The files of a spool that no request is using, against the states of spoolgate-spool(5).
struct SpoolInspection {
    private let sandbox: Sandbox
    private let spool: URL
    private static let queues = ["incoming", "active", "deferred", "hold", "delivered", "corrupt"]

    init(_ sandbox: Sandbox) {
        self.sandbox = sandbox
        spool = sandbox.directory.appending(path: "spool")
    }

    /// Everything that should not be there; then has purge remove all, and looks again.
    func faults() throws -> [String] {
        var faults: [String] = []
        let data = try names(in: "data")
        var places: [String: [String]] = [:]
        for queue in Self.queues {
            for name in try names(in: queue) { places[name, default: []].append(queue) }
        }
        for (id, queues) in places {
            if queues.count != 1 { faults.append("\(id) is in \(queues)") }
            for queue in queues {
                // Nobody delivers any more, and every start looked through what was left.
                if queue == "active" || queue == "corrupt" { faults.append("\(id) is in \(queue)") }
                if (queue == "delivered") == data.contains(id) {
                    faults.append(
                        "\(id) in \(queue) has \(data.contains(id) ? "a" : "no") data file"
                    )
                }
            }
        }
        for id in data.subtracting(places.keys) { faults.append("data file without record: \(id)") }
        faults += try permissions()
        faults += try emptied()
        return faults
    }

    /// Purges all; what is left.
    private func emptied() throws -> [String] {
        let queues = ["incoming", "deferred", "hold", "delivered"].flatMap { ["--queue", $0] }
        let arguments =
            ["purge", "--older-than", "0s"] + queues
            + ["--config", sandbox.directory.path() + "/spoolgate.yaml"]
        // The thread of a request that was just answered may hold its upload a moment longer.
        let deadline = Date(timeIntervalSinceNow: 10)
        var left: [String]
        repeat {
            let purge = try Command(Sandbox.program, arguments)
            left = purge.status == 0 ? [] : ["purge: \(purge.errors)"]
            for place in ["data"] + Self.queues {
                left += try names(in: place).map { "\(place): \($0)" }
            }
            left += try FileManager.default.contentsOfDirectory(
                atPath: spool.appending(path: "tmp").path()
            )
        } while !left.isEmpty && Date() < deadline
        return left.map { "left after purge: \($0)" }
    }

    private func permissions() throws -> [String] {
        var faults: [String] = []
        let paths = FileManager.default.enumerator(atPath: spool.path())
        while let path = paths?.nextObject() as? String {
            var status = stat()
            guard lstat(spool.appending(path: path).path(), &status) == 0 else { continue }
            let wanted: mode_t = status.st_mode & S_IFMT == S_IFDIR ? 0o700 : 0o600
            if status.st_mode & 0o7777 != wanted {
                faults.append("\(path) has mode \(String(status.st_mode & 0o7777, radix: 8))")
            }
        }
        return faults
    }

    private func names(in place: String) throws -> Set<String> {
        let folder = spool.appending(path: place)
        var names: Set<String> = []
        for shard in try FileManager.default.contentsOfDirectory(atPath: folder.path()) {
            names.formUnion(
                try FileManager.default.contentsOfDirectory(
                    atPath: folder.appending(path: shard).path()
                )
            )
        }
        return names
    }
}
