// The whole uploads that wait, as this process knows them: told by what it does itself, and put right by each
// run of the queue, which sees what other processes did.
//
// Invariant: what is in memory does not grow with the spool.

package import SpoolgatePosix
package import SpoolgateSpool
package import SpoolgateUploadProtocol

/// The uploads in `deferred` and `hold`.
///
/// Any thread.
package final class WaitingUploads: Sendable {
    private struct Table {
        /// Each with the run of the queue in which it was seen last.
        var known: [UploadID: (upload: WaitingUpload, run: Int)] = [:]
        /// Those for which there is no place in `known`.
        var others = 0
        /// Counts runs.
        var run = 0
        var corrupt = 0
        /// Whether somebody goes through the spool, and may bring more to light.
        var isWalked = true
        /// Whether there may be more than is known: no run has begun since that was over.
        var isCounting = true

        mutating func add(_ waiting: WaitingUpload) {
            guard known[waiting.id] != nil || known.count < WaitingUploads.most else { return }
            known[waiting.id] = (waiting, run)
        }
    }

    /// Most uploads of which more is kept than their number.
    package static let most = 10_000

    private let table = Monitor(Table())
    /// How many are in `known`, for those who ask of one that is most likely not there.
    private let count = Counter()

    /// Begins with none.
    package init() {}

    /// Notes what an upload is that a request or the queue holds.
    package func note(_ upload: Upload) {
        let waiting = upload.waiting
        guard let waiting else { return forget(upload.creation.id) }
        change { $0.add(waiting) }
    }

    /// Notes that an upload waits no more.
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

    /// Notes that somebody begins to go through the spool, whose content is not all known then, or has done
    /// so; the first time begins with the process.
    package func noteWalk(isUnderWay: Bool) {
        table.updateQuietly { table in
            table.isWalked = isUnderWay
            if isUnderWay { table.isCounting = true }
        }
    }

    /// Whether there may be more than is known, because the process began a moment ago, or a daemon died.
    package var isCounting: Bool { table.updateQuietly { $0.isCounting } }

    /// Goes through what waits in a spool, reading only what is not known or what the caller needs.
    ///
    /// - Parameters:
    ///   - spool: the spool.
    ///   - isNeeded: called with the time in the name of each upload, nil if it waits for an operator; whether to read
    ///     it even if it is known.
    ///   - body: called with each upload that was read.
    /// - Throws: `.disk` where that cannot be seen; then what was known stays.
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
                // What is done to it from here on is told by whoever does it.
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

    /// All of which more is known than their number, and how many others there are.
    package var all: (known: [WaitingUpload], others: Int) {
        table.updateQuietly { ($0.known.values.map(\.upload), $0.others) }
    }

    /// How many records lie in `corrupt`, at the last run of the queue.
    package var corrupt: Int { table.updateQuietly { $0.corrupt } }
}
