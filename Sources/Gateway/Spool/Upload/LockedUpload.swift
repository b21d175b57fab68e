// Exclusive use of one upload, from lock to unlock.
//
// Every change of an upload goes through here, in the order that spoolgate-spool(5) proves safe.
// Invariant: `state.offset` bytes of the content are there, in a file or in memory, and nothing is promised
// before it is durable.

package import SpoolgatePosix
package import SpoolgateUploadProtocol

/// One upload, locked.
///
/// Used by one thread; unlocked by `unlock()` or at the latest by deinit.
package final class Upload {
    /// What it was created with.
    package let creation: UploadCreation

    let spool: Spool
    /// nil: it has no record, and nobody else can find it.
    let lock: UploadLock?
    let files: UploadFiles
    let record: RecordFile
    /// Its content, which somebody else may add to while it is lent.
    package let content: ContentFile
    /// The stored final response, once it was written or read.
    var knownResponse: StoredResponse?
    var isUnlocked = false
    /// Whether a sync of the content failed and what is not durable was not cut off.
    private(set) var isContentInDoubt = false
    /// The offset that is made durable while content comes; nil: none is.
    var offsetSync: OffsetSync?

    /// Its state as the protocol sees it.
    package var state: UploadState {
        UploadState(
            offset: content.size,
            length: record.state.length,
            phase: queue.phase(record.state.cause),
            kind: creation.kind
        )
    }
    /// Bytes of its content, as `state` says.
    package var offset: Int64 { content.size }
    /// When content or state last changed.
    package var lastActivity: WallTime { record.lastActivity }

    /// Whether it has a record, so that a request or the queue can come back for it; else it is gone with its request.
    package var isRecorded: Bool { record.isThere }

    var id: UploadID { creation.id }
    var queue: Queue { record.state.queue }
    /// Whether a power cut must leave what was told of it.
    var isPromised: Bool { record.state.durable != nil }

    init(spool: Spool, lock: UploadLock?, creation: UploadCreation, files: UploadFiles) {
        self.spool = spool
        self.lock = lock
        self.creation = creation
        self.files = files
        record = files.record
        content = files.content
    }

    deinit { unlock() }

    // MARK: Receiving

    /// Appends bytes at the offset.
    ///
    /// What nobody was told of may be in memory alone until `sync()`, `unlock()` or the end of an attempt;
    /// all else survives the death of the process on return.
    ///
    /// - Throws: `.full` below the reserve or when the disk is, `.overQuota`; `.busy` after
    ///   `unlock()`. Whatever was written before the error stays and is counted in `state.offset`.
    package func append(_ bytes: RawSpan) throws(SpoolError) {
        guard isReceiving else { return try require(queue == .incoming) }
        try content.append(bytes)
    }

    /// Whether it takes content.
    ///
    /// Content comes beside a sync; every other step waits for the end of one (`require`).
    var isReceiving: Bool { !isUnlocked && queue == .incoming }

    /// Whether somebody else may add content to its file: not in a shared spool, where others look at it too,
    /// nor while content may have to be taken back.
    package var canBeLent: Bool {
        queue == .incoming && !spool.isShared && record.state.verified == nil
    }

    /// Opens its file for somebody else who adds content at the offset.
    ///
    /// Until `takeBack` the offset is what `noteAdded` said, and nothing can be appended here. Whatever dies
    /// meanwhile, nobody else gets the content before the other has closed the file.
    ///
    /// - Parameter count: the most bytes that may be added, > 0; `lent` says how many, fewer if there is little
    ///   room, and at least one.
    /// - Returns: the file, open for adding alone; the only copy of that opening.
    /// - Throws: as `append`; `.full` and `.overQuota` only if there is no room for a single byte.
    package func lend(upTo count: Int64) throws(SpoolError) -> Descriptor {
        try require(canBeLent)
        return try content.lend(upTo: count)
    }

    /// Takes its file back once the other has closed it.
    ///
    /// - Parameters:
    ///   - count: bytes that were added, as the other says; what is behind them is cut off. nil: it said
    ///     nothing, and all of it counts that is there.
    ///   - errno: why the other could not add more; 0: it could.
    ///   - deadline: until when it is waited for.
    /// - Returns: false where it has the file still.
    /// - Throws: `.disk`, `.noSpace` for what the other met, once the file is back.
    package func takeBack(
        _ count: Int64?,
        errno: Int32 = 0,
        until deadline: Deadline
    ) throws(SpoolError) -> Bool {
        guard try content.takeBack(count, until: deadline) else { return false }
        if isContentInDoubt, queue != .active { try forgetUndurable() }
        guard errno == 0 else {
            throw spool.failure(
                SystemError(call: "pwritev", subject: content.path, errno: errno)
            )
        }
        return true
    }

    /// Says that what comes will be promised, so that the disk can begin to write it while it comes.
    package func expectPromise() { content.writesBackEarly = creation.promise == .powerCut }

    /// Whether the begin of an attempt makes its content durable: of one that is not to be repeated, if anything
    /// was promised.
    package var isPromisedByAttempt: Bool { isPromised && !creation.isRepeatable }

    /// Makes the offset durable.
    ///
    /// On return `durableOffset` survives a power cut, or where its creation promises less the death of the
    /// process. Costs nothing if it does already.
    ///
    /// - Throws: `.disk` when it could not be made durable. If nothing of it was sent on yet,
    ///   `state.offset` then is the last durable one and content is received again from there.
    package func sync() throws(SpoolError) {
        try require(queue != .corrupt)
        if queue != .delivered { try store() }
        guard creation.promise == .powerCut else { return }
        let offset = durableOffset
        let isDurable = record.state.durable == offset
        guard !isDurable || record.isDirty else { return try spool.checkMembership() }
        // Asking for a stored response is no activity: it must not make that live longer.
        let before = lastActivity
        defer { if queue == .delivered { record.lastActivity = before } }
        if queue == .delivered {
            // With the response, before the slot says "durable".
            if !isPromised || record.isDirty { try record.sync() }
            if isPromised { return }
        } else if !isDurable {
            try syncContent()
            // Where progress is told, more of it will be.
            expectPromise()
        }
        // Before the slot says "durable": a record that says so must be one that can be found, and so must its
        // content.
        if files.areNamesInDoubt { try files.syncNames() }
        if isDurable {
            try record.sync()
        } else {
            try record.write(durably: true) { $0.durable = offset }
        }
    }

    /// The offset that `sync()` makes durable and that may then be told to a client: without what is
    /// not verified yet.
    package var durableOffset: Int64 { min(record.state.verified ?? .max, content.size) }

    /// Records the length.
    ///
    /// Survives the death of the process on return, a power cut after the next `sync()`.
    ///
    /// - Throws: `.contradiction` when another length is known; `.disk`.
    package func setLength(_ length: Int64) throws(SpoolError) {
        guard record.state.length != length else { return }
        if let known = record.state.length {
            throw .contradiction(id, reason: "its length is \(known) and cannot become \(length)")
        }
        try require(queue == .incoming)
        try record.write { $0.length = length }
    }

    // MARK: The end

    /// Removes the upload and its content; later requests find nothing.
    ///
    /// Also unlocks it. A power cut soon afterwards may bring it back, unless it is removed durably.
    ///
    /// - Parameter durably: whether no power cut brings it back once this returns. Costs nothing if
    ///   nothing was ever promised of it: a power cut forgets that by itself.
    /// - Throws: `.disk` where it, or a part of it, is there still or may come back.
    package func remove(durably: Bool = false) throws(SpoolError) {
        guard !isUnlocked else { throw .busy(id) }
        defer { end() }
        guard isRecorded else { return }
        // Whatever came of it: nothing is left to be made durable.
        _ = try? takeSync(waits: true)
        try files.remove(of: creation.client, durably: durably && isPromised)
    }

    /// Whether a newer request has requested its release; that of one being delivered is not.
    package var isReleaseRequested: Bool {
        lock?.isReleaseRequested(until: .after(.zero)) ?? false
    }

    /// From here newer requests wait for the final response instead of requesting its release: what comes
    /// before an attempt has begun.
    package func awaitFinalResponse() { lock?.setDelivering() }

    /// Unlocks it, so that the next request can have it.
    ///
    /// Content that came is stored first, and made durable: an error of the disk that comes while nobody has
    /// the file open may be told to nobody.
    package func unlock() {
        guard !isUnlocked else { return }
        _ = try? takeSync(waits: true)
        guard isRecorded, content.lent == nil else { return end() }
        // Where it fails, nobody was told of it: its client resumes before what is lost.
        switch queue {
        case .incoming, .deferred:
            // In a shared spool also the empty one that a client was told of: another host's walk takes what was
            // never promised for a dead one's.
            if durableOffset > record.state.durable ?? (spool.isShared ? -1 : 0) { try? sync() }
        case .active: try? store()
        case .hold, .delivered, .corrupt: break
        }
        end()
    }

    private func end() {
        guard !isUnlocked else { return }
        isUnlocked = true
        // Before the next request in this process looks.
        files.close()
        lock?.unlock()
    }

    // MARK: Steps

    /// Refuses a step that is not for the upload as it is; a sync under way comes first.
    func require(_ isAllowed: Bool) throws(SpoolError) {
        guard !isUnlocked else { throw .busy(id) }
        _ = try takeSync(waits: true)
        guard isAllowed else {
            throw .contradiction(id, reason: "operation not allowed: upload is in \(queue)")
        }
    }

    /// Puts content that is in memory into its file, where what comes then goes too; there is none where there
    /// is no content.
    package func store() throws(SpoolError) {
        if content.size > 0, queue != .hold || content.data != nil { try content.openedData() }
    }

    /// Makes the content durable, or forgets what is not.
    func syncContent() throws(SpoolError) {
        guard let data = content.data else { return }
        do throws(SystemError) {
            guard !isContentInDoubt else {
                throw SystemError(call: "fdatasync", subject: data.subject, errno: SystemError.lost)
            }
            try spool.disk.sync(data)
        } catch {
            try doubtContent()
            throw spool.failure(error)
        }
    }

    /// Forgets what is not durable: a sync of the content failed.
    ///
    /// After a failed sync the kernel calls the lost pages clean: the next sync would succeed and lie. So they are
    /// cut off; the client has them still. Not under an attempt, which reads them: then no later sync is believed.
    /// Of content that somebody else adds not before it is taken back.
    func doubtContent() throws(SpoolError) {
        isContentInDoubt = true
        guard queue != .active else { return }
        if content.lent == nil { try forgetUndurable() } else { try markUndurable() }
    }

    /// Cuts the content back to what is durable.
    ///
    /// One that waits for its delivery is received again from there. One in `hold` stays so: its client
    /// is not asked for anything more.
    private func forgetUndurable() throws(SpoolError) {
        let durable = record.state.durable ?? 0
        do throws(SpoolError) {
            if queue != .hold { try markUndurable() }
            try content.truncate(to: durable)
            if queue != .hold { try record.write { $0.verified = nil } }
        } catch {
            guard content.size > durable, record.state.verified == nil else { return }
            try files.setAside()
            end()
            throw .corrupt(id, reason: "its content could be neither made durable nor truncated")
        }
        isContentInDoubt = false
    }

    /// Has whoever comes after the death of the process cut off what is not durable.
    private func markUndurable() throws(SpoolError) {
        let durable = record.state.durable ?? 0
        guard record.state.verified != durable else { return }
        try record.write { state in
            if state.queue == .deferred { state.receiveAgain() }
            state.verified = durable
        }
    }
}
