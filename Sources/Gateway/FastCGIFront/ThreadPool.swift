// Who accepts and who serves: the arithmetic of the elastic pool.
//
// Pure state, guarded by its owner; it starts no thread and touches no socket but to let it go.
// Invariant: while the pool is not draining, at least one thread waits for a connection, is being
// started to do so, or every thread there may be has a connection.

import SpoolgatePosix

/// The pool's state.
struct ThreadPool {
    /// Threads that wait for connections and stay although there is nothing to do.
    let minimumSpare: Int
    /// Threads that wait at most: more end.
    ///
    /// The distance to `minimumSpare` keeps a load that comes and goes from starting a thread for
    /// every other request.
    var maximumSpare: Int { 4 * minimumSpare }
    /// Threads there are at most.
    let maximum: Int

    /// Threads there are, those being started included.
    private(set) var threads = 0
    /// The most there were since `busyTimeIsOver` last said so.
    private var mostThreads = 0
    /// Of these, those that wait for a connection, or are being started.
    private(set) var idle = 0
    /// Connections that ended; a change tells that room became free.
    private(set) var ended: UInt64 = 0
    private(set) var isDraining = false
    private var connections: [ObjectIdentifier: Entry] = [:]

    private struct Entry {
        var connection: Connection
        /// By when the parameters must be here; nil: they are.
        var parametersDeadline: Deadline?
    }

    init(minimumSpare: Int, maximum: Int) {
        self.minimumSpare = max(1, minimumSpare)
        self.maximum = max(1, maximum)
    }

    /// Connections being served.
    var active: Int { connections.count }

    /// Counts a thread that is about to be started.
    mutating func threadStarts() {
        threads += 1
        idle += 1
        mostThreads = max(mostThreads, threads)
    }

    /// An idle thread ends, or one that `threadStarts` counted did not start.
    mutating func idleThreadEnds() {
        threads -= 1
        idle -= 1
    }

    /// An idle thread has accepted a connection.
    ///
    /// - Returns: whether it has to start a successor first (already counted by `threadStarts`), and how
    ///   many have `ended`.
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

    /// The connection's parameters are here.
    mutating func parametersArrived(_ connection: Connection) {
        connections[ObjectIdentifier(connection)]?.parametersDeadline = nil
    }

    /// A thread is done with its connection, which is closed.
    /// - Returns: whether the thread stays and waits for the next one; if not it ends.
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

    /// Whether half of the threads that a busy time had are gone; true once for each halving.
    mutating func busyTimeIsOver() -> Bool {
        guard mostThreads > maximumSpare, threads <= mostThreads / 2 else { return false }
        mostThreads = threads
        return true
    }

    /// Connections whose parameters are not here yet.
    var silent: [Connection] {
        connections.values.filter { $0.parametersDeadline != nil }.map(\.connection)
    }

    /// Connections whose parameters are overdue.
    func overdue() -> [Connection] {
        connections.values.filter { $0.parametersDeadline?.hasPassed == true }.map(\.connection)
    }

    /// No thread waits for another connection from now on.
    mutating func drain() { isDraining = true }
}
