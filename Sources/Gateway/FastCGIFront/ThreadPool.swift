// The bookkeeping of the elastic thread pool: which threads accept connections, and which serve requests.
//
// Pure state; its owner must guard it, and starts the threads. Invariant: while the pool is not draining, a thread
// waits for a connection or is being started to do so, or the maximum number of threads serve connections.

import SpoolgatePosix

struct ThreadPool {
    /// The number of threads that wait for connections even if there is nothing to do.
    let minimumSpare: Int
    /// The maximum number of waiting threads; further ones end.
    ///
    /// The distance to `minimumSpare` prevents a varying load from starting a thread for every other request.
    var maximumSpare: Int { 4 * minimumSpare }
    let maximum: Int

    /// Includes threads that are being started.
    private(set) var threads = 0
    /// The highest number of threads since `busyTimeIsOver` last returned true.
    private var mostThreads = 0
    /// Threads that wait for a connection or are being started.
    private(set) var idle = 0
    /// Connections that have ended; a change means that descriptors became free.
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
        mostThreads = max(mostThreads, threads)
    }

    /// Removes an idle thread that ends, or one that `threadStarts` counted but that did not start.
    mutating func idleThreadEnds() {
        threads -= 1
        idle -= 1
    }

    /// Records that an idle thread has accepted a connection.
    ///
    /// - Returns: whether it must first start a successor (already counted by `threadStarts`), and the value of
    ///   `ended`.
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

    /// Records that a thread has closed its connection.
    ///
    /// - Returns: whether the thread must wait for the next one; otherwise it must end.
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

    /// Returns true once each time the number of threads has fallen to half of its peak in a busy period.
    mutating func busyTimeIsOver() -> Bool {
        guard mostThreads > maximumSpare, threads <= mostThreads / 2 else { return false }
        mostThreads = threads
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
