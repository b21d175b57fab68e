// What this process still has when a world has ended: law 6.

import Foundation
import SpoolgatePosix
import SpoolgateTestSupport

struct Leftovers {
    /// The names of threads, but for those of the test's own libraries, which have the name of the process.
    private let threads: [String]

    init() { threads = Self.threads }

    /// What this process has now and did not have before; empty if everything ends in time.
    func left(of root: String) -> [String] {
        let end = Deadline.after(.seconds(10))
        while true {
            let files = OpenDescriptors.of { $0.hasPrefix(root) }.map { "the open file \($0.path)" }
            let left = files + Self.more(Self.threads, than: threads)
            if left.isEmpty || end.hasPassed { return left }
            SpoolgatePosix.Thread.pause(.milliseconds(2))
        }
    }

    /// Whether a thread has this name.
    static func isRunning(_ name: String) -> Bool { threads.contains(name) }

    private static func more(_ names: [String], than before: [String]) -> [String] {
        var before = before
        return names.compactMap { name in
            guard let index = before.firstIndex(of: name) else { return "the thread \(name)" }
            before.remove(at: index)
            return nil
        }
    }

    private static var threads: [String] {
        let tasks = "/proc/self/task"
        let all = (try? FileManager.default.contentsOfDirectory(atPath: tasks)) ?? []
        let own = (try? String(contentsOfFile: "/proc/self/comm", encoding: .utf8)) ?? ""
        return all.compactMap { task in
            let name = try? String(contentsOfFile: "\(tasks)/\(task)/comm", encoding: .utf8)
            return name == own || name?.contains("qos") == true
                ? nil : name.map { "\($0.dropLast())" }
        }
    }
}
