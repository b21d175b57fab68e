// Lists uploads without locking or changing any.
//
// The summary of an upload in use may be outdated immediately. Invariant: memory use does not grow with the spool.

package import SpoolgatePosix
package import SpoolgateUploadProtocol

extension Spool {
    /// Calls `body` with every upload in the spool, ending with those in `corrupt`, without locking any.
    ///
    /// Each upload is listed at most once; an upload that is created or removed during the listing may be missed.
    package func forEachUpload(
        _ body: (UploadSummary) throws(SpoolError) -> Void
    ) throws(SpoolError) {
        try walk { (found) throws(SpoolError) in
            guard found.hasRecord else { return }
            let seen = try reporting(summary(of: found.id, knowing: nil))
            if let seen { try body(seen) }
        }
        try forEachCorrupt(body)
    }

    /// Calls `body` with every upload in some queues that has been idle since a time, without locking any.
    ///
    /// A record that has changed since that time costs one `fstatat` call and is not read.
    ///
    /// - Parameters:
    ///   - queues: the queues to list.
    ///   - limit: the time since which a listed upload has not changed. Uploads whose time is in the future because the
    ///     clock was wrong are listed too; see `correctTime(of:)`.
    ///   - seesUse: whether to check if other processes are using an upload; if false, `isInUse` is false for every
    ///     upload.
    ///   - step: called once for each upload in the spool, before the upload is checked; an error thrown by `step` ends
    ///     the listing.
    ///   - body: called with each idle upload; an error thrown by `body` ends the listing.
    /// - Throws: `.disk` if the spool could not be read; otherwise the error of `step` or `body`.
    package func forEachIdle(
        in queues: [Queue],
        since limit: WallTime,
        seesUse: Bool,
        step: () throws(SpoolError) -> Void,
        _ body: (UploadSummary) throws(SpoolError) -> Void
    ) throws(SpoolError) {
        let future = clock.future ?? WallTime(seconds: .max)
        func isIdle(_ status: FileStatus) -> Bool {
            status.modified <= limit || status.modified > future
        }
        func take(_ summary: UploadSummary) throws(SpoolError) {
            let isOld = summary.lastActivity <= limit || summary.lastActivity > future
            if isOld, queues.contains(summary.queue) { try body(summary) }
        }
        if queues != [.corrupt] {
            try walk { (found) throws(SpoolError) in
                try step()
                // A delivered upload has no content.
                guard found.hasRecord, !found.hasData || queues != [.delivered] else { return }
                let seen = try onDisk { () throws(SystemError) -> UploadSummary? in
                    let name = FileName(found.id)
                    guard let status = try layout.directory(of: name).status(of: name.record),
                        isIdle(status)
                    else { return nil }
                    return try summary(of: found.id, knowing: nil, seesUse: seesUse)
                }
                if let seen, seen.queue != .corrupt { try take(seen) }
            }
        }
        guard queues.contains(.corrupt) else { return }
        try forEachCorrupt { (summary) throws(SpoolError) in
            try step()
            try take(summary)
        }
    }

    /// Calls `body` with every upload that has a file in `uploads`; throws an error if a directory cannot be read.
    func walk(_ body: (SpoolLayout.Found) throws(SpoolError) -> Void) throws(SpoolError) {
        try layout.walk(unread: { (_, error) throws(SpoolError) in throw failure(error) }, body)
    }

    private func forEachCorrupt(
        _ body: (UploadSummary) throws(SpoolError) -> Void
    ) throws(SpoolError) {
        for id in try reporting(layout.corruptUploads()) {
            let seen = try reporting(summaryOfCorrupt(id))
            if let seen { try body(seen) }
        }
    }

    // MARK: One upload

    /// Returns the summary of an upload, without locking it, or nil if the upload is missing.
    package func look(at id: UploadID) throws(SpoolError) -> UploadSummary? {
        try onDisk { () throws(SystemError) in
            if let found = try summary(of: id, knowing: creations) { return found }
            return try summaryOfCorrupt(id)
        }
    }

