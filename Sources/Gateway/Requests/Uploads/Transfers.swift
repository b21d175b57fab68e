// The uploads that are receiving content or were interrupted, for operators.
//
// Invariant: the memory used does not depend on the size of the spool.

package import SpoolgateExchange
import SpoolgateJournal
package import SpoolgatePosix
package import SpoolgateSpool
import SpoolgateTextFormats
package import SpoolgateUploadProtocol
import Synchronization

/// The content of one request on its way into an upload; one thread updates it, and any thread may read it.
package final class Transfer: Sendable {
    package let id: UploadID
    package let route: String
    private let head: RequestHead
    package let owner: String?
    /// The address of the client that is sending; nil if unknown.
    package let client: String?
    /// The number of bytes of the complete upload; nil if unknown.
    package let length: Int64?
    /// The number of connections known to this process that have sent content to the upload, including this one.
    package let connections: Int
    /// A later transfer has a greater number; transfers that begin at the same time may share one.
    package let number: Int
    package let watch = Stopwatch()
    private let first: Int64
    private let content: ContentCount
    /// The raw value of the content's `ContentPath` plus 1; 0 until the content ends.
    private let path = Atomic(0)

    fileprivate init(
        _ creation: UploadCreation,
        _ state: UploadState,
        _ content: ContentCount,
        client: String?,
        connections: Int,
        number: Int
    ) {
        self.number = number
        self.content = content
        id = creation.id
        route = creation.route
        head = creation.head
        owner = creation.principal?.text
        self.client = client
        length = state.length
        first = state.offset
        self.connections = connections
    }

    func note(_ path: ContentPath) { self.path.store(path.rawValue + 1, ordering: .relaxed) }

    var shares: ContentShares {
        let nginx = content.writtenByNginx
        let path = ContentPath(rawValue: path.load(ordering: .relaxed) - 1)
        return ContentShares(
            nginx: Int64(nginx),
            gateway: Int64(max(0, count - nginx)),
            path: path == .used ? nil : path
        )
    }

    private var count: Int { content.received }

    package var naming: UploadNaming { UploadNaming(head) }

    /// The number of bytes of the upload received so far, including those of earlier transfers.
    package var offset: Int64 { first + Int64(count) }

    /// The average rate of this transfer in bytes per second.
    package var rate: Int64 {
        let seconds = Double(max(watch.nanoseconds, 1_000_000)) / 1e9
        return Int64(Double(count) / seconds)
    }
}

