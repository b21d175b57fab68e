// What lies in a spool that no request is using, against the page that says what may.
//
// It reads directories and nothing in the files; what is in them, the clients find out.

import Foundation
import TestSupport

/// The files of a spool, against the states of spoolgate-spool(5).
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
        // The thread of a request that was just answered may hold its upload a moment longer.
        let deadline = Date(timeIntervalSinceNow: 10)
        var left: [String]
        repeat {
            let purge = try sandbox.spoolgate(["purge", "--force", "--older-than", "0s"] + queues)
            left = purge.status == 0 ? [] : ["purge: \(purge.errors)"]
            for place in ["data"] + Self.queues {
                left += try names(in: place).map { "\(place): \($0)" }
            }
            // A death while the clock's mark was written leaves a file that a start an hour later
            // removes.
            left += try FileManager.default.contentsOfDirectory(
                atPath: spool.appending(path: "tmp").path()
            ).filter { !$0.hasPrefix("clock.") }
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
