// Pools of idle handles.
//
// Invariants: a handle is returned only after a complete exchange, because a failed transfer leaves state that breaks
// the next one; no lock is held while a handle is closed.

import SpoolgatePosix

/// The idle libcurl handles of one upstream or one client session, with their open connections.
///
/// `take` returns the most recently used handle.
package final class ConnectionPool: Sendable {
    /// The maximum number of idle handles.
    ///
    /// A handle returned to a full pool is closed.
    package static let capacity = 32
    package static let idleTime = Duration.seconds(60)

    private let idle = Monitor<[CurlConnection]>([])

    /// Creates an empty pool.
    package init() {}

    /// Takes an idle handle out of the pool or creates a handle; returns nil if memory is exhausted.
    package func take() -> CurlConnection? {
        idle.update { $0.popLast() } ?? CurlConnection()
    }

    /// Puts a handle back after a complete exchange, and closes pooled handles that have been idle for `idleTime`.
    package func giveBack(_ connection: CurlConnection) {
        connection.forgetRequest()
        connection.idleUntil = .after(Self.idleTime)
        // The surplus is closed outside the lock, because a TLS shutdown may take time.
        let surplus = idle.update { idle -> [CurlConnection] in
            let expired = idle.prefix { $0.idleUntil.hasPassed }
            idle.removeFirst(expired.count)
            guard idle.count < Self.capacity else { return expired + [connection] }
            idle.append(connection)
            return Array(expired)
        }
        withExtendedLifetime(surplus) {}
    }
}
