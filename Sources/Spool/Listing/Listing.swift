// Looking at every upload.
//
// Looking holds nothing and changes nothing, so it can run beside a busy daemon; what it sees of an
// upload in use may be old the next moment. Invariant: what is in memory does not grow with the spool.

package import Posix
import UploadProtocol

extension Spool {
    /// The queues in the order in which an upload moves; the last two are where it can come back to.
    private static let order: [Queue] = [
        .incoming, .active, .deferred, .hold, .delivered, .corrupt, .active, .deferred,
    ]

    /// Calls `body` with every upload in the spool, by the first characters of their identities,
    /// without holding any.
    ///
    /// Each is seen once, also if it moves meanwhile; one that is created or removed meanwhile may be
    /// seen or not. However many there are, only the names of one subdirectory are in memory.
    package func forEachUpload(
        _ body: (UploadSummary) throws(SpoolError) -> Void
    ) throws(SpoolError) {
        for number in SpoolLayout.shards.indices {
            var seen: Set<UploadID> = []
            for queue in Self.order {
                for id in try identities(in: queue, number) where !seen.contains(id) {
                    let found = try onDisk { () throws(SystemError) in
                        try summary(of: id, in: queue, knowing: nil)
                    }
                    guard let found else { continue }
                    seen.insert(id)
                    try body(found)
                }
            }
        }
    }

    /// Calls `body` with every upload in some queues that nothing happened to for a while, without
    /// holding any.
    ///
    /// What is younger costs one or two looks at the time of a file, and its record is not read.
    /// What is idle is opened once, and its data file only for `seesUse`.
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
        for number in SpoolLayout.shards.indices {
            for queue in queues {
                for id in try identities(in: queue, number) {
                    try step()
                    let found = try onDisk { () throws(SystemError) in
                        try idleSummary(
                            of: id,
                            in: queue,
                            since: limit,
                            or: future,
                            seesUse: seesUse
                        )
                    }
                    if let found { try body(found) }
                }
            }
        }
    }

    private func identities(in queue: Queue, _ number: Int) throws(SpoolError) -> [UploadID] {
        try onDisk { () throws(SystemError) in
            try SpoolLayout.identities(in: layout[queue].all[number])
        }
    }

    /// What can be seen of an upload that is idle; nil if it is not.
    private func idleSummary(
        of id: UploadID,
        in queue: Queue,
        since limit: WallTime,
        or future: WallTime,
        seesUse: Bool
    ) throws(SystemError) -> UploadSummary? {
        let name = FileName(id)
        func isIdle(_ status: FileStatus) -> Bool {
            status.modified <= limit || status.modified > future
        }
        guard let status = try layout[queue][name].status(of: name.name), isIdle(status) else {
            return nil
        }
        let dataStatus = try layout.data[name].status(of: name.name)
        if let dataStatus, status.modified <= future, !isIdle(dataStatus) { return nil }
        guard !seesUse else { return try summary(of: id, in: queue, knowing: nil) }
        guard status.isRegular, dataStatus?.isRegular ?? true else {
            return try summaryOfNames(id, name, in: queue)
        }
        guard let file = try OpenFile.open(name.name, in: layout[queue][name], forWriting: false)
        else { return nil }
        return try summary(of: id, in: queue, file, data: dataStatus, knowing: nil, isInUse: false)
    }

    /// What can be seen of an upload; nil if it is not in that queue any more.
    ///
    /// `cache`: nil where many are looked at, which would take the places of those that requests ask for.
    func summary(
        of id: UploadID,
        in queue: Queue,
        knowing cache: CreationCache?
    ) throws(SystemError) -> UploadSummary? {
        let name = FileName(id)
        do throws(SystemError) {
            guard
                let file = try OpenFile.open(name.name, in: layout[queue][name], forWriting: false)
            else { return nil }
            let data = try OpenFile.open(name.name, in: layout.data[name], forWriting: false)
            let locked = data ?? file
            return try summary(
                of: id,
                in: queue,
                file,
                data: try data?.status(),
                knowing: cache,
                isInUse: try locked.descriptor.isLockedElsewhere(subject: locked.subject)
            )
        } catch {
            guard error.isNotRegular else { throw error }
            return try summaryOfNames(id, name, in: queue)
        }
    }

    private func summary(
        of id: UploadID,
        in queue: Queue,
        _ file: OpenFile,
        data dataStatus: FileStatus?,
        knowing cache: CreationCache?,
        isInUse: Bool
    ) throws(SystemError) -> UploadSummary {
        let status = try file.status()
        var record: LoadedRecord?
        if queue != .corrupt {
            let read = try LoadedRecord.read(file, of: id, size: status.size, knowing: cache)
            // A record that is being written is shown without its creation.
            if case .success(let whole) = read { record = whole }
        }
        return UploadSummary(
            id: id,
            queue: queue,
            creation: record?.creation,
            offset: Self.offset(dataStatus, record?.state),
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

    /// Bytes received, of which those that failed their check do not count.
    private static func offset(_ data: FileStatus?, _ state: RecordState?) -> Int64 {
        min(data?.size ?? state?.length ?? 0, state?.verified ?? .max)
    }

    /// The status of a record, if an upload whose files are open and locked is as it was seen; nil if
    /// anything has changed since.
    ///
    /// The creation is not read again: it never changes.
    func statusIfUnchanged(
        _ files: UploadFiles,
        since earlier: UploadSummary
    ) throws(SystemError) -> (record: FileStatus, data: FileStatus?)? {
        let status = try files.file.status()
        let dataStatus = try files.data?.status()
        var state: RecordState?
        if earlier.creation != nil {
            let slots = try files.file.bytes(at: 0, count: 2 * RecordState.slotSize)
            guard let newest = RecordState.newest(in: slots) else { return nil }
            state = newest
        }
        let lastActivity = max(status.modified, dataStatus?.modified ?? status.modified)
        let isUnchanged =
            (files.queue, Self.offset(dataStatus, state), lastActivity)
            == (earlier.queue, earlier.offset, earlier.lastActivity)
            && (state?.attempts ?? 0, state?.length) == (earlier.attempts, earlier.length)
        return isUnchanged ? (status, dataStatus) : nil
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
}
