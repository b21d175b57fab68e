// The bookkeeping of the elastic thread pool.
//
// Pure state; its owner must guard it and start the threads. Invariant: while the pool is not draining, a thread waits
// for a connection or is being started to do so, or the maximum number of threads serve connections.

import SpoolgatePosix

struct ThreadPool {
    let minimumSpare: Int
    /// The maximum number of waiting threads, so far above `minimumSpare` that a varying load rarely starts a thread.
    var maximumSpare: Int { 4 * minimumSpare }
    let maximum: Int

    /// The number of threads, including those being started.
    private(set) var threads = 0
    /// The maximum of `threads` since `busyTimeHasPassed` last returned true.
    private var maximumThreads = 0
    /// The number of threads that wait for a connection or are being started.
    private(set) var idle = 0
    /// The number of ended connections; a change means that descriptors became free.
    private(set) var ended: UInt64 = 0
    private(set) var isDraining = false
    private var connections: [ObjectIdentifier: Entry] = [:]

    private struct Entry {
        var connection: Connection
        var parametersDeadline: Deadline?
    }

    init(minimumSpare: Int, maximum: Int) {
        self.minimumSpare = max(1, minimumSpare)
        self.maximum = max(1, maximum)
    }

    var active: Int { connections.count }

    mutating func threadStarts() {
        threads += 1
        idle += 1
        maximumThreads = max(maximumThreads, threads)
    }

    /// Removes an idle thread that ends, or one counted by `threadStarts` that did not start.
    mutating func idleThreadEnds() {
        threads -= 1
        idle -= 1
    }

    /// Returns whether the thread must first start a successor (already counted), and the value of `ended`.
    mutating func take(
        _ connection: Connection,
        parametersBy deadline: Deadline
    ) -> (startsSuccessor: Bool, ended: UInt64) {
        idle -= 1
        connections[ObjectIdentifier(connection)] = Entry(
            connection: connection,
            parametersDeadline: deadline
        )
        let startsSuccessor = idle == 0 && threads < maximum && !isDraining
        if startsSuccessor { threadStarts() }
        return (startsSuccessor, ended)
    }

    mutating func parametersArrived(_ connection: Connection) {
        connections[ObjectIdentifier(connection)]?.parametersDeadline = nil
    }

    /// Records the end of a connection.
    ///
    /// Returns whether the thread must wait for the next one; otherwise it must end.
    mutating func giveBack(_ connection: Connection) -> Bool {
        connections[ObjectIdentifier(connection)] = nil
        ended += 1
        guard !isDraining, idle < maximumSpare else {
            threads -= 1
            return false
        }
        idle += 1
        return true
    }

    /// Returns true once each time the threads have fallen to half of their peak in a busy period.
    mutating func busyTimeHasPassed() -> Bool {
        guard maximumThreads > maximumSpare, threads <= maximumThreads / 2 else { return false }
        maximumThreads = threads
        return true
    }

    var silent: [Connection] {
        connections.values.filter { $0.parametersDeadline != nil }.map(\.connection)
    }

    func overdue() -> [Connection] {
        connections.values.filter { $0.parametersDeadline?.hasPassed == true }.map(\.connection)
    }

    mutating func drain() { isDraining = true }
}
