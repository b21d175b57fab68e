// The complete uploads that are waiting for delivery or an operator, as far as this process knows. It records its own
// changes, and each queue run adds those of other processes.
//
// Invariant: the memory used does not depend on the size of the spool.

package import SpoolgatePosix
package import SpoolgateSpool
package import SpoolgateUploadProtocol

/// The uploads in the queues `deferred` and `hold`, for metrics and the status; thread-safe.
package final class WaitingUploads: Sendable {
    private struct Table {
        /// The recorded uploads, each with the number of the queue run that last found it.
        var known: [UploadID: (upload: WaitingUpload, run: Int)] = [:]
        /// The number of uploads that do not fit into `known`.
        var others = 0
        var run = 0
        var corrupt = 0
        /// Whether recovery is reading the spool and may find more uploads.
        var isWalked = true
        /// Whether the table may be incomplete: no queue run has started and ended since recovery last read the spool.
        var isCounting = true

        mutating func add(_ waiting: WaitingUpload) {
            guard known[waiting.id] != nil || known.count < WaitingUploads.maximum else { return }
            known[waiting.id] = (waiting, run)
        }
    }

    /// The maximum size of `known`; other uploads are only counted.
    package static let maximum = 10_000

    private let table = Monitor(Table())
    /// The size of `known`, so that most lookups need no lock.
    private let count = Counter()

    /// Creates an empty table.
    package init() {}

    /// Adds a locked upload to the table if it is waiting; otherwise removes it.
    package func note(_ upload: Upload) {
        let waiting = upload.waiting
        guard let waiting else { return forget(upload.creation.id) }
        change { $0.add(waiting) }
    }

    /// Removes an upload that is no longer waiting.
    package func forget(_ id: UploadID) {
        guard count.count > 0 else { return }
        change { $0.known[id] = nil }
    }

    private func change(_ body: (inout Table) -> Void) {
        table.updateQuietly { table in
            body(&table)
            count.set(table.known.count)
        }
    }

    /// Records that recovery has begun (true) or finished (false) reading the spool.
    ///
    /// A new table assumes that recovery is under way.
    package func noteWalk(isUnderWay: Bool) {
        table.updateQuietly { table in
            table.isWalked = isUnderWay
            if isUnderWay { table.isCounting = true }
        }
    }

    /// Whether the table may still be incomplete because recovery follows the start of this process or the crash of
    /// another process.
    package var isCounting: Bool { table.updateQuietly { $0.isCounting } }

    /// Updates the table from the spool, and calls `body` with each upload that is read.
    ///
    /// Reads every unknown upload, and a known one only if `isNeeded` returns true for the time of its next attempt
    /// (nil if the upload is waiting for an operator).
    ///
    /// - Throws: `.disk` if the spool cannot be read; the table then keeps all uploads.
    package func look(
        at spool: Spool,
        reading isNeeded: (WallTime?) -> Bool = { _ in false },
        _ body: (WaitingUpload) -> Void = { _ in }
    ) throws(SpoolError) {
        let (run, wasWalked) = table.updateQuietly { table in
            table.run += 1
            return (table.run, table.isWalked)
        }
        var others = 0
        var isNew = false
        try spool.forEachWaiting { id, time in
            isNew = table.updateQuietly { table in
                // Code that changes a known upload later records the change.
                if let known = table.known[id], known.upload.nameTime == time {
                    table.known[id]?.run = run
                    return false
                }
                guard table.known[id] == nil, table.known.count >= Self.maximum else { return true }
                others += 1
                return false
            }
            return isNew || isNeeded(time)
        } _: { waiting in
            if isNew { change { $0.add(waiting) } }
            body(waiting)
        }
        let corrupt = try spool.corruptCount()
        change { table in
            table.known = table.known.filter { $0.value.run >= run }
            table.others = others
            table.corrupt = corrupt
            if !wasWalked, !table.isWalked { table.isCounting = false }
        }
    }

    package var all: (known: [WaitingUpload], others: Int) {
        table.updateQuietly { ($0.known.values.map(\.upload), $0.others) }
    }

    /// Counts an upload that was just moved to `corrupt`, and removes it from the table.
    package func noteCorrupt(_ id: UploadID) {
        change { table in
            table.known[id] = nil
            table.corrupt += 1
        }
    }

    /// The number of uploads in `corrupt`: those found by the last queue run, and those noted since.
    package var corrupt: Int { table.updateQuietly { $0.corrupt } }
}
