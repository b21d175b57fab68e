// A disk that records its calls and does not make those that a test refuses, like a full or failing one.
//
// FaultTests covers faults at the nth call and power failures.

import SpoolgatePosix
import Synchronization

@testable import SpoolgateSpool

final class ScriptedDisk: Sendable {
    private struct State {
        var calls: [(call: Disk.Call, subject: String)] = []
        /// The calls left before all fail; nil: unlimited.
        var callsLeft: Int?
        var rules: [(call: Disk.Call, part: String, errno: Int32, times: Int)] = []
    }

    private let state = Mutex(State())

    var disk: Disk { Disk { call, subject throws(SystemError) in try self.check(call, subject) } }

    /// The calls since `forget`, including refused ones.
    var calls: [Disk.Call] { state.withLock { $0.calls.map(\.call) } }

    /// The calls with their subjects: `write record`, `sync data`, `unlink removed`, `syncDirectory uploads`.
    var places: [String] {
        state.withLock { state in
            state.calls.map { call, subject in
                let parts = subject.split(separator: "/").map(String.init)
                let name = parts.last ?? ""
                let directory = parts.last { Self.directories.contains($0) } ?? "-"
                let isFile = directory == "uploads" && name.count > 1 && name != directory
                let suffix = name.split(separator: ".").dropFirst().last.map(String.init)
                let file = suffix ?? "record"
                return "\(call) \(isFile ? file : directory)"
            }
        }
    }

    private static let directories: Set = ["uploads", "queue", "corrupt", "daemons", "tmp"]

    func forget() { state.withLock { $0.calls = [] } }

    /// Refuses the next `times` calls on paths that contain `part`.
    func refuse(_ call: Disk.Call, on part: String = "", errno: Int32, times: Int = .max) {
        state.withLock { $0.rules.append((call, part, errno, times)) }
    }

    /// Makes `count` more calls, then none, as in a crash.
    func die(after count: Int) { state.withLock { $0.callsLeft = count } }

    func allow() {
        state.withLock { state in
            state.rules = []
            state.callsLeft = nil
        }
    }

    private func check(_ call: Disk.Call, _ subject: String) throws(SystemError) -> Int {
        try state.withLock { state throws(SystemError) in
            state.calls.append((call, subject))
            if let left = state.callsLeft {
                guard left > 0 else {
                    throw SystemError(
                        call: call.rawValue,
                        subject: subject,
                        errno: SystemError.lost
                    )
                }
                state.callsLeft = left - 1
            }
            for index in state.rules.indices {
                let rule = state.rules[index]
                guard rule.call == call, rule.times > 0,
                    rule.part.isEmpty || subject.contains(rule.part)
                else { continue }
                state.rules[index].times -= 1
                throw SystemError(call: call.rawValue, subject: subject, errno: rule.errno)
            }
            return .max
        }
    }
}
