// The record of one upload: its file, its states, and its name in `queue`.
//
// All records are written here, in the order that spoolgate-spool(5) describes. Invariant: a name in the queue is
// created before the state that needs it, and removed after the state that no longer needs it.

import HTTPTypes
import SpoolgatePosix
import SpoolgateUploadProtocol

/// One upload's record, open and locked, used by one thread.
///
/// The last reference, or `close()`, releases the kernel's lock.
final class RecordFile {
    let id: UploadID
    /// Whether there is a record file; without one, nothing is written.
    let isThere: Bool
    /// The current state, which is that of a new upload until `trust(_:_:)` adopts another.
    private(set) var state: RecordState
    private var creationEnd: Int64
    var lastActivity: WallTime
    /// Whether a part of the record might not be durable yet.
    private(set) var isDirty = true
    /// Whether `remove(of:)` has removed the record.
    private(set) var isRemoved = false

    let spool: Spool
    let name: FileName
    /// The record file, whose lock protects the upload; nil for an upload without a record, and after `close()`.
    private var file: OpenFile?
    /// Whether the newest state is in a slot for uploads with a durable offset.
    private var usesPromisedSlots = false
    /// Whether `state` is the newest state in the file, which is not so after `trustOlder()`.
    private(set) var isStateInFile = true
    /// Whether the newest state might not be durable yet.
    private var isStateDirty = true
    /// Whether the first write to both promised slots failed halfway.
    private var areSlotsTorn = false
    /// The byte ranges written since the last sync; nil if unknown.
    private var unsynced: [Range<Int64>]?
    private var disk: Disk { spool.disk }

    /// Takes ownership of `file`, which must be locked, or nil for an upload without a record.
    ///
    /// Pass `state` and `creationEnd` only for a record that was just created.
    init(
        of id: UploadID,
        _ name: FileName,
        in spool: Spool,
        _ file: OpenFile?,
        state: RecordState = RecordState(),
        creationEnd: Int64 = 0
    ) {
        self.id = id
        self.spool = spool
        self.file = file
        isThere = file != nil
        self.state = state
        self.creationEnd = creationEnd
        self.name = name
        lastActivity = spool.clock.now
        if creationEnd > 0 { unsynced = [RecordSlots.early[0]..<creationEnd] }
    }

    func open() throws(SystemError) -> OpenFile {
        if let file { return file }
        throw SystemError(
            call: "openat",
            subject: spool.layout.directory(of: name).path(of: name.record),
            errno: SystemError.gone
        )
    }

    func close() { file = nil }

    // MARK: Reading

    /// Reads the record; `trust(_:_:)` then adopts it.
    ///
    /// - Parameter status: the file's status, which must be read after the file was locked.
    /// - Returns: the record, or the reason why it is unreadable.
    /// - Throws: `.disk`.
    func read(_ status: FileStatus) throws(SpoolError) -> Result<LoadedRecord, UnreadableRecord> {
        // A file system in user space may not report another host's writes, so data cached before the lock may be old.
        if spool.isShared { try? open().descriptor.forgetCached() }
        return try spool.onDisk { () throws(SystemError) in
            try LoadedRecord.read(
                try open(),
                of: id,
                size: status.size,
                knowing: spool.creations
            )
        }
    }

    func trust(_ loaded: LoadedRecord, _ status: FileStatus) {
        state = loaded.state
        // After a power failure, everything that can be read is on the disk. In a shared spool, the other writer may
        // have crashed on this host, whose kernel still has unwritten data.
        let isAfterCut = state.writer != spool.writer && !spool.isShared
        if isAfterCut || spool.syncedStates.contains(id, state.sequence) {
            noteSync()
        } else if !loaded.isPromised {
            unsynced = [RecordSlots.early[0]..<status.size]
        }
        creationEnd = loaded.creationEnd
        usesPromisedSlots = loaded.isPromised
        lastActivity = status.modified
    }

    /// Adopts the previous state if the file still contains it, and returns whether it does.
    ///
    /// The next state written then replaces the newest one.
    func trustOlder() throws(SpoolError) -> Bool {
        let older = try spool.reporting(LoadedRecord.state(before: state, in: try open(), of: id))
        guard var older else { return false }
        (older.sequence, isStateDirty, isStateInFile) = (state.sequence, true, false)
        state = older
        return true
    }

    /// Adopts a state that is only shown, so that the files need no repair.
    func look(at state: RecordState) { self.state = state }

    /// Reads the stored fields of the completing request.
    ///
    /// Returns nil if they are missing or damaged.
    func completion() throws(SpoolError) -> HTTPFields? {
        guard let extent = state.completion, let bytes = try bytes(of: extent) else { return nil }
        return HTTPFields(completionText: bytes, of: id)
    }

