// A scripted web server that writes content into the spool itself, or fails to.

import Glibc
import SpoolgateExchange
import SpoolgatePosix
import Synchronization

final class ScriptedLane: Sendable {
    private struct State: ~Copyable {
        var file: Descriptor?
        var limit = LaneLimit(count: 0, restFollows: false)
        var count: Int64 = 0
        var isTaken = false
        var events: [String] = []
    }

    /// The error of a write after its script; 0: all is written.
    private let errno: Int32
    /// Bytes written but not reported.
    private let untold: [UInt8]
    /// Bytes reported at the end but not written.
    private let excess: Int64
    /// Bytes written before the stop arrives.
    private let late: [UInt8]
    /// Whether it keeps the file open after a stop.
    private let isStubborn: Bool
    /// Whether it closes the file with its connection, as web servers do.
    private let leavesWithConnection: Bool
    private let state = Mutex(State())

    init(
        errno: Int32 = 0,
        untold: [UInt8] = [],
        excess: Int64 = 0,
        late: [UInt8] = [],
        isStubborn: Bool = false,
        leavesWithConnection: Bool = false
    ) {
        self.errno = errno
        self.untold = untold
        self.excess = excess
        self.late = late
        self.isStubborn = isStubborn
        self.leavesWithConnection = leavesWithConnection
    }

    var events: [String] { state.withLock { $0.events } }
    var isOpen: Bool { state.withLock { $0.file != nil } }
    var isOffered: Bool { state.withLock { !$0.isTaken } }

    func take(_ file: consuming Descriptor, at offset: Int64, _ limit: LaneLimit) {
        var file: Descriptor? = file
        state.withLock { state in
            state.events.append("grant \(offset) \(Self.text(limit))")
            state.isTaken = true
            state.limit = limit
            state.file = file.take()
        }
    }

    func widen(_ limit: LaneLimit) {
        state.withLock { state in
            state.events.append("widen \(Self.text(limit))")
            state.limit = limit
        }
    }

    func stop() {
        state.withLock { state in
            state.events.append("stop")
            precondition(Self.append(late, to: state.file), "it cannot be written")
            if !isStubborn { state.file = nil }
        }
    }

    func connectionIsClosed() { if leavesWithConnection { leave() } }

    /// Closes the file without a report.
    func leave() { state.withLock { $0.file = nil } }

    func write(_ bytes: [UInt8]) -> (LaneReport, rest: [UInt8]) {
        state.withLock { state in
            let fits = Int(min(Int64(bytes.count), state.limit.count - state.count))
            precondition(Self.append(Array(bytes[..<fits]), to: state.file), "it cannot be written")
            state.count += Int64(fits)
            let isEnded = state.count == state.limit.count && state.limit.restFollows
            if isEnded { state.file = nil }
            return (
                isEnded ? .ended(state.count, errno: 0) : .written(state.count),
                Array(bytes[fits...])
            )
        }
    }

    func end() -> LaneReport {
        state.withLock { state in
            precondition(Self.append(untold, to: state.file), "it cannot be written")
            state.file = nil
            return .ended(state.count + excess, errno: errno)
        }
    }

    private static func append(_ bytes: [UInt8], to file: borrowing Descriptor?) -> Bool {
        switch file {
        case .some(let file): Glibc.write(file.number, bytes, bytes.count) == bytes.count
        case .none: bytes.isEmpty
        }
    }

    private static func text(_ limit: LaneLimit) -> String {
        "\(limit.count)\(limit.restFollows ? " rest" : "")"
    }
}
