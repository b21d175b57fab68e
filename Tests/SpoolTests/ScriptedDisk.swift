// A disk that notes the calls made on it and refuses those a test names.
//
// A refused call is not made, as on a disk that is full or failing. Faults at call n and power cuts
// are in FaultTests.

import SpoolgatePosix
import Synchronization

@testable import SpoolgateSpool

/// Notes and refuses the calls of a `Disk`.
final class ScriptedDisk: Sendable {
    private struct State {
        var calls: [(call: Disk.Call, subject: String)] = []
        /// Calls that are made still before every one fails; nil: no end.
        var callsLeft: Int?
        var rules: [(call: Disk.Call, part: String, errno: Int32, times: Int)] = []
    }

    private let state = Mutex(State())

    /// The disk to give to a spool.
    var disk: Disk { Disk { call, subject throws(SystemError) in try self.check(call, subject) } }

    /// The calls made since `forget`, refused ones too.
    var calls: [Disk.Call] { state.withLock { $0.calls.map(\.call) } }

    /// The calls, each with what it was made on: `write record`, `sync data`, `syncDirectory uploads`.
    var places: [String] {
        state.withLock { state in
            state.calls.map { call, subject in
                let parts = subject.split(separator: "/").map(String.init)
                let name = parts.last ?? ""
                let directory = parts.last { Self.directories.contains($0) } ?? "-"
                let isFile = directory == "uploads" && name.count > 1 && name != directory
                let file = name.hasSuffix(".data") ? "data" : "record"
                return "\(call) \(isFile ? file : directory)"
            }
        }
    }

    private static let directories: Set = ["uploads", "queue", "corrupt", "daemons", "tmp"]

    func forget() { state.withLock { $0.calls = [] } }

    /// From now on such calls fail on paths with a part; the first `times` of them.
    func refuse(_ call: Disk.Call, on part: String = "", errno: Int32, times: Int = .max) {
        state.withLock { $0.rules.append((call, part, errno, times)) }
    }

    /// From now on `count` calls are made, and none after them, as where the process dies.
    func die(after count: Int) { state.withLock { $0.callsLeft = count } }

    /// From now on every call is made.
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
