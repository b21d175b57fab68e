// Connections that a web server keeps for its next request.
//
// The gateway never closes a kept connection first, because a request sent at the same time could be lost. It sends an
// empty record of the error stream and waits: nginx closes a kept connection on which any byte arrives, ignores the
// record after it has sent a request, and does not keep a connection on which the record follows END_REQUEST (nginx
// 1.22 and 1.31: ngx_http_upstream_keepalive_module, ngx_http_fastcgi_module). A request that crosses the record is
// served, and the connection is kept again.
//
// `KeptConnections` sends without waiting; its owner must guard it. Invariant: a connection that was taken out belongs
// to its taker alone.

import SpoolgatePosix

struct KeptConnections {
    /// The maximum number of connections that the web server is not asked to close.
    let maximum: Int
    let patience: Duration

    private struct Entry {
        let connection: Connection
        /// The time at which the gateway closes the connection; nil if the web server was not asked to.
        var closing: Deadline?
    }

    private var entries: [UInt64: Entry] = [:]
    private var lastToken: UInt64 = 0
    private var releasing = 0
    /// `isEnding` is true if every connection must be closed, `isEnded` if no more are kept.
    private(set) var isEnding = false
    private(set) var isEnded = false

    init(maximum: Int, patience: Duration) {
        self.maximum = maximum
        self.patience = patience
    }

    var isEmpty: Bool { entries.isEmpty }
    var count: Int { entries.count }

    /// Adds a connection and returns its token.
    ///
    /// Returns nil if no more are kept; the caller must then close the connection.
    mutating func add(_ connection: Connection) -> UInt64? {
        guard !isEnded else { return nil }
        lastToken += 1
        entries[lastToken] = Entry(connection: connection)
        if isEnding {
            release(of: lastToken)
        } else if entries.count - releasing > maximum, let oldest = oldest {
            release(of: oldest)
        }
        return lastToken
    }

    /// Takes out a connection.
    ///
    /// Returns nil if the connection was taken out before.
    mutating func take(_ token: UInt64) -> Connection? {
        guard let entry = entries.removeValue(forKey: token) else { return nil }
        if entry.closing != nil { releasing -= 1 }
        return entry.connection
    }

    /// Asks the web server to close all connections, including those added later.
    mutating func end() {
        isEnding = true
        for (token, entry) in entries where entry.closing == nil { release(of: token) }
    }

    /// Takes out the connections that the web server did not close in time; the caller closes them.
    mutating func overdue() -> [Connection] {
        guard releasing > 0 else { return [] }
        let tokens = entries.filter { $0.value.closing?.hasPassed == true }.keys
        return tokens.compactMap { take($0) }
    }

    /// Takes out all connections and keeps no more; the caller closes them.
    mutating func close() -> [Connection] {
        isEnded = true
        defer { (entries, releasing) = ([:], 0) }
        return entries.values.map(\.connection)
    }

    private var oldest: UInt64? { entries.filter { $0.value.closing == nil }.keys.min() }

    private mutating func release(of token: UInt64) {
        // If the record cannot be sent, the end of the connection is about to arrive.
        _ = entries[token]?.connection.sendAtOnce(ConnectionRecord.farewell)
        entries[token]?.closing = .after(patience)
        releasing += 1
    }
}
