// Looking at every upload, and removing one that was looked at.
//
// Looking holds nothing and changes nothing, so it can run beside a busy daemon; what it sees of an
// upload in use may be old the next moment. Invariant: an upload is removed only under its lock and
// only as it was seen.

import Posix
package import UploadProtocol

extension Spool {
    /// The queues in the order in which an upload moves; the last two are where it can come back to.
    private static let order: [Queue] = [
        .incoming, .active, .deferred, .hold, .delivered, .corrupt, .active, .deferred,
    ]

    /// Calls `body` with every upload in the spool, in no order, without holding any.
    ///
    /// Each is seen once, also if it moves meanwhile; one that is created or removed meanwhile may be
    /// seen or not.
    package func forEachUpload(_ body: (UploadSummary) -> Void) throws(SpoolError) {
        var seen: Set<UploadID> = []
        for queue in Self.order {
            for shard in SpoolLayout.shards {
                let ids = try onDisk { () throws(SystemError) in
                    try SpoolLayout.identities(in: shard, of: layout[queue])
                }
                for id in ids where !seen.contains(id) {
                    let found = try onDisk { () throws(SystemError) in
                        try summary(of: id, in: queue)
                    }
                    guard let found else { continue }
                    seen.insert(id)
                    body(found)
                }
            }
        }
    }

    /// Removes one upload unless it is in use.
    ///
    /// - Parameters:
    ///   - id: the upload.
    ///   - summary: what was seen of it; if anything has changed since, it stays.
    /// - Returns: whether it was removed; false if it is in use, changed or gone.
    /// - Throws: `.disk` where it could not be looked at or removed.
    package func remove(
        _ id: UploadID,
        ifUnchangedSince summary: UploadSummary
    ) throws(SpoolError) -> Bool {
        guard let ticket = holders.takeIfFree(id) else { return false }
        defer { holders.letGo(id, ticket) }
        let opened = try onDisk { () throws(SystemError) in
            try openUnused(id, in: summary.queue)
        }
        guard let files = opened else { return false }
        let present = try onDisk { () throws(SystemError) in
            try self.summary(of: id, in: summary.queue, isInUse: false)
        }
        guard let present, present.isUnchanged(since: summary) else { return false }
        try removeFiles(of: files)
        return true
    }

    /// What can be seen of an upload; nil if it is not in that queue any more.
    private func summary(
        of id: UploadID,
        in queue: Queue,
        isInUse known: Bool? = nil
    ) throws(SystemError) -> UploadSummary? {
        let path = FileName(id).path
        guard let file = try OpenFile.open(path, in: layout[queue], forWriting: false) else {
            return nil
        }
        let data = try OpenFile.open(path, in: layout.data, forWriting: false)
        let (status, dataStatus) = (try file.status(), try data?.status())
        var record: LoadedRecord?
        if queue != .corrupt {
            let read = try LoadedRecord.read(
                file,
                of: id,
                size: status.size,
                knowing: creations
            )
            // A record that is being written is shown without its creation.
            if case .success(let whole) = read { record = whole }
        }
        var isInUse = known ?? false
        if known == nil {
            let locked = data ?? file
            isInUse = try locked.descriptor.isLockedElsewhere(subject: locked.subject)
        }
        return UploadSummary(
            id: id,
            queue: queue,
            creation: record?.creation,
            offset: dataStatus?.size ?? record?.state.length ?? 0,
            length: record?.state.length,
            lastActivity: max(status.modified, dataStatus?.modified ?? status.modified),
            diskUsage: status.diskUsage + (dataStatus?.diskUsage ?? 0),
            attempts: record?.state.attempts ?? 0,
            reason: record?.state.reason,
            isInUse: isInUse
        )
    }
}

extension UploadSummary {
    fileprivate func isUnchanged(since earlier: UploadSummary) -> Bool {
        (queue, offset, lastActivity, attempts, length)
            == (
                earlier.queue, earlier.offset, earlier.lastActivity, earlier.attempts,
                earlier.length
            )
    }
}
