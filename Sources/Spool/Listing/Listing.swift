// Looking at every upload.
//
// Looking locks nothing and changes nothing, so it can run beside a busy daemon; what it sees of an
// upload in use may be old the next moment. Invariant: what is in memory does not grow with the spool.

package import Posix
package import UploadProtocol

extension Spool {
    /// The queues in the order in which an upload moves; the last two are where it can come back to.
    private static let order: [Queue] = [
        .incoming, .active, .deferred, .hold, .delivered, .corrupt, .active, .deferred,
    ]

    /// Calls `body` with every upload in the spool, by the first characters of their identities,
    /// without locking any.
    ///
    /// Each is seen once, also if it moves meanwhile; one that is created or removed meanwhile may be
    /// seen or not. However many there are, only the names of one subdirectory are in memory.
    package func forEachUpload(
        _ body: (UploadSummary) throws(SpoolError) -> Void
    ) throws(SpoolError) {
        var (seen, shard): (Set<UploadID>, Int?) = ([], nil)
        try walk(Self.order.map { layout[$0] }) { (id, place) throws(SpoolError) in
            let number = FileName(id).number
            if number != shard { (seen, shard) = ([], number) }
            guard !seen.contains(id) else { return }
            let found = try onDisk { () throws(SystemError) in
                try summary(of: id, in: Self.order[place], knowing: nil)
            }
            guard let found else { return }
            seen.insert(id)
            try body(found)
        }
    }

    /// Calls `body` with every upload in some queues that nothing happened to for a while, without
    /// locking any.
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
        try walk(queues.map { layout[$0] }) { (id, place) throws(SpoolError) in
            try step()
            let found = try onDisk { () throws(SystemError) -> UploadSummary? in
                guard try isIdle(id, in: queues[place], since: limit, or: future) else {
                    return nil
                }
                return try summary(of: id, in: queues[place], knowing: nil, seesUse: seesUse)
            }
            if let found { try body(found) }
        }
    }

    /// Whether nothing happened to an upload since `limit`, or its last change lies beyond `future`.
    private func isIdle(
        _ id: UploadID,
        in queue: Queue,
        since limit: WallTime,
        or future: WallTime
    ) throws(SystemError) -> Bool {
        let name = FileName(id)
        func isIdle(_ status: FileStatus) -> Bool {
            status.modified <= limit || status.modified > future
        }
        guard let status = try layout[queue].status(of: name), isIdle(status) else { return false }
        if status.modified > future { return true }
        return try layout.data.status(of: name).map(isIdle) ?? true
    }

    /// The walk of the layout, which ends where a subdirectory cannot be read.
    func walk(
        _ places: [Shards],
        _ body: (UploadID, _ place: Int) throws(SpoolError) -> Void
    ) throws(SpoolError) {
        try layout.walk(
            places,
            unread: { (_, error) throws(SpoolError) in throw failure(error) },
            body
        )
    }

    // MARK: One upload

    /// What can be seen of one upload, without locking it; nil where there is none.
    package func look(at id: UploadID) throws(SpoolError) -> UploadSummary? {
        // Again, because it may move from a queue to one that was looked at before.
        for queue in SpoolLayout.usable + SpoolLayout.usable + [.corrupt] {
            let found = try onDisk { () throws(SystemError) in
                try summary(of: id, in: queue, knowing: creations)
            }
            if let found { return found }
        }
        return nil
    }

    /// What can be seen of an upload; nil if it is not in that queue any more.
    ///
    /// `cache`: nil where many are looked at, which would take the places of those that requests ask
    /// for. `seesUse`: whether to look if it is in use.
    private func summary(
        of id: UploadID,
        in queue: Queue,
        knowing cache: CreationCache?,
        seesUse: Bool = true
    ) throws(SystemError) -> UploadSummary? {
        let name = FileName(id)
        do throws(SystemError) {
            guard let file = try layout[queue].open(name, forWriting: false) else { return nil }
            let locked = seesUse ? try layout.data.open(name, forWriting: false) ?? file : nil
            // Before the record says how much of it counts.
            let data = try layout.data.status(of: name)
            guard data?.isRegular ?? true else { return try summaryOfNames(id, in: queue) }
            let status = try file.status()
            var record: LoadedRecord?
            // A record that is being written is shown without its creation.
            if queue != .corrupt,
                case .success(let whole) = try LoadedRecord.read(file, of: id, knowing: cache)
            {
                record = whole
            }
            return UploadSummary(
                id: id,
                in: queue,
                record,
                status: status,
                data: data,
                response: try record?.state.storedStatus(in: file),
                isInUse: try locked.map { (file) throws(SystemError) in
                    try file.descriptor.isLockedElsewhere(subject: file.subject)
                } ?? false
            )
        } catch {
            guard error.isNotRegular else { throw error }
            return try summaryOfNames(id, in: queue)
        }
    }

    /// What can be seen of an upload whose record or data file is something else than a file.
    private func summaryOfNames(
        _ id: UploadID,
        in queue: Queue
    ) throws(SystemError) -> UploadSummary? {
        let name = FileName(id)
        guard let status = try layout[queue].status(of: name) else { return nil }
        let data = try layout.data.status(of: name)
        return UploadSummary(id: id, in: queue, nil, status: status, data: data)
    }
}

extension UploadSummary {
    /// Puts together what was seen.
    fileprivate init(
        id: UploadID,
        in queue: Queue,
        _ record: LoadedRecord?,
        status: FileStatus,
        data: FileStatus?,
        response: Int? = nil,
        isInUse: Bool = false
    ) {
        let state = record?.state ?? RecordState()
        self.init(
            id: id,
            queue: queue,
            creation: record?.creation,
            offset: Self.offset(data, state),
            length: state.length,
            lastActivity: max(status.modified, data?.modified ?? status.modified),
            diskUsage: status.diskUsage + (data?.diskUsage ?? 0),
            attempts: state.attempts,
            reason: state.reason,
            nextAttempt: queue == .hold ? nil : state.next,
            wholeSince: state.whole,
            holdCause: queue == .hold ? state.cause : nil,
            status: response,
            isInUse: isInUse
        )
    }

    /// Bytes received, of which those that failed their check do not count.
    static func offset(_ data: FileStatus?, _ state: RecordState?) -> Int64 {
        min(data?.size ?? state?.length ?? 0, state?.verified ?? .max)
    }
}
