// Which uploads receive content just now, for whoever wants to see it, and which of those were interrupted
// before.
//
// Invariant: what is in memory does not grow with the spool.

import SpoolgateExchange
import SpoolgateJournal
package import SpoolgatePosix
package import SpoolgateSpool
import SpoolgateTextFormats
package import SpoolgateUploadProtocol
import Synchronization

/// Content that one request brings to an upload.
///
/// Read by any thread, while one receives.
package final class Transfer: Sendable {
    /// The upload.
    package let id: UploadID
    /// Its route.
    package let route: String
    /// The head of its creation.
    private let head: RequestHead
    /// Who it belongs to, as far as that is known.
    package let owner: String?
    /// The address of the client that sends now; nil: not known.
    package let client: String?
    /// Bytes of the whole, where they are known.
    package let length: Int64?
    /// Connections that have brought content to it, this one included, as far as this process knows.
    package let connections: Int
    /// The later it began the higher; two that begin at the same time may have the same.
    package let number: Int
    /// Since when this one does.
    package let watch = Stopwatch()
    private let first: Int64
    private let received = Atomic(0)
    private let writtenByNginx = Atomic(0)
    /// The number of the path among all, from 1; 0: the content is not over.
    private let path = Atomic(0)

    fileprivate init(
        _ creation: UploadCreation,
        _ state: UploadState,
        client: String?,
        connections: Int,
        number: Int
    ) {
        self.number = number
        id = creation.id
        route = creation.route
        head = creation.head
        owner = creation.principal?.text
        self.client = client
        length = state.length
        first = state.offset
        self.connections = connections
    }

    /// Notes bytes that were stored; `byNginx`: nginx has stored them by itself.
    func add(_ count: Int, byNginx: Bool = false) {
        received.wrappingAdd(count, ordering: .relaxed)
        if byNginx { writtenByNginx.wrappingAdd(count, ordering: .relaxed) }
    }

    /// Notes which path the content took, which is over.
    func note(_ path: ContentPath) { self.path.store(path.rawValue + 1, ordering: .relaxed) }

    /// Who has stored these bytes.
    var shares: ContentShares {
        let nginx = writtenByNginx.load(ordering: .relaxed)
        let path = ContentPath(rawValue: path.load(ordering: .relaxed) - 1)
        return ContentShares(
            nginx: Int64(nginx),
            gateway: Int64(max(0, count - nginx)),
            path: path == .taken ? nil : path
        )
    }

    private var count: Int { received.load(ordering: .relaxed) }

    /// Its path, and what names its file.
    package var naming: UploadNaming { UploadNaming(head) }

    /// Bytes of the upload that have come.
    package var offset: Int64 { first + Int64(count) }

    /// Bytes a second that this connection has brought so far.
    package var rate: Int64 {
        let seconds = Double(max(watch.nanoseconds, 1_000_000)) / 1e9
        return Int64(Double(count) / seconds)
    }
}

/// The transfers of one process.
///
/// Any thread.
package final class Transfers: Sendable {
    private struct Table {
        var active: [UploadID: Transfer] = [:]
        /// Uploads that were left before they were whole, each with its connections so far, and whether the
        /// last one broke.
        var left: [UploadID: (connections: Int, isInterrupted: Bool)] = [:]
        /// Who wrote the content of those that received some.
        var shares = SharesTable()
    }

    private let table = Monitor(Table())
    private let begun = Counter()
    /// How many are in `left`, most of the time none.
    private let leftCount = Counter()
    private let metrics: Metrics
    private let buffers: BufferPool
    /// Most uploads of which it is known that they were left.
    private static let mostLeft = 4096

    init(_ metrics: Metrics, _ buffers: BufferPool) {
        self.metrics = metrics
        self.buffers = buffers
    }

    /// Receives content of an upload.
    ///
    /// - Parameters:
    ///   - upload: the upload.
    ///   - client: the client's address.
    ///   - isLast: whether no more can come once this content has ended well.
    ///   - body: receives it, through a buffer.
    /// - Returns: what `body` returns.
    /// - Throws: what `body` throws; `.exhausted` where there is no memory for a buffer.
    func receive(
        into upload: Upload,
        from client: String?,
        isLast: Bool,
        _ body: (ContentBuffer, Transfer) throws(SpoolError) -> ReceptionEnd
    ) throws(SpoolError) -> ReceptionEnd {
        let transfer = begin(upload, client: client)
        do throws(SpoolError) {
            let received = try buffers.withBuffer { buffer throws(SpoolError) in
                try body(buffer, transfer)
            }
            let isInterrupted = if case .interrupted = received { true } else { false }
            end(transfer, isInterrupted: isInterrupted, isWhole: isLast && received == .ended)
            return received
        } catch {
            end(transfer, isInterrupted: true, isWhole: false)
            throw error
        }
    }

    /// Counts an ordinary upload among those that are received, for the time of `body`.
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

    @inline(never)
    private func begin(_ upload: Upload, client: String?) -> Transfer {
        metrics.receiving.add()
        begun.add()
        let before = leftCount.count > 0 ? takeLeft(upload.creation.id) : nil
        if before?.isInterrupted == true { metrics.resumptions.add() }
        let transfer = Transfer(
            upload.creation,
            upload.state,
            client: client,
            connections: (before?.connections ?? 0) + 1,
            number: begun.count
        )
        table.updateQuietly { $0.active[transfer.id] = transfer }
        return transfer
    }

    private func takeLeft(_ id: UploadID) -> (connections: Int, isInterrupted: Bool)? {
        table.updateQuietly { table in
            let taken = table.left.removeValue(forKey: id)
            leftCount.set(table.left.count)
            return taken
        }
    }

    @inline(never)
    private func end(_ transfer: Transfer, isInterrupted: Bool, isWhole: Bool) {
        metrics.receiving.add(-1)
        table.updateQuietly { table in
            table.active[transfer.id] = nil
            table.shares.add(transfer.shares, to: transfer.id)
            guard !isWhole else { return }
            // Any of them: those that never come back are as many as the others.
            if table.left.count >= Self.mostLeft { _ = table.left.popFirst() }
            table.left[transfer.id] = (transfer.connections, isInterrupted)
            leftCount.set(table.left.count)
        }
    }

    /// Who wrote an upload's content, that of a request at work included; nil: nothing is known of it.
    ///
    /// This process remembers some thousand uploads, and no message of a process before it.
    package func shares(of id: UploadID) -> ContentShares? {
        table.updateQuietly { table in
            guard let active = table.active[id] else { return table.shares[id] }
            var shares = table.shares[id] ?? ContentShares()
            shares.add(active.shares)
            return shares.nginx + shares.gateway > 0 ? shares : nil
        }
    }

    /// What is received now, in no order.
    package var all: [Transfer] { table.updateQuietly { Array($0.active.values) } }
}
