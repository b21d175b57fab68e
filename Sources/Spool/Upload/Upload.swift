// Exclusive use of one upload, from lock to unlock.
//
// Every change of an upload goes through here, in the order that spoolgate-spool(5) proves safe.
// Invariant: the data file always holds exactly the first `state.offset` bytes of the content, and
// nothing is promised before it is durable.

package import Posix
package import UploadProtocol

/// One upload, locked.
///
/// Used by one thread; unlocked by `unlock()` or at the latest by deinit.
package final class Upload {
    /// What it was created with.
    package let creation: UploadCreation

    let spool: Spool
    let lock: UploadLock
    let files: UploadFiles
    /// The stored final response, once it was written or read.
    var knownResponse: StoredResponse?
    var isUnlocked = false
    /// Whether a sync of the content failed and what is not durable was not cut off.
    private var isContentInDoubt = false

    /// Its state as the protocol sees it.
    package var state: UploadState {
        UploadState(
            offset: files.size,
            length: files.state.length,
            phase: queue.phase(files.state.cause)
        )
    }
    /// When content or state last changed.
    package var lastActivity: WallTime { files.lastActivity }
    /// The path of the data file, for programs that open it themselves; there is none once delivered.
    package var path: String { files.dataPath }

    var id: UploadID { creation.id }
    var queue: Queue { files.queue }
    /// Whether a power cut must leave what was told of it.
    var isPromised: Bool { files.state.durable != nil }

    init(spool: Spool, lock: UploadLock, creation: UploadCreation, files: UploadFiles) {
        self.spool = spool
        self.lock = lock
        self.creation = creation
        self.files = files
    }

    deinit { unlock() }

    // MARK: Receiving

    /// Appends bytes at the offset.
    ///
    /// Survives the death of the process on return.
    ///
    /// - Throws: `.full` below the reserve or when the disk is, `.overQuota`; `.busy` after
    ///   `unlock()`. Whatever was written before the error stays and is counted in `state.offset`.
    package func append(_ bytes: RawSpan) throws(SpoolError) {
        let data = try requireData(while: queue == .incoming)
        let end = files.size + Int64(bytes.byteCount)
        // Receiving takes one descriptor; where these bytes are the last, the attempt needs the record.
        if end != files.state.length { files.closeRecord() }
        try spool.room.take(Int64(bytes.byteCount))
        var position = files.size
        defer {
            files.size = position
            files.lastActivity = spool.clock.now
        }
        do throws(SystemError) {
            try spool.disk.write(
                bytes,
                to: data.descriptor,
                at: &position,
                subject: data.subject
            )
        } catch {
            // In case the kernel left more than it said. If this fails too, the file has no bytes
            // but those the client sent, and the next lock counts them.
            try? spool.disk.truncate(data, to: position)
            spool.room.giveBack(end - position)
            throw spool.failure(error)
        }
    }

    /// Makes the offset durable.
    ///
    /// On return `durableOffset` survives a power cut. Costs nothing if it is durable already.
    ///
    /// - Throws: `.disk` when it could not be made durable. If nothing of it was sent on yet,
    ///   `state.offset` then is the last durable one and content is received again from there.
    package func sync() throws(SpoolError) {
        if queue == .delivered { return try syncDelivered() }
        let offset = durableOffset
        let isDurable = files.state.durable == offset
        guard !isDurable || files.isRecordDirty || !files.movedFrom.isEmpty else { return }
        try requireData(while: queue != .corrupt)
        if !isDurable { try syncContent() }
        // Before the slot says "durable": a record that says so must be one that can be found.
        if !isPromised { try files.syncDataName() }
        if !isPromised || !files.movedFrom.isEmpty { try files.syncPlace() }
        if !isDurable {
            try files.writeDurably { $0.durable = offset }
        } else if files.isRecordDirty {
            try files.syncRecord()
        }
    }

    /// The offset that `sync()` makes durable and that may then be told to a client: without what is
    /// not verified yet.
    package var durableOffset: Int64 { files.state.verified ?? files.size }

    /// Makes a delivered upload durable of which nothing was promised before: only its record is left.
    private func syncDelivered() throws(SpoolError) {
        guard !isUnlocked else { throw .busy(id) }
        guard !isPromised else { return }
        // Asking is no activity: it must not make the stored response live longer.
        let before = lastActivity
        defer { files.lastActivity = before }
        // With the response, before the slot says "durable".
        try files.syncRecord()
        try files.syncPlace()
        try files.writeDurably { $0.durable = files.size }
    }

    /// Records the length.
    ///
    /// Survives the death of the process on return, a power cut after the next `sync()`.
    ///
    /// - Throws: `.contradiction` when another length is known; `.disk`.
    package func setLength(_ length: Int64) throws(SpoolError) {
        guard files.state.length != length else { return }
        if let known = files.state.length {
            throw .contradiction(id, reason: "its length is \(known) and was to become \(length)")
        }
        try requireData(while: queue == .incoming)
        try files.write { $0.length = length }
    }

    // MARK: The end

    /// Removes the upload and its content; later requests find nothing.
    ///
    /// Also unlocks it. A power cut soon afterwards may bring it back, unless it is removed durably.
    ///
    /// - Parameter durably: whether no power cut brings it back once this returns. Costs nothing if
    ///   nothing was ever promised of it: recovery forgets that by itself.
    /// - Throws: `.disk` where it, or a part of it, is there still or may come back.
    package func remove(durably: Bool = false) throws(SpoolError) {
        guard !isUnlocked else { throw .busy(id) }
        defer { unlock() }
        try files.remove(durably: durably && isPromised)
    }

    /// Whether a newer request has requested its release; that of one being delivered is not.
    package var isReleaseRequested: Bool { lock.isReleaseRequested(until: .after(.zero)) }

    /// From here newer requests wait for the final response instead of requesting its release: what comes
    /// before an attempt has begun.
    package func awaitFinalResponse() { lock.setDelivering() }

    /// Unlocks it, so that the next request can have it.
    package func unlock() {
        guard !isUnlocked else { return }
        isUnlocked = true
        // Before the next request in this process looks.
        files.close()
        lock.unlock()
    }

    // MARK: Steps

    /// The data file of an upload that is still locked and not delivered.
    @discardableResult
    func requireData(while isAllowed: Bool) throws(SpoolError) -> OpenFile {
        guard !isUnlocked else { throw .busy(id) }
        guard isAllowed, let data = files.data else {
            throw .contradiction(id, reason: "a step was tried that is not for one in \(queue)")
        }
        return data
    }

    /// Makes the content durable, or forgets what is not.
    func syncContent() throws(SpoolError) {
        let data = try requireData(while: true)
        do throws(SystemError) {
            guard !isContentInDoubt else {
                throw SystemError(call: "fdatasync", subject: data.subject, errno: SystemError.lost)
            }
            try spool.disk.sync(data)
        } catch {
            // After a failed sync the kernel calls the lost pages clean: the next sync would succeed
            // and lie. So they are cut off; the client has them still. Not under an attempt, which
            // reads them: then no later sync is believed.
            isContentInDoubt = true
            if queue != .active { try forgetUndurable(data) }
            throw spool.failure(error)
        }
    }

    /// Cuts the content back to what is durable.
    ///
    /// One that waits for its delivery is received again from there. One in `hold` stays so: its client
    /// is not asked for anything more.
    func forgetUndurable(_ data: OpenFile) throws(SpoolError) {
        let durable = files.state.durable ?? 0
        do throws(SystemError) { try spool.disk.truncate(data, to: durable) } catch {
            defer { unlock() }
            let reason = "its content could neither be made durable nor cut back"
            try files.setAside()
            throw SpoolError.corrupt(id, reason: reason)
        }
        isContentInDoubt = false
        // Nothing was promised that was not verified.
        try files.noteCutBack(to: durable)
        if queue == .deferred {
            try files.write { $0.takeUpAgain() }
            try files.move(to: .incoming)
        }
    }
}
