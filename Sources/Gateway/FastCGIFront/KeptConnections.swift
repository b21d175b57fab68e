// Connections that a web server keeps for its next request, and how they are let go.
//
// nginx closes a connection that it keeps when any byte comes on it, passes over an empty record of the error
// stream where it has just sent a request, and keeps no connection on which one comes behind END_REQUEST (1.22 and
// 1.31: ngx_http_upstream_keepalive_module, ngx_http_fastcgi_module). So the gateway never closes a kept
// connection by itself, which a request might cross and be lost by: it sends that record and waits for the web
// server to close. A request that crosses the record is served, and the connection kept once more.
//
// State beside sends that do not wait; guarded by its owner. Invariant: whoever takes a connection out is the
// only one who has it.

import SpoolgatePosix

/// Connections on which nothing happens for now.
struct KeptConnections {
    /// Connections that are kept at most: more than this, and the oldest are let go.
    let most: Int
    /// How long a web server has to close what was let go.
    let patience: Duration

    private struct Entry {
        let connection: Connection
        /// When it is closed all the same; nil: it was not let go.
        var closing: Deadline?
    }

    private var entries: [UInt64: Entry] = [:]
    private var lastToken: UInt64 = 0
    /// Of these, those that were let go.
    private var letGo = 0
    /// Whether what comes in is let go at once, and whether nothing comes in any more.
    private(set) var isEnding = false
    private(set) var isOver = false

    init(most: Int, patience: Duration) {
        self.most = most
        self.patience = patience
    }

    var isEmpty: Bool { entries.isEmpty }
    var count: Int { entries.count }

    /// Takes a connection in.
    ///
    /// - Returns: the token by which it is taken out; nil where no more are taken: the caller closes it.
    mutating func add(_ connection: Connection) -> UInt64? {
        guard !isOver else { return nil }
        lastToken += 1
        entries[lastToken] = Entry(connection: connection)
        if isEnding {
            letGo(of: lastToken)
        } else if entries.count - letGo > most, let oldest = oldest {
            letGo(of: oldest)
        }
        return lastToken
    }

    /// Takes a connection out, on which something has come; nil where it was taken out before.
    mutating func take(_ token: UInt64) -> Connection? {
        guard let entry = entries.removeValue(forKey: token) else { return nil }
        if entry.closing != nil { letGo -= 1 }
        return entry.connection
    }

    /// Lets go of all, and from now on of each that comes in.
    mutating func end() {
        isEnding = true
        for (token, entry) in entries where entry.closing == nil { letGo(of: token) }
    }

    /// Takes out those that were let go, and that the web server did not close in time: the caller closes
    /// them.
    mutating func overdue() -> [Connection] {
        guard letGo > 0 else { return [] }
        let tokens = entries.filter { $0.value.closing?.hasPassed == true }.keys
        return tokens.compactMap { take($0) }
    }

    /// Takes all out, and takes no more in: the caller closes them.
    mutating func close() -> [Connection] {
        isOver = true
        defer { (entries, letGo) = ([:], 0) }
        return entries.values.map(\.connection)
    }

    private var oldest: UInt64? { entries.filter { $0.value.closing == nil }.keys.min() }

    private mutating func letGo(of token: UInt64) {
        // Where it cannot be sent there is nobody to wait for: the end of the connection is on its way.
        _ = entries[token]?.connection.sendAtOnce(ConnectionRecord.farewell)
        entries[token]?.closing = .after(patience)
        letGo += 1
    }
}
