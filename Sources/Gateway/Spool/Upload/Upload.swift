// Exclusive use of one upload, from lock to unlock.
//
// Every change is made in the order that spoolgate-spool(5) describes. Invariant: `state.offset` bytes of content
// exist, in a file or in memory, and no offset is acknowledged before it is durable. Content that has not been verified
// is never acknowledged, and the next lock discards it.

package import SpoolgatePosix
package import SpoolgateUploadProtocol

/// A locked upload: only its holder can read or change it.
///
/// Used by one thread. Deinitialisation unlocks the upload.
package final class Upload {
    package let creation: UploadCreation

    let spool: Spool
    /// The lock; nil for an upload without a record, which no other request can find.
    let lock: UploadLock?
    let files: UploadFiles
    let record: RecordFile
    package let content: ContentFile
    /// The final response; nil until it has been written or read.
    var knownResponse: StoredResponse?
    /// Whether the upstream may have processed an attempt, which could be repeated then; `postpone` records it.
    package var mayBeProcessed: Bool
    var isUnlocked = false
    /// Whether a sync failed and the content that may be lost has not been cut off yet.
    private(set) var isContentUncertain = false
    /// The sync that runs while content is received; nil if none was started.
    var offsetSync: OffsetSync?

    package var state: UploadState {
        UploadState(
            offset: content.size,
            length: record.state.length,
            phase: queue.phase(record.state.cause),
            kind: creation.kind
        )
    }
    package var offset: Int64 { content.size }
    package var lastActivity: WallTime { record.lastActivity }

    /// The maximum number of bytes of an upload without a record that stay in the receiving buffer; larger content is
    /// moved to a file.
    package static let maximumInBuffer = 128 << 10

    /// Whether the upload has a record.
    ///
    /// No other request can find an upload without one, which is removed when it is unlocked or the process ends.
    package var isRecorded: Bool { record.isThere }

    var id: UploadID { creation.id }
    var queue: Queue { record.state.queue }
    /// Whether an offset of the upload has ever been made durable.
    var isPromised: Bool { record.state.durable != nil }

    init(_ lock: UploadLock?, _ creation: UploadCreation, _ files: UploadFiles) {
        spool = files.record.spool
        self.lock = lock
        self.creation = creation
        self.files = files
        record = files.record
        content = files.content
        mayBeProcessed = record.state.queue == .deferred && record.state.then == .deferred
    }

    deinit { unlock() }

    // MARK: Receiving

    /// Appends bytes at the offset.
    ///
    /// Content without an acknowledged offset may stay in memory until `sync()`, `unlock()` or the end of an attempt.
    /// On return, other content survives a crash.
    ///
    /// - Throws: `.full` if less free space than the reserve would remain, `.noSpace` if the disk is full, `.overQuota`
    ///   if the quota would be exceeded; `.busy` after `unlock()`. Bytes that were written before the error are kept
    ///   and counted in `state.offset`.
    package func append(_ bytes: RawSpan) throws(SpoolError) {
        guard isReceiving else { return try require(that: queue == .incoming) }
        try content.append(bytes)
    }

    /// Whether content can be appended, even during a sync.
    ///
    /// Every other operation waits in `require(that:)` until the sync ends.
    var isReceiving: Bool { !isUnlocked && queue == .incoming }

    /// Keeps the buffer that has received all content of an upload without a record; `unlock()` returns it to the pool.
    package func keep(_ buffer: ContentBuffer) { content.keep(buffer) }

    /// Whether the data file may be passed to the web server.
    ///
    /// False in a shared spool, because other hosts access it, and while content may have to be discarded.
    package var canBeLent: Bool {
        queue == .incoming && !spool.isShared && record.state.verified == nil
    }

    /// Opens the data file for the web server, which may append up to `count` bytes at the offset.
    ///
    /// `count` must be positive. Until `takeBack`, `noteAdded` advances the offset, and `append(_:)` must not be
    /// called. `content.lent` is the number of bytes allowed, at least one. Even if this process ends, no other process
    /// can use the content until the web server has closed the file.
    ///
    /// - Returns: the only copy of the descriptor, which can only append.
    /// - Throws: the errors of `append(_:)`; `.full` and `.overQuota` only if not even one byte may be added.
    package func lend(upTo count: Int64) throws(SpoolError) -> Descriptor {
        try require(that: canBeLent)
        return try content.lend(upTo: count)
    }

    /// Ends the loan after the web server has closed the file.
    ///
    /// Returns false if the file is still open at `deadline`. `count` is the number of bytes that the web server
    /// reported as added; later bytes are cut off. Pass nil if it sent no report, so that all bytes in the file count.
    /// `errno` is the error that prevented further writing. Pass 0 if there was none.
    ///
    /// - Throws: `.disk` or `.noSpace` for `errno`, after the loan has ended.
    package func takeBack(
        _ count: Int64?,
        errno: Int32 = 0,
        until deadline: Deadline
    ) throws(SpoolError) -> Bool {
        guard try content.takeBack(count, until: deadline) else { return false }
        if isContentUncertain, queue != .active { try forgetUndurable() }
        guard errno == 0 else {
            throw spool.failure(
                SystemError(call: "pwritev", subject: content.path, errno: errno)
            )
        }
        return true
    }

    /// Makes the kernel write content to the disk as it is received, because a sync is expected.
    package func expectPromise() { content.writesBackEarly = creation.promise == .powerCut }

    /// Whether the upload has a durable offset and must not be retried, so that an attempt's start makes the content
    /// durable.
    package var isPromisedByAttempt: Bool { isPromised && !creation.isRepeatable }

    /// Makes the offset durable, so that it can be acknowledged.
    ///
    /// On return, `durableOffset` survives a power failure, or only a crash if the promise covers no more.
    ///
    /// - Throws: `.disk` if the sync failed. Unless an attempt has begun, `state.offset` is then the last durable
    ///   offset, and the content after it must be received again.
    package func sync() throws(SpoolError) {
        try require(that: queue != .corrupt)
        if queue != .delivered { try store() }
        guard creation.promise == .powerCut else { return }
        let offset = durableOffset
        let isDurable = record.state.durable == offset
        guard !isDurable || record.isDirty else { return try spool.checkMembership() }
        // A request for a stored response is not activity and must not extend the response's lifetime.
        let before = lastActivity
        defer { if queue == .delivered { record.lastActivity = before } }
        if queue == .delivered {
            // The response must be durable before a slot says so.
            if !isPromised || record.isDirty { try record.sync() }
            if isPromised { return }
        } else if !isDurable {
            try syncContent()
            // Later offsets will be acknowledged too.
            expectPromise()
        }
        // The names must be durable before a slot says that the offset is.
        if files.areNamesUncertain { try files.syncNames() }
        if isDurable {
            try record.sync()
        } else {
            try record.write(durably: true) { $0.durable = offset }
        }
    }

    /// The offset that `sync()` makes durable and that may then be acknowledged.
    ///
    /// Excludes content that has not been verified.
    package var durableOffset: Int64 { min(record.state.verified ?? .max, content.size) }

    /// Sets the length of the complete content.
    ///
    /// The length survives a crash on return, but a power failure only after the next `sync()`.
    ///
    /// - Throws: `.contradiction` if a different length was set before.
    package func setLength(_ length: Int64) throws(SpoolError) {
        guard record.state.length != length else { return }
        if let known = record.state.length {
            throw .contradiction(id, reason: "its length is \(known) and cannot become \(length)")
        }
        try require(that: queue == .incoming)
        try record.write { $0.length = length }
    }

    // MARK: Content that must be verified

    /// Marks content appended from now on as unverified, until `verify()`.
    ///
    /// A crash or `unlock()` discards unverified content, and `sync()` excludes it from the durable offset.
    package func beginUnverified() throws(SpoolError) {
        try require(that: queue == .incoming)
        try record.write { $0.verified = content.size }
    }

    /// Marks the content appended since `beginUnverified()` as verified.
    ///
    /// On return, the mark survives a crash if the content does (see `append(_:)`).
    package func verify() throws(SpoolError) {
        try require(that: queue == .incoming)
        guard record.state.verified != nil else { return }
        try record.write { $0.verified = nil }
    }

    /// Discards the content appended since `beginUnverified()`.
    ///
    /// - Throws: `.disk` if that failed; the next lock then discards the content.
    package func discardUnverified() throws(SpoolError) {
        guard let verified = record.state.verified else { return }
        try require(that: queue == .incoming)
        try content.truncate(to: verified)
        try record.write { $0.verified = nil }
    }

    // MARK: Removing and unlocking

    /// Removes the upload and its content, and unlocks it.
    ///
    /// If `durably` is false, a power failure soon afterwards may restore the upload. No sync is needed without a
    /// durable offset, because a power failure would discard the upload anyway.
    ///
    /// - Throws: `.disk` if a part of the upload still exists or may be restored.
    package func remove(durably: Bool = false) throws(SpoolError) {
        guard !isUnlocked else { throw .busy(id) }
        defer { end() }
        guard isRecorded else { return }
        _ = try? takeSync(waits: true)
        try files.remove(of: creation.client, durably: durably && isPromised)
    }

    /// Whether a newer request has requested the release of this upload.
    ///
    /// Always false during a delivery.
    package var isReleaseRequested: Bool {
        lock?.isReleaseRequested(until: .after(.zero)) ?? false
    }

    /// Makes newer requests wait for the final response instead of requesting the release of this upload.
    ///
    /// Also called before the checks that precede an attempt.
    package func awaitFinalResponse() { lock?.setDelivering() }

    /// Unlocks the upload for the next request.
    ///
    /// Content is first stored and made durable, because the kernel may not report write errors after the file is
    /// closed.
    package func unlock() {
        guard !isUnlocked else { return }
        _ = try? takeSync(waits: true)
        guard isRecorded, content.lent == nil else { return end() }
        // If this fails, the client resumes before the lost content, because the offset was not acknowledged.
        switch queue {
        case .incoming, .deferred:
            // In a shared spool, an empty upload is synced too, because its client has its URL, and other hosts remove
            // uploads without a durable offset.
            if durableOffset > record.state.durable ?? (spool.isShared ? -1 : 0) { try? sync() }
        case .active: try? store()
        case .hold, .delivered, .corrupt: break
        }
        end()
    }

    private func end() {
        guard !isUnlocked else { return }
        isUnlocked = true
        if isRecorded { spool.undurable.note(id, isUndurable: isUndurable) }
        // The files must be closed before another request of this process locks the upload.
        files.close()
        lock?.unlock()
    }

    // MARK: Stopping

    /// Whether the upload is undelivered and its record does not say that all its content is durable.
    var isUndurable: Bool {
        guard isRecorded, !record.isRemoved else { return false }
        return queue != .delivered && record.state.durable != durableOffset
    }

    /// Writes a state that says that the content is durable, after a sync of the whole file system.
    func noteDurable() throws(SpoolError) {
        guard isUndurable else { return }
        let offset = durableOffset
        try record.write { $0.durable = offset }
    }

    // MARK: Steps

    /// Waits for a sync in progress, then throws an error if `isAllowed` is false or the upload is unlocked.
    func require(that isAllowed: Bool) throws(SpoolError) {
        guard !isUnlocked else { throw .busy(id) }
        _ = try takeSync(waits: true)
        guard isAllowed else {
            throw .contradiction(id, reason: "operation not allowed: upload is in \(queue)")
        }
    }

    /// Writes content that is in memory to the data file.
    ///
    /// Later content is then written to the file directly. If there is no content, no file is created.
    package func store() throws(SpoolError) {
        if content.size > 0, queue != .hold || content.data != nil { try content.openedData() }
    }

    /// Makes the content durable.
    ///
    /// If that fails, drops the content that is not durable and throws the error.
    func syncContent() throws(SpoolError) {
        guard let data = content.data else { return }
        do throws(SystemError) {
            guard !isContentUncertain else {
                throw SystemError(call: "fdatasync", subject: data.subject, errno: SystemError.lost)
            }
            try spool.disk.sync(data)
        } catch {
            try distrustContent()
            throw spool.failure(error)
        }
    }

    /// Drops content that is not durable, after a failed sync.
    ///
    /// The kernel treats the lost pages as clean, so the next sync would succeed without them. The client still has the
    /// content. During an attempt, the content is kept, but no later sync is trusted. Content that the web server is
    /// writing is cut off when its loan ends.
    func distrustContent() throws(SpoolError) {
        isContentUncertain = true
        guard queue != .active else { return }
        if content.lent == nil { try forgetUndurable() } else { try markUndurable() }
    }

    /// Cuts the content back to the durable offset.
    ///
    /// The client of a deferred upload must send the rest again. A held upload stays in `hold`.
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
        isContentUncertain = false
    }

    /// Records that content that is not durable must be cut off, in case this process crashes first.
    private func markUndurable() throws(SpoolError) {
        let durable = record.state.durable ?? 0
        guard record.state.verified != durable else { return }
        try record.write { state in
            if state.queue == .deferred { state.receiveAgain() }
            state.verified = durable
        }
    }
}