    /// Summarizes an upload, without locking it, if its offset may be sent to its client.
    ///
    /// If the upload promises to survive a power failure, its content and its record are durable on return. Returns nil
    /// if the upload is missing or some of its content is not durable yet.
    package func lookAtPromised(_ id: UploadID) throws(SpoolError) -> UploadSummary? {
        try reporting(summary(of: id, knowing: creations, mayReport: true))
    }

    /// Makes a record durable if all content is durable; otherwise returns false.
    private func makeDurable(
        _ record: LoadedRecord,
        offset: Int64,
        in file: OpenFile
    ) throws(SystemError) -> Bool {
        guard record.creation.promise == .powerCut else { return true }
        guard record.state.durable == offset else { return false }
        if !syncedStates.contains(record.creation.id, record.state.sequence) { try disk.sync(file) }
        return true
    }

    /// Summarizes an upload in `uploads`; returns nil if it is missing or its record has not been written yet.
    ///
    /// To list many uploads, pass nil as `cache`, because they would evict the creations that requests need. If
    /// `mayReport` is true, makes the record durable, but returns nil if some content is not durable.
    func summary(
        of id: UploadID,
        knowing cache: CreationCache?,
        seesUse: Bool = true,
        mayReport: Bool = false
    ) throws(SystemError) -> UploadSummary? {
        let name = FileName(id)
        let directory = layout.directory(of: name)
        do throws(SystemError) {
            guard let file = try layout.openRecord(name, forWriting: false) else { return nil }
            // The size is read before the record, which says how many of these bytes count.
            let data = try directory.status(of: name.data)
            guard data?.isRegular ?? true else { return try summaryOfNames(id, in: directory) }
            let status = try file.status()
            let record = try LoadedRecord.read(file, of: id, size: status.size, knowing: cache)
            if case .failure(let fault) = record, fault.kind == .unwritten { return nil }
            let loaded = try? record.get()
            var summary = UploadSummary(id, loaded, status: status, data: data)
            if case .failure(let fault) = record { summary.reason = fault.reason }
            summary.status = try loaded?.state.storedStatus(in: file)
            if seesUse {
                summary.isInUse = try file.descriptor.isLockedElsewhere(subject: file.subject)
            }
            if mayReport {
                guard let loaded, try makeDurable(loaded, offset: summary.offset, in: file) else {
                    return nil
                }
            }
            return summary
        } catch {
            guard error.isNotRegular else { throw error }
            return try summaryOfNames(id, in: directory)
        }
    }

    /// Returns the summary of an upload, or of content without a record, in `corrupt`.
    private func summaryOfCorrupt(_ id: UploadID) throws(SystemError) -> UploadSummary? {
        if let summary = try summaryOfNames(id, in: layout.corrupt) { return summary }
        guard let data = try layout.corrupt.status(of: FileName(id).data) else { return nil }
        var summary = UploadSummary(id, nil, status: data, data: data)
        summary.reason = UploadSummary.noRecord
        (summary.diskUsage, summary.lacksRecord) = (data.diskUsage, true)
        return summary
    }

    /// Returns the summary of an upload from its files' status, without reading its record.
    private func summaryOfNames(
        _ id: UploadID,
        in directory: Directory
    ) throws(SystemError) -> UploadSummary? {
        let name = FileName(id)
        guard let status = try directory.status(of: name.record) else { return nil }
        let data = try layout.directory(of: name).status(of: name.data)
        return UploadSummary(id, nil, status: status, data: data)
    }
}

extension UploadSummary {
    /// The reason of content in `corrupt` whose record is missing.
    static let noRecord = "its record is missing"

    init(_ id: UploadID, _ record: LoadedRecord?, status: FileStatus, data: FileStatus?) {
        let state = record?.state ?? RecordState()
        let lastActivity = max(status.modified, data?.modified ?? status.modified)
        self.init(id: id, queue: record?.state.queue ?? .corrupt, lastActivity: lastActivity)
        creation = record?.creation
        sequence = state.sequence
        // Content that has not been verified yet does not count.
        offset = min(data?.size ?? state.sizeWithoutFile, state.verified ?? .max)
        length = state.length
        diskUsage = status.diskUsage + (data?.diskUsage ?? 0)
        attempts = state.attempts
        reason = state.reason
        nextAttempt = state.next
        completeSince = state.whole
        holdCause = state.cause
        node = Writer.node(of: state.writer)
    }
}
