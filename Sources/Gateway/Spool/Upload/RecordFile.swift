// The record of one upload: its file, the states in it, and the name in `queue` that a state needs.
//
// Used by Upload, recovery and removal alike, so that all write and sync in the one order that spoolgate-spool(5) proves
// safe. Invariant: a name in the queue is made before the state that needs it, and removed after the one that does not.

import HTTPTypes
import SpoolgatePosix
import SpoolgateUploadProtocol

/// The record of one upload, open and locked.
///
/// Used by one thread; the kernel's lock goes with the last reference, or with `close()`.
final class RecordFile {
    /// The upload.
    let id: UploadID
    /// Whether there is a file; without one nothing is written, and the upload is gone with the process.
    let isThere: Bool
    /// What it says; until `read(_:)` what a new one says.
    private(set) var state: RecordState
    /// Where the creation ends in it.
    private var creationEnd: Int64
    /// When content or state last changed.
    var lastActivity: WallTime
    /// Whether something in it may not be durable.
    private(set) var isDirty = true

    private let spool: Spool
    private let name: FileName
    /// The file, whose lock stands for the upload; nil once closed.
    private var file: OpenFile?
    /// Whether the newest state is in a slot that serves from the first promise on.
    private var usesPromisedSlots = false
    /// Whether the newest state may not be durable.
    private var isStateDirty = true
    /// Whether the first write of both of those failed half-way.
    private var areSlotsTorn = false
    /// What was written since it was made durable; nil: nobody here knows.
    private var unsynced: [Range<Int64>]?
    private var disk: Disk { spool.disk }

    /// Takes a file that the caller has opened and locked, nil for an upload without one; `state` and `creationEnd`
    /// where it was just made.
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

    /// The file.
    func open() throws(SystemError) -> OpenFile {
        if let file { return file }
        throw SystemError(
            call: "openat",
            subject: spool.layout.directory(of: name).path(of: name.record),
            errno: SystemError.gone
        )
    }

    /// Closes it, and with that gives up the kernel's lock.
    func close() { file = nil }

    // MARK: Reading

    /// Reads it.
    ///
    /// - Parameter status: what the file system knows of it since it was locked.
    /// - Returns: what the upload was created with, and what of the record matters to what becomes of it.
    /// - Throws: `.disk`.
    func read(_ status: FileStatus) throws(SpoolError) -> Result<LoadedRecord, UnreadableRecord> {
        // A file system in user space need not tell the kernel what another host has written: what was cached
        // before the lock may be old.
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

    /// Believes what was read.
    func believe(_ loaded: LoadedRecord, _ status: FileStatus) {
        state = loaded.state
        // After a power cut what can be read is what the disk has. In a shared spool another writer may be one that
        // died on this host, whose kernel still has what it wrote.
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

    /// Believes the state before, if there is one; what is written next takes the place of the newest one.
    ///
    /// - Returns: whether there is.
    func believeOlder() throws(SpoolError) -> Bool {
        let older = try spool.onDisk { () throws(SystemError) in
            try LoadedRecord.state(before: state, in: try open(), of: id)
        }
        guard var older else { return false }
        (older.sequence, isStateDirty) = (state.sequence, true)
        state = older
        return true
    }

    /// Believes a state that was read only to be looked at.
    func look(at state: RecordState) { self.state = state }

    /// Reads the fields of the completing request; nil where none are kept, or they are damaged.
    func completion() throws(SpoolError) -> HTTPFields? {
        guard let extent = state.completion, let bytes = try bytes(of: extent) else { return nil }
        return HTTPFields(completionText: bytes, of: id)
    }

    /// Reads a part of the record; nil where the file ends before it does.
    func bytes(of extent: Range<Int64>) throws(SpoolError) -> [UInt8]? {
        try spool.onDisk { () throws(SystemError) in
            let record = try open()
            guard extent.upperBound <= (try record.status().size) else { return nil }
            return try record.bytes(at: extent.lowerBound, count: extent.count)
        }
    }

    /// Reads the stored response.
    func response() throws(SpoolError) -> Result<StoredResponse, UnreadableRecord> {
        try spool.onDisk { () throws(SystemError) in
            try state.storedResponse(of: id, in: try open())
        }
    }

    // MARK: Writing

    /// Writes a new state beside the old one.
    ///
    /// Survives the death of the process on return; with `durably` a power cut too, or it is taken back.
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
            // The next lock must not read a promise that was not kept, nor half a slot; if this fails as
            // well, the record cannot be written at all and the upload is beyond use.
            var again = before
            try? put(&again)
            throw error
        }
        // One that stays is found not to be needed when its time has come.
        if !isKept, let time = before.queueTime { try? removeName(time) }
    }