/// The current and recent transfers of one process; thread-safe.
package final class Transfers: Sendable {
    private struct Table {
        var active: [UploadID: Transfer] = [:]
        /// Uploads whose clients stopped early, with the number of their connections and whether the last was
        /// interrupted.
        var left = RecentTable<UploadID, (connections: Int, isInterrupted: Bool)>(
            maximum: Transfers.maximumLeft
        )
        var shares = SharesTable()
    }

    private let table = Monitor(Table())
    private let begun = Counter()
    private let leftCount = Counter()
    private let metrics: Metrics
    private static let maximumLeft = 4096

    init(_ metrics: Metrics) { self.metrics = metrics }

    /// Counts an ordinary upload as being received while `body` runs.
    func countingOrdinary<R>(
        _ body: () throws(SpoolError) -> R
    ) throws(SpoolError) -> R {
        metrics.receiving.add()
        metrics.receivingOrdinary.add()
        defer {
            metrics.receiving.add(-1)
            metrics.receivingOrdinary.add(-1)
        }
        return try body()
    }

    /// Lists an upload as active until `end`; `content` counts its content.
    @inline(never)
    func begin(_ upload: Upload, _ content: ContentCount, from client: String?) -> Transfer {
        metrics.receiving.add()
        begun.add()
        let before = leftCount.count > 0 ? takeLeft(upload.creation.id) : nil
        if before?.isInterrupted == true { metrics.resumptions.add() }
        let transfer = Transfer(
            upload.creation,
            upload.state,
            content,
            client: client,
            connections: (before?.connections ?? 0) + 1,
            number: begun.count
        )
        table.updateQuietly { $0.active[transfer.id] = transfer }
        return transfer
    }

    private func takeLeft(_ id: UploadID) -> (connections: Int, isInterrupted: Bool)? {
        table.updateQuietly { table in
            let taken = table.left[id]
            table.left[id] = nil
            leftCount.set(table.left.count)
            return taken
        }
    }

    /// Ends a transfer; `isWhole` is true if its upload is complete.
    func end(_ transfer: Transfer, isInterrupted: Bool, isWhole: Bool) {
        metrics.receiving.add(-1)
        table.updateQuietly { table in
            table.active[transfer.id] = nil
            table.shares.add(transfer.shares, to: transfer.id)
            guard !isWhole else { return }
            table.left[transfer.id] = (transfer.connections, isInterrupted)
            leftCount.set(table.left.count)
        }
    }

    /// How many bytes of an upload's content nginx and the gateway wrote, including a current transfer; nil if unknown.
    ///
    /// Only a few thousand uploads are remembered, and none of an earlier process.
    package func shares(of id: UploadID) -> ContentShares? {
        table.updateQuietly { table in
            guard let active = table.active[id] else { return table.shares[id] }
            var shares = table.shares[id] ?? ContentShares()
            shares.add(active.shares)
            return shares.nginx + shares.gateway > 0 ? shares : nil
        }
    }

    package var all: [Transfer] { table.updateQuietly { Array($0.active.values) } }
}

// MARK: Shares

// The shares of content, for operators.

/// How many bytes of an upload's content nginx wrote to the spool, and how many passed through the gateway.
package struct ContentShares: Sendable, Equatable {
    package var nginx: Int64 = 0
    package var gateway: Int64 = 0
    /// Why nginx did not write the last message that passed through the gateway; nil if nginx wrote all messages.
    package var path: ContentPath?

    /// Creates shares.
    package init(nginx: Int64 = 0, gateway: Int64 = 0, path: ContentPath? = nil) {
        (self.nginx, self.gateway, self.path) = (nginx, gateway, path)
    }

    /// The line that the daemon sends to its commands, without a line break: `nginx=300000 gateway=1 result=-`.
    package var line: String {
        "nginx=\(nginx) gateway=\(gateway) result=\(path?.label ?? "-")"
    }

    /// Parses a `line`; returns nil if it is invalid.
    package init?(line: some StringProtocol) {
        let values = line.split(separator: " ").compactMap { word -> Substring? in
            word.split(separator: "=", maxSplits: 1).last.map { Substring($0) }
        }
        guard values.count == 3, let nginx = Int64(values[0]), let gateway = Int64(values[1])
        else { return nil }
        self.init(nginx: nginx, gateway: gateway, path: ContentPath(label: values[2]))
    }

    /// A text for people: `300000 bytes by nginx, 1 by the gateway`.
    package var words: String {
        let why = path?.reason.map { " (\($0))" } ?? ""
        switch (nginx, gateway) {
        case (_, 0): return "\(nginx) bytes by nginx"
        case (0, _): return "\(gateway) bytes by the gateway\(why)"
        default: return "\(nginx) bytes by nginx, \(gateway) by the gateway\(why)"
        }
    }

    mutating func add(_ other: ContentShares) {
        nginx += other.nginx
        gateway += other.gateway
        path = other.path ?? path
    }
}

/// The shares of the uploads that most recently began to receive content.
struct SharesTable {
    static let maximum = 4096

    private var shares = RecentTable<UploadID, ContentShares>(maximum: maximum)

    mutating func add(_ added: ContentShares, to id: UploadID) {
        guard added.nginx + added.gateway > 0 else { return }
        var known = shares[id] ?? ContentShares()
        known.add(added)
        shares[id] = known
    }

    subscript(id: UploadID) -> ContentShares? { shares[id] }
}
