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
            try forEachUpload(in: queue, skipping: { seen.contains($0) }) { summary in
                seen.insert(summary.id)
                body(summary)
            }
        }
    }

    /// Calls `body` with every upload in one queue, as `forEachUpload` does; those that `isKnown` says yes
    /// to are not looked at.
    package func forEachUpload(
        in queue: Queue,
        skipping isKnown: (UploadID) -> Bool = { _ in false },
        _ body: (UploadSummary) -> Void
    ) throws(SpoolError) {
        for shard in layout[queue].all {
            let ids = try onDisk { () throws(SystemError) in
                try SpoolLayout.identities(in: shard)
            }
            for id in ids where !isKnown(id) {
                let found = try onDisk { () throws(SystemError) in
                    try summary(of: id, in: queue)
                }
                if let found { body(found) }
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
        let files: UploadFiles
        do throws(SystemError) {
            guard let opened = try openUnused(id, in: summary.queue) else { return false }
            files = opened
        } catch {
            guard error.isNotRegular else { throw failure(error) }
            return try removeNames(id, in: summary.queue)
        }
        let present = try onDisk { () throws(SystemError) in
            try self.summary(of: id, in: summary.queue, isInUse: false)
        }
        guard let present, present.isUnchanged(since: summary) else { return false }
        try removeFiles(of: files, durably: true)
        return true
    }

    /// What can be seen of an upload; nil if it is not in that queue any more.
    func summary(
        of id: UploadID,
        in queue: Queue,
        isInUse known: Bool? = nil
    ) throws(SystemError) -> UploadSummary? {
        let name = FileName(id)
        do throws(SystemError) {
            return try summary(of: id, name, in: queue, isInUse: known)
        } catch {
            guard error.isNotRegular else { throw error }
            return try summaryOfNames(id, name, in: queue)
        }
    }

    private func summary(
        of id: UploadID,
        _ name: FileName,
        in queue: Queue,
        isInUse known: Bool?
    ) throws(SystemError) -> UploadSummary? {
        guard let file = try OpenFile.open(name.name, in: layout[queue][name], forWriting: false)
        else {
            return nil
        }
        let data = try OpenFile.open(name.name, in: layout.data[name], forWriting: false)
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
            offset: min(
                dataStatus?.size ?? record?.state.length ?? 0,
                record?.state.verified ?? .max
            ),
            length: record?.state.length,
            lastActivity: max(status.modified, dataStatus?.modified ?? status.modified),
            diskUsage: status.diskUsage + (dataStatus?.diskUsage ?? 0),
            attempts: record?.state.attempts ?? 0,
            reason: record?.state.reason,
            nextAttempt: queue == .hold ? nil : record?.state.next,
            wholeSince: record?.state.whole,
            holdCause: queue == .hold ? record?.state.cause : nil,
            status: queue == .corrupt ? nil : try record?.status(in: file),
            isInUse: isInUse
        )
    }

    // MARK: What is no file

    /// What can be seen of an upload whose record or data file is something else than a file.
    private func summaryOfNames(
        _ id: UploadID,
        _ name: FileName,
        in queue: Queue
    ) throws(SystemError) -> UploadSummary? {
        guard let status = try layout[queue][name].status(of: name.name) else { return nil }
        let data = try layout.data[name].status(of: name.name)
        return UploadSummary(
            id: id,
            queue: queue,
            creation: nil,
            offset: data?.size ?? 0,
            length: nil,
            lastActivity: max(status.modified, data?.modified ?? status.modified),
            diskUsage: status.diskUsage + (data?.diskUsage ?? 0),
            attempts: 0,
            reason: nil,
            isInUse: false
        )
    }

    /// Removes the names of an upload that was set aside, whatever they stand for but a directory.
    private func removeNames(_ id: UploadID, in queue: Queue) throws(SpoolError) -> Bool {
        guard queue == .corrupt else { return false }
        let name = FileName(id)
        return try onDisk { () throws(SystemError) in
            for directory in [layout[queue][name], layout.data[name]]
            where try directory.status(of: name.name)?.isDirectory == true { return false }
            try disk.unlink(name.name, in: layout[queue][name])
            try disk.unlink(name.name, in: layout.data[name])
            return true
        }
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
