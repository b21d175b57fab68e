// Idle handles with their open connections.
//
// Invariants: a handle is returned only after a complete exchange, because a failed transfer leaves state that breaks
// the next one; and no lock is held while a handle is closed.

import SpoolgatePosix

/// The idle handles of one upstream or one client session, the most recently used on top.
package final class ConnectionPool: Sendable {
    /// The maximum number of idle handles; a handle returned beyond it is closed.
    package static let capacity = 32
    /// How long an unused handle and its connection are kept.
    package static let idleTime = Duration.seconds(60)

    private let idle = Monitor<[CurlConnection]>([])

    /// Creates an empty pool.
    package init() {}

    /// Takes an idle handle or creates one; nil if memory is exhausted.
    package func take() -> CurlConnection? {
        idle.update { $0.popLast() } ?? CurlConnection()
    }

    /// Takes back a handle after a complete exchange, and closes those idle for too long.
    package func giveBack(_ connection: CurlConnection) {
        connection.forgetRequest()
        connection.idleUntil = .after(Self.idleTime)
        // Closed outside the lock, because a TLS shutdown may take time.
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