    /// Reads a range of the record file.
    ///
    /// Returns nil if the file ends earlier.
    func bytes(of extent: Range<Int64>) throws(SpoolError) -> [UInt8]? {
        try spool.onDisk { () throws(SystemError) in
            let record = try open()
            guard extent.upperBound <= (try record.status().size) else { return nil }
            return try record.bytes(at: extent.lowerBound, count: extent.count)
        }
    }

    func response() throws(SpoolError) -> Result<StoredResponse, UnreadableRecord> {
        try spool.reporting(state.storedResponse(of: id, in: try open()))
    }

    // MARK: Writing

    /// Writes a new state without overwriting the last durable one.
    ///
    /// On return, the state survives a crash and, if `durably` is true, a power failure. If an error is thrown, the
    /// change is undone.
    func write(
        durably: Bool = false,
        _ change: (inout RecordState) -> Void
    ) throws(SpoolError) {
        let before = state
        var next = state
        change(&next)
        let isKept = next.queueTime == before.queueTime
        if !isKept, let time = next.queueTime { try makeName(time) }
        do throws(SpoolError) {
            try put(&next)
            if durably { try sync() }
        } catch {
            // The next holder of the lock must not read half a slot, nor a state that should be durable and is not. If
            // this fails too, the upload is unusable.
            var again = before
            try? put(&again)
            throw error
        }
        // If the name remains, the queue ignores it when its time comes.
        if !isKept, let time = before.queueTime { try? removeName(time) }
    }

    /// Writes a state into its slot, or into both promised slots if it is the first state with a durable offset.
    ///
    /// A power failure may destroy every block written since the last sync. A state that is not durable is therefore
    /// overwritten, and the newest durable state is kept until another one is durable.
    private func put(_ next: inout RecordState) throws(SpoolError) {
        if usesPromisedSlots, unsynced == nil { try sync() }
        number(&next)
        let isFirst = areSlotsTorn || !usesPromisedSlots && next.durable != nil
        if isFirst {
            // One call writes both slots with the same state, so that later states only overwrite and a power failure
            // leaves at least one.
            if next.sequence % 2 == 1 { next.sequence += 1 }
            var second = next
            second.sequence += 1
            let blank = [UInt8](
                repeating: 0,
                count: Int(RecordSlots.block) - RecordSlots.size
            )
            do throws(SpoolError) {
                try write(next.slot(for: id) + blank + second.slot(for: id), at: 0)
            } catch {
                // A part may have been written, which takes precedence over the early slots.
                let start = try? open().bytes(at: 0, count: RecordSlots.size)
                usesPromisedSlots = start?.contains { $0 != 0 } ?? true
                areSlotsTorn = usesPromisedSlots
                if areSlotsTorn { state.sequence = second.sequence }
                throw error
            }
            next = second
        } else {
            let position = next.position(isPromised: usesPromisedSlots)
            try write(next.slot(for: id), at: position)
        }
        usesPromisedSlots = usesPromisedSlots || isFirst
        areSlotsTorn = false
        noteWritten(next)
    }

    private func number(_ next: inout RecordState) {
        next.sequence = state.sequence + (usesPromisedSlots && isStateDirty ? 2 : 1)
        next.writer = spool.writer
    }

    private func noteWritten(_ next: RecordState) {
        state = next
        (isStateDirty, isStateInFile) = (true, true)
        lastActivity = spool.clock.now
    }

    private func write(_ bytes: [UInt8], at position: Int64) throws(SpoolError) {
        noteUnsynced(position, bytes.count)
        try spool.reporting(disk.write(bytes, to: try open(), at: position))
    }

    private func noteUnsynced(_ position: Int64, _ count: Int) {
        isDirty = true
        unsynced?.append(position..<position + Int64(count))
    }

    /// Writes a response or the completing request's fields to unused space of the file, for a state to refer to.
    ///
    /// Once the upload has a durable offset, the bytes start in a new block, because a power failure can destroy all of
    /// a block that is being written. The range `other` is still needed. A replacement is written before that range if
    /// there is enough space.
    func writePart(
        _ bytes: [UInt8],
        avoiding other: Range<Int64>?,
        isReplacement: Bool
    ) throws(SpoolError) -> Range<Int64> {
        func next(_ end: Int64) -> Int64 {
            let block = RecordSlots.block
            return usesPromisedSlots ? (end + block - 1) / block * block : end
        }
        let count = Int64(bytes.count)
        let first = next(creationEnd)
        let isBefore = isReplacement && next(first + count) <= (other?.lowerBound ?? .max)
        let start = other == nil || isBefore ? first : next(other?.upperBound ?? creationEnd)
        try write(bytes, at: start)
        return start..<start + count
    }

