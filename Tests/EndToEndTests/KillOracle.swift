// Checks a round's promises by the responses, the upstream's requests, the spool and the logs.

import Foundation
import SpoolgateTestSupport

struct KillOracle {
    let world: KillWorld
    let clients: [ResumingClient]
    var purges: [Command] = []
    /// How often the upstream may receive an upload that is safe to repeat.
    let attempts: Int
    /// Whether every final response must have been stored.
    var storesResponses = true

    /// Returns all faults and empties the spool; without `log` errors may be logged.
    func faults(log: String?) throws -> [String] {
        var faults: [String] = []
        for client in clients {
            if storesResponses, purges.isEmpty, client.creations.last?.end == .responded {
                client.checkReplay()
                world.tally.replays += 1
            }
            faults += client.faults.map { "upload \(client.task.number): \($0)" }
            for creation in client.creations {
                faults += check(creation, of: client.task)
                    .map { "\(client.task.method) \(creation.target): \($0)" }
                world.upstream.forget { $0.target == creation.target }
            }
        }
        for purge in purges where purge.status != 0 && purge.status != -SIGKILL {
            faults.append("purge ended with \(purge.status): \(purge.output)")
        }
        if let log { faults += checkLog(log) }
        faults += try SpoolInspection(world.sandbox).faults()
        return faults
    }

    private func check(
        _ creation: ResumingClient.Creation,
        of task: ResumingClient.Task
    ) -> [String] {
        var faults: [String] = []
        let entries = world.upstream.requests(to: creation.target)
        let whole = entries.filter(\.isWhole)
        for entry in entries {
            if entry.method != task.method {
                faults.append("the upstream received \(entry.method)")
            }
            let isRight =
                entry.isWhole
                ? Data(entry.content) == task.content : task.content.starts(with: entry.content)
            if !isRight { faults.append("the upstream received other bytes") }
        }
        let maximum = task.method == "POST" ? 1 : attempts
        if entries.count > maximum {
            faults.append("the upstream received it \(entries.count) times")
        }
        if whole.count > 1 { world.tally.repeated += whole.count - 1 }
        switch creation.end {
        case .responded:
            if whole.isEmpty {
                faults.append("response sent, but the upstream does not have the upload")
            }
        case .unknown:
            if task.method == "PUT" { faults.append("held although it is safe to repeat") }
        case .gone:
            if !wasPurged(creation) { faults.append("gone without a purge") }
        case nil:
            // Without a Location its client cannot resume it.
            if creation.location != nil { faults.append("not at its end") }
        }
        return faults
    }

    private func wasPurged(_ creation: ResumingClient.Creation) -> Bool {
        guard let id = creation.location?.suffix(26) else { return false }
        return purges.contains { purge in
            // A killed purge may have removed more than it reported.
            purge.status != 0
                || purge.output.components(separatedBy: "\n").contains {
                    $0.contains(id) && $0.contains("\"removed\"")
                }
        }
    }

    private func checkLog(_ log: String) -> [String] {
        var faults: [String] = []
        for line in log.components(separatedBy: "\n") {
            // The upstream is never killed, so only a crash leaves an upload on hold.
            if line.contains("reason=\"spoolgate stopped during the delivery attempt;") { continue }
            if line.contains(" level=error ") || line.contains("Fatal error")
                || line.contains(" level=warning ")
            {
                faults.append("logged: \(line)")
            }
            if line.contains("spool recovered") {
                for word in ["corrupt=0", "forgotten=0", "failed=0"] where !line.contains(word) {
                    faults.append("recovery was not clean: \(line)")
                }
            }
        }
        return faults
    }
}
