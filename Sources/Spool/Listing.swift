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
        let cache = CreationCache()
        for number in SpoolLayout.shards.indices {
            var seen: Set<UploadID> = []
            for queue in Self.order {
                for id in try identities(in: queue, number) where !seen.contains(id) {
                    let found = try onDisk { () throws(SystemError) in
                        try summary(of: id, in: queue, cache)
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
    ///
    /// - Parameters:
    ///   - queues: where to look.
    ///   - limit: the uploads that have not changed since; and those of which the last change lies in
    ///     a future that the clock has left, see `mendTime(of:)`.
    ///   - step: called with each upload looked at, before `body`; what it throws ends the look.
    ///   - body: called with each that is idle; what it throws ends the look too.
    /// - Throws: `.disk` where the spool could not be looked at.
    package func forEachIdle(
        in queues: [Queue],
        since limit: WallTime,
        step: () throws(SpoolError) -> Void,
        _ body: (UploadSummary) throws(SpoolError) -> Void
    ) throws(SpoolError) {
        // What requests ask for must keep its place.
        let cache = CreationCache()
        let future = clock.future ?? WallTime(seconds: .max)
        for number in SpoolLayout.shards.indices {
            for queue in queues {
                for id in try identities(in: queue, number) {
                    try step()
                    let found = try onDisk { () throws(SystemError) in
                        try isIdle(id, in: queue, since: limit, or: future)
                            ? try summary(of: id, in: queue, cache) : nil
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

    private func isIdle(
        _ id: UploadID,
        in queue: Queue,
        since limit: WallTime,
        or future: WallTime
    ) throws(SystemError) -> Bool {
        let name = FileName(id)
        var isYoung = false
        for directory in [layout[queue][name], layout.data[name]] where !isYoung {
            guard let modified = try directory.status(of: name.name)?.modified else { continue }
            if modified > future { return true }
            isYoung = modified > limit
        }
        return !isYoung
    }

    /// What can be seen of an upload; nil if it is not in that queue any more.
    func summary(
        of id: UploadID,
        in queue: Queue,
        _ cache: CreationCache? = nil,
        isInUse known: Bool? = nil
    ) throws(SystemError) -> UploadSummary? {
        let name = FileName(id)
        do throws(SystemError) {
            return try summary(of: id, name, in: queue, cache ?? creations, isInUse: known)
        } catch {
            guard error.isNotRegular else { throw error }
            return try summaryOfNames(id, name, in: queue)
        }
    }

    private func summary(
        of id: UploadID,
        _ name: FileName,
        in queue: Queue,
        _ cache: CreationCache,
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
                knowing: cache
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
}