    // MARK: Names in the queue

    private func makeName(_ time: WallTime) throws(SpoolError) {
        try spool.onDisk { () throws(SystemError) in
            try disk.createEmpty(QueueName(time, id).text, in: spool.layout.queue)
            // A daemon need not sync: after a crash its file in `daemons` remains, and recovery creates the names
            // again.
            if !spool.isDaemon { try disk.syncDirectory(spool.layout.queue) }
        }
    }

    private func removeName(_ time: WallTime) throws(SpoolError) {
        try spool.onDisk { () throws(SystemError) in
            _ = try disk.unlink(QueueName(time, id).text, in: spool.layout.queue)
        }
    }

    /// Restores the name in `queue` that a power failure may have removed.
    func restoreName() throws(SpoolError) {
        if let time = state.queueTime { try makeName(time) }
    }

    // MARK: Making durable

    func sync() throws(SpoolError) {
        try spool.onDisk { () throws(SystemError) in
            let record = try open()
            do throws(SystemError) { try disk.sync(record) } catch {
                writeAgain(record)
                throw error
            }
        }
        noteSync()
        spool.syncedStates.note(id, state.sequence)
    }

    /// Writes again the bytes that a failed sync may have lost.
    ///
    /// The kernel treats the lost pages as clean, so later syncs would succeed without them. If this write fails too, a
    /// later state can survive without the creation; such a record is moved to `corrupt`.
    private func writeAgain(_ record: OpenFile) {
        for part in unsynced ?? ofNewestState { try? disk.writeAgain(part, of: record) }
        // Sync at once, because data of another process may already be durable and is at risk while it is rewritten.
        if unsynced == nil { try? disk.sync(record) }
    }

    /// The newest state and the bytes to which it refers.
    ///
    /// Other data of another process cannot be missing on the disk, and rewriting a block would put that data at risk.
    private var ofNewestState: [Range<Int64>] {
        let start = state.position(isPromised: usesPromisedSlots)
        let slot = start..<start + Int64(RecordSlots.size)
        return [slot, state.response, state.completion].compactMap { $0 }
    }

    private func noteSync() { (isDirty, isStateDirty, unsynced) = (false, false, []) }

    // MARK: Making durable while content arrives

    struct StateWrite: Sendable {
        fileprivate let state: RecordState
        fileprivate let position: Int64
        fileprivate let bytes: [UInt8]

        func put(into record: OpenFile, _ disk: Disk) throws(SystemError) {
            try disk.write(bytes, to: record, at: position)
        }
    }

    /// Prepares a state for another thread to write.
    ///
    /// Nothing else may be written until `finish(_:)` or `takeBack`.
    ///
    /// - Returns: the write; nil if another slot or a name in `queue` must change too, as for the first durable offset.
    func prepare(_ change: (inout RecordState) -> Void) -> StateWrite? {
        guard usesPromisedSlots, !areSlotsTorn, unsynced != nil else { return nil }
        var next = state
        change(&next)
        guard next.queueTime == state.queueTime else { return nil }
        number(&next)
        return StateWrite(
            state: next,
            position: next.position(isPromised: true),
            bytes: next.slot(for: id)
        )
    }

    /// Adopts a state that another thread has made durable.
    func finish(_ write: StateWrite) {
        noteWritten(write.state)
        noteSync()
        spool.syncedStates.note(id, state.sequence)
    }

    /// Restores the previous state after another thread failed to write `write` or, if `wasWritten` is true, to sync
    /// it.
    func takeBack(_ write: StateWrite, wasWritten: Bool) {
        var before = state
        noteUnsynced(write.position, write.bytes.count)
        if wasWritten {
            noteWritten(write.state)
            if let file { writeAgain(file) }
        }
        // As in `write`.
        try? put(&before)
    }

    /// Removes the upload: its record file, and its name in `queue`.
    func remove(of client: ClientName?) throws(SystemError) {
        let size = try open().status().size
        try disk.unlink(name.record, in: spool.layout.directory(of: name))
        isRemoved = true
        spool.creations.forget(id)
        spool.syncedStates.forget(id)
        spool.undurable.note(id, isUndurable: false)
        spool.room.giveBackUpload(of: client, isFinished: state.queue == .delivered)
        spool.room.giveBackRecord(size)
        if let time = state.queueTime { try? removeName(time) }
    }
}
