// Whether nginx writes to the spool (`spool_receive`), from /proc.

import Foundation

struct SpoolWriting {
    /// Whether a worker has an upload's file open.
    private(set) var hasFile = false
    /// Whether a worker's pool thread runs or waits for a disk; it sleeps unless it writes or closes a file.
    private(set) var isInWrite = false

    init(of sandbox: Sandbox) {
        let spool = sandbox.directory.path() + "/spool/uploads/"
        for worker in sandbox.workers where Self.hasFile(below: spool, worker) {
            hasFile = true
            isInWrite = isInWrite || Self.hasBusyThread(worker)
        }
    }

    private static func hasFile(below spool: String, _ worker: Int32) -> Bool {
        let directory = "/proc/\(worker)/fd"
        let files = FileManager.default
        let names = (try? files.contentsOfDirectory(atPath: directory)) ?? []
        return names.contains { name in
            let path = try? files.destinationOfSymbolicLink(atPath: "\(directory)/\(name)")
            return path?.hasPrefix(spool) ?? false
        }
    }

    private static func hasBusyThread(_ worker: Int32) -> Bool {
        let directory = "/proc/\(worker)/task"
        let threads = (try? FileManager.default.contentsOfDirectory(atPath: directory)) ?? []
        return threads.contains { thread in
            let file = "\(directory)/\(thread)/stat"
            guard thread != "\(worker)",
                let text = try? String(contentsOfFile: file, encoding: .utf8),
                // The name in parentheses may contain any character.
                let state = text[(text.lastIndex(of: ")") ?? text.startIndex)...].dropFirst(2).first
            else { return false }
            return state == "R" || state == "D"
        }
    }
}