    /// Writes a state into its slot, from the first promise on into both of the slots for that.
    ///
    /// A power cut may take every block that was written since the last sync, so the newest state that is
    /// durable stays until another one is: what is not durable is written over in its place.
    private func put(_ next: inout RecordState) throws(SpoolError) {
        if usesPromisedSlots, unsynced == nil { try sync() }
        number(&next)
        let isFirst = areSlotsTorn || !usesPromisedSlots && next.durable != nil
        if isFirst {
            // In one call, so that later states only overwrite. Whichever of them a power cut leaves says
            // the same.
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
                // A part of it may be there, and overrules what an early slot says.
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
        isStateDirty = true
        lastActivity = spool.clock.now
    }

    private func write(_ bytes: [UInt8], at position: Int64) throws(SpoolError) {
        noteUnsynced(position, bytes.count)
        try spool.onDisk { () throws(SystemError) in
            try disk.write(bytes, to: try open(), at: position)
        }
    }

    private func noteUnsynced(_ position: Int64, _ count: Int) {
        isDirty = true
        unsynced?.append(position..<position + Int64(count))
    }

    /// Writes a part of the record where nothing else counts.
    ///
    /// Once something was promised, a part has blocks of its own: a power cut can take all of a block that is
    /// being written.
    ///
    /// - Parameters:
    ///   - bytes: the part.
    ///   - other: a part that still counts; nil: there is none.
    ///   - isReplacement: whether it is to come before `other` where there is room.
    /// - Returns: where it is; it counts from the state on that says so.
    /// - Throws: `.disk`.
    func writePart(
        _ bytes: [UInt8],
        beside other: Range<Int64>?,
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
            // A daemon that does not end in good order is known by its file, and the names are made again.
            if !spool.isDaemon { try disk.syncDirectory(spool.layout.queue) }
        }
    }

    private func removeName(_ time: WallTime) throws(SpoolError) {
        try spool.onDisk { () throws(SystemError) in
            _ = try disk.unlink(QueueName(time, id).text, in: spool.layout.queue)
        }
    }

    /// Makes the name in `queue` that the state needs, if a power failure has removed it.
    func restoreName() throws(SpoolError) {
        if let time = state.queueTime { try makeName(time) }
    }

    // MARK: Making durable

    /// Makes the record durable, all of it.
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

    /// Writes again what a failed sync may have lost.
    ///
    /// After a failed sync the kernel calls the lost pages clean: what is not written again would be in no later
    /// sync, and that one would still succeed. If this fails as well, a later state can be there without its
    /// creation; such a record is set aside.
    private func writeAgain(_ record: OpenFile) {
        for part in unsynced ?? ofNewestState { try? disk.writeAgain(part, of: record) }
        // What another process made durable is in doubt while it is written again: not for longer than needed.
        if unsynced == nil { try? disk.sync(record) }
    }

    /// The newest state and what it points to.
    ///
    /// Of what another process wrote, only that can be in doubt, and a power cut can take a block that is
    /// written again.
    private var ofNewestState: [Range<Int64>] {
        let start = state.position(isPromised: usesPromisedSlots)
        let slot = start..<start + Int64(RecordSlots.size)
        return [slot, state.response, state.completion].compactMap { $0 }
    }

    private func noteSync() { (isDirty, isStateDirty, unsynced) = (false, false, []) }

    // MARK: Making durable beside the content that comes

    /// A state that another thread is to write and make durable.
    struct StateWrite: Sendable {
        fileprivate let state: RecordState
        fileprivate let position: Int64
        /// The slot.
        fileprivate let bytes: [UInt8]

        /// Writes the slot into the record.
        func put(into record: OpenFile, _ disk: Disk) throws(SystemError) {
            try disk.write(bytes, to: record, at: position)
        }
    }

    /// Prepares a state for another thread; until `finish` nothing else may be written here.
    ///
    /// - Returns: nil if more than one slot has to be written, as for the first promise.
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

    /// Takes over the state that another thread has written and made durable.
    func finish(_ write: StateWrite) {
        noteWritten(write.state)
        noteSync()
        spool.syncedStates.note(id, state.sequence)
    }

    /// Takes back the state that another thread could not write, or not make durable.
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

    /// Removes the file, and with it the upload, and the name in the queue.
    func remove(of client: ClientName?) throws(SystemError) {
        let size = try open().status().size
        try disk.unlink(name.record, in: spool.layout.directory(of: name))
        spool.creations.forget(id)
        spool.syncedStates.forget(id)
        spool.room.giveBackUpload(of: client, isFinished: state.queue == .delivered)
        spool.room.giveBackRecord(size)
        if let time = state.queueTime { try? removeName(time) }
    }
}
