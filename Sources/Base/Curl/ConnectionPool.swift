// Idle handles, each with the connections that it keeps.
//
// The invariants: a handle is given back only after a whole exchange, because a handle whose transfer failed keeps state
// that breaks the next one; and no lock is held while a handle is closed.

import SpoolgatePosix

/// The idle handles of one upstream or of one client session, the one used last on top.
package final class ConnectionPool: Sendable {
    /// Most handles kept; what comes back beyond that is closed.
    package static let capacity = 32
    /// How long a handle is kept unused, its connection open.
    package static let idleTime = Duration.seconds(60)

    private let idle = Monitor<[CurlConnection]>([])

    /// Makes an empty pool.
    package init() {}

    /// An idle handle, or a new one; nil when there is no memory for it.
    package func take() -> CurlConnection? {
        idle.update { $0.popLast() } ?? CurlConnection()
    }

    /// Takes back a handle whose last exchange was whole, and closes those that have been idle for too long.
    package func giveBack(_ connection: CurlConnection) {
        connection.forgetRequest()
        connection.idleUntil = .after(Self.idleTime)
        // Closing can take a TLS goodbye, so it happens after the lock is let go.
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
