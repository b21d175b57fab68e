// Compares the files of an idle spool with the states that spoolgate-spool(5) allows.

import Foundation
import SpoolgateTestSupport

struct SpoolInspection {
    private let sandbox: Sandbox
    private let spool: URL
    init(_ sandbox: Sandbox) {
        self.sandbox = sandbox
        spool = sandbox.spool
    }

    /// Returns unexpected files and permissions, and the files that remain after a purge.
    func faults() throws -> [String] {
        // The last start may still be examining the spool.
        let deadline = Date(timeIntervalSinceNow: 60)
        var faults: [String]
        repeat { faults = try strangeStates() } while !faults.isEmpty && Date() < deadline
        return try faults + permissions() + emptied()
    }

    private func strangeStates() throws -> [String] {
        var faults: [String] = []
        let (records, data) = try files()
        let listed = try sandbox.spoolgate("list", "--json").output.split(separator: "\n")
        var queues: [String: String] = [:]
        for line in listed {
            let object = try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any]
            guard let id = object?["upload"] as? String, let queue = object?["queue"] as? String
            else {
                faults.append("listed: \(line)")
                continue
            }
            queues[id] = queue
        }
        if Set(queues.keys) != records {
            faults.append("listed: \(queues.keys), in the spool: \(records)")
        }
        for (id, queue) in queues {
            // No delivery is in progress, and every start has examined the remaining uploads.
            if queue == "active" || queue == "corrupt" { faults.append("\(id) is in \(queue)") }
            if queue == "delivered", data.contains(id) {
                faults.append("\(id), delivered, has content")
            }
        }
        for id in data.subtracting(records) { faults.append("content without record: \(id)") }
        let waiting = queues.filter { $0.value == "deferred" || $0.value == "hold" }.keys
        let names = try names(in: "queue").map { String($0.drop { $0 != "." }.dropFirst()) }
        for id in Set(waiting).subtracting(names) { faults.append("\(id) has no name in queue") }
        return faults
    }

    private func emptied() throws -> [String] {
        let queues = ["incoming", "deferred", "hold", "delivered"].flatMap { ["--queue", $0] }
        // A request may hold its lock for a moment after the response.
        let deadline = Date(timeIntervalSinceNow: 10)
        var left: [String]
        repeat {
            // A queue run removes names that no state needs.
            sandbox.daemon.signal(SIGUSR1)
            let purge = try sandbox.spoolgate(["purge", "--force", "--older-than", "0s"] + queues)
            left = purge.status == 0 ? [] : ["purge: \(purge.errors)"]
            let (records, data) = try files()
            left += records.map { "record: \($0)" } + data.map { "content: \($0)" }
            for place in ["corrupt", "queue"] {
                left += try names(in: place).map { "\(place): \($0)" }
            }
            // A crash while the clock's mark, a purge's note or the call to check the queue is written, or the spool is
            // tried out, leaves a file, which a start an hour later removes.
            left += try FileManager.default.contentsOfDirectory(
                atPath: spool.appending(path: "tmp").path()
            ).filter { name in
                !["clock.", "purged.", "wake.", "trial."].contains { name.hasPrefix($0) }
            }
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

    private func files() throws -> (records: Set<String>, data: Set<String>) {
        var (records, data): (Set<String>, Set<String>) = ([], [])
        for shard in try names(in: "uploads") {
            for name in try names(in: "uploads/\(shard)") {
                if name.hasSuffix(".data") {
                    data.insert(String(name.dropLast(5)))
                } else {
                    records.insert(name)
                }
            }
        }
        return (records, data)
    }

    private func names(in place: String) throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: spool.appending(path: place).path())
    }
}
