// The complete uploads that wait, as far as this process knows. It records its own changes; each queue run adds those
// of other processes.
//
// Invariant: the memory used does not depend on the size of the spool.

package import SpoolgatePosix
package import SpoolgateSpool
package import SpoolgateUploadProtocol

/// The uploads in `deferred` and `hold`.
///
/// Thread-safe.
package final class WaitingUploads: Sendable {
    private struct Table {
        /// The known uploads, each with the queue run that last found it.
        var known: [UploadID: (upload: WaitingUpload, run: Int)] = [:]
        /// The number of uploads that do not fit into `known`.
        var others = 0
        var run = 0
        var corrupt = 0
        /// Whether recovery is walking through the spool and may find more uploads.
        var isWalked = true
        /// Whether the table may be incomplete, because no queue run has started since the last walk ended.
        var isCounting = true

        mutating func add(_ waiting: WaitingUpload) {
            guard known[waiting.id] != nil || known.count < WaitingUploads.most else { return }
            known[waiting.id] = (waiting, run)
        }
    }

    /// The maximum number of uploads in `known`; others are only counted.
    package static let most = 10_000

    private let table = Monitor(Table())
    /// The number of uploads in `known`, so that most lookups need no lock.
    private let count = Counter()

    /// Creates an empty table.
    package init() {}

    /// Records the state of a locked upload.
    package func note(_ upload: Upload) {
        let waiting = upload.waiting
        guard let waiting else { return forget(upload.creation.id) }
        change { $0.add(waiting) }
    }

    /// Records that an upload no longer waits.
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

    /// Records that a walk through the spool begins or has ended; the table starts with a walk under way.
    package func noteWalk(isUnderWay: Bool) {
        table.updateQuietly { table in
            table.isWalked = isUnderWay
            if isUnderWay { table.isCounting = true }
        }
    }

    /// Whether the table may be incomplete, because the process has just started or another daemon crashed.
    package var isCounting: Bool { table.updateQuietly { $0.isCounting } }

    /// Finds the waiting uploads of a spool; reads only unknown ones and those the caller needs.
    ///
    /// - Parameters:
    ///   - spool: the spool.
    ///   - isNeeded: returns whether to read a known upload, given the time in its name; nil: it waits for an operator.
    ///   - body: called with each upload that was read.
    /// - Throws: `.disk` if the spool cannot be read; no upload is then removed from the table.
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
                // The code that makes later changes to it will record them.
                if let known = table.known[id], known.upload.nameTime == time {
                    table.known[id]?.run = run
                    return false
                }
                guard table.known[id] == nil, table.known.count >= Self.most else { return true }
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

    /// The number of records in `corrupt` at the last queue run.
    package var corrupt: Int { table.updateQuietly { $0.corrupt } }
}
