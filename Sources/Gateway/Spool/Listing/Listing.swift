// Looking at every upload.
//
// Looking locks nothing and changes nothing, so it can run beside a busy daemon; what it sees of an
// upload in use may be old the next moment. Invariant: what is in memory does not grow with the spool.

package import SpoolgatePosix
package import SpoolgateUploadProtocol

extension Spool {
    /// Calls `body` with every upload in the spool, those in `corrupt` last, without locking any.
    ///
    /// Each is seen once; one that is created or removed meanwhile may be seen or not. However many there
    /// are, only the names of one directory are in memory.
    package func forEachUpload(
        _ body: (UploadSummary) throws(SpoolError) -> Void
    ) throws(SpoolError) {
        try walk { (found) throws(SpoolError) in
            guard found.hasRecord else { return }
            let seen = try onDisk { () throws(SystemError) in
                try summary(of: found.id, knowing: nil)
            }
            if let seen { try body(seen) }
        }
        try forEachCorrupt(body)
    }

    /// Calls `body` with every upload in some queues that nothing happened to for a while, without
    /// locking any.
    ///
    /// What is younger costs one or two looks at the time of a file, and its record is not read.
    ///
    /// - Parameters:
    ///   - queues: where to look.
    ///   - limit: the uploads that have not changed since; and those of which the last change lies in
    ///     a future that the clock has left, see `mendTime(of:)`.
    ///   - seesUse: whether to look who uses it; without, `isInUse` says that nobody does. Who removes
    ///     or changes an upload takes its lock, and need not have looked.
    ///   - step: called with each upload looked at, before `body`; what it throws ends the look.
    ///   - body: called with each that is idle; what it throws ends the look too.
    /// - Throws: `.disk` where the spool could not be looked at.
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
                // What is delivered has no content.
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

    /// The walk of the layout, which ends where a directory cannot be read.
    func walk(_ body: (SpoolLayout.Found) throws(SpoolError) -> Void) throws(SpoolError) {
        try layout.walk(unread: { (_, error) throws(SpoolError) in throw failure(error) }, body)
    }

    private func forEachCorrupt(
        _ body: (UploadSummary) throws(SpoolError) -> Void
    ) throws(SpoolError) {
        let names = try onDisk { () throws(SystemError) in try layout.corrupt.names() }
        for name in names.sorted() {
            guard let id = UploadID(name) else { continue }
            let seen = try onDisk { () throws(SystemError) in
                try summaryOfNames(id, in: layout.corrupt)
            }
            if let seen { try body(seen) }
        }
    }

    // MARK: One upload

    /// What can be seen of one upload, without locking it; nil where there is none.
    package func look(at id: UploadID) throws(SpoolError) -> UploadSummary? {
        try onDisk { () throws(SystemError) in
            if let found = try summary(of: id, knowing: creations) { return found }
            return try summaryOfNames(id, in: layout.corrupt)
        }
    }

    /// What can be seen of one upload whose offset may be told to its client, without locking it.
    ///
    /// Where its creation promises so, all its content and the record that says so are durable on return: a state that
    /// another request is about to make durable can be read before it is.
    ///
    /// - Returns: nil if there is no upload, or not all of its content is durable yet.
    package func lookAtPromised(_ id: UploadID) throws(SpoolError) -> UploadSummary? {
        try onDisk { () throws(SystemError) in
            try summary(of: id, knowing: creations, mayTell: true)
        }
    }

    /// Makes durable what a record says, if all of the upload's content is durable; false if it is not.
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

    /// What can be seen of an upload in `uploads`; nil where there is none, or none yet.
    ///
    /// `cache`: nil where many are looked at, which would take the places of those that requests ask
    /// for. `seesUse`: whether to look if it is in use. `mayTell`: whether its offset is to be durable; nil if it
    /// cannot be made so.
    func summary(
        of id: UploadID,
        knowing cache: CreationCache?,
        seesUse: Bool = true,
        mayTell: Bool = false
    ) throws(SystemError) -> UploadSummary? {
        let name = FileName(id)
        let directory = layout.directory(of: name)
        do throws(SystemError) {
            guard let file = try layout.openRecord(name, forWriting: false) else { return nil }
            // Before the record says how much of it counts.
            let data = try directory.status(of: name.data)
            guard data?.isRegular ?? true else { return try summaryOfNames(id, in: directory) }
            let status = try file.status()
            let record = try LoadedRecord.read(file, of: id, size: status.size, knowing: cache)
            if case .failure(let fault) = record, fault.kind == .unwritten { return nil }
            let loaded = try? record.get()
            var reason: String?
            if case .failure(let fault) = record { reason = fault.reason }
            let summary = UploadSummary(
                id: id,
                loaded,
                status: status,
                data: data,
                response: try loaded?.state.storedStatus(in: file),
                fault: reason,
                isInUse: seesUse
                    ? try file.descriptor.isLockedElsewhere(subject: file.subject) : false
            )
            if mayTell {
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

    /// What can be seen of an upload whose record is not read.
    private func summaryOfNames(
        _ id: UploadID,
        in directory: Directory
    ) throws(SystemError) -> UploadSummary? {
        let name = FileName(id)
        guard let status = try directory.status(of: name.record) else { return nil }
        let data = try layout.directory(of: name).status(of: name.data)
        return UploadSummary(id: id, nil, status: status, data: data)
    }
}

extension UploadSummary {
    /// Puts together what was seen.
    init(
        id: UploadID,
        _ record: LoadedRecord?,
        status: FileStatus,
        data: FileStatus?,
        response: Int? = nil,
        fault: String? = nil,
        isInUse: Bool = false
    ) {
        let state = record?.state ?? RecordState()
        self.init(
            id: id,
            queue: record?.state.queue ?? .corrupt,
            creation: record?.creation,
            sequence: state.sequence,
            offset: Self.offset(data, state),
            length: state.length,
            lastActivity: max(status.modified, data?.modified ?? status.modified),
            diskUsage: status.diskUsage + (data?.diskUsage ?? 0),
            attempts: state.attempts,
            reason: state.reason ?? fault,
            nextAttempt: state.next,
            wholeSince: state.whole,
            holdCause: state.cause,
            status: response,
            isInUse: isInUse,
            node: Writer.node(of: state.writer)
        )
    }

    /// Bytes received, of which those that failed their check do not count.
    private static func offset(_ data: FileStatus?, _ state: RecordState) -> Int64 {
        min(data?.size ?? state.sizeWithoutFile, state.verified ?? .max)
    }
}
