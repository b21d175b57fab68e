// Exclusive use of one upload, from attach to detach.
//
// Every change of an upload goes through here, in the order that spoolgate-spool(5) proves safe.
// Invariant: the data file always holds exactly the first `state.offset` bytes of the content, and
// nothing is promised before it is durable.

package import Posix
package import UploadProtocol

/// One upload, held.
///
/// Used by one thread; let go by `unlock()` or at the latest by deinit.
package final class Upload {
    /// What it was created with.
    package let creation: UploadCreation
    /// Its state as the protocol sees it.
    package internal(set) var state: UploadState
    /// When content or state last changed.
    package internal(set) var lastActivity: WallTime

    let spool: Spool
    let lock: UploadLock
    let name: FileName
    let creationEnd: Int64
    var queue: Queue
    var recordState: RecordState
    /// The data file, whose lock stands for the upload; nil once delivered.
    var data: OpenFile?
    /// The record, while it is needed; in `delivered` its lock stands for the upload.
    var record: OpenFile?
    /// The stored final response, once it was written or read.
    var knownResponse: StoredResponse?
    var isUnlocked = false
    /// Whether the record was written since it was last made durable.
    var isRecordDirty = false
    /// Where the record was since its place was last durable, or created; empty: it is there still.
    var movedFrom: [Queue] = []
    /// Whether a sync of the content failed and what is not durable was not cut off.
    var isContentInDoubt = false

    /// The path of the data file, for programs that open it themselves; there is none once delivered.
    package var path: String { layout.data[name].path(of: name.name) }

    var id: UploadID { creation.id }
    var disk: Disk { spool.disk }
    var layout: SpoolLayout { spool.layout }

    init(
        spool: Spool,
        lock: UploadLock,
        queue: Queue,
        record: LoadedRecord,
        file: OpenFile,
        data: OpenFile?,
        offset: Int64,
        lastActivity: WallTime
    ) {
        self.spool = spool
        self.lock = lock
        self.queue = queue
        self.data = data
        self.record = file
        self.lastActivity = lastActivity
        creation = record.creation
        creationEnd = record.creationEnd
        recordState = record.state
        name = FileName(record.creation.id)
        state = UploadState(
            offset: offset,
            length: record.state.length,
            phase: queue.phase(record.state.cause)
        )
    }

    convenience init(spool: Spool, lock: UploadLock, _ found: FoundUpload) {
        let files = found.files
        // Receiving takes one descriptor an upload; the record is opened again when it changes.
        self.init(
            spool: spool,
            lock: lock,
            queue: files.queue,
            record: found.record,
            file: files.file,
            data: files.data,
            offset: found.dataSize ?? found.record.state.length ?? 0,
            lastActivity: found.lastActivity
        )
        if files.data != nil { record = nil }
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
        // Receiving takes one descriptor; where these bytes are the last, the attempt needs the record.
        if state.offset + Int64(bytes.byteCount) != state.length { record = nil }
        let end = state.offset + Int64(bytes.byteCount)
        try spool.room.take(Int64(bytes.byteCount))
        var position = state.offset
        defer {
            state.offset = position
            lastActivity = spool.clock.now
        }
        do throws(SystemError) {
            try disk.write(
                bytes,
                to: data.descriptor,
                at: &position,
                subject: data.subject
            )
        } catch {
            // In case the kernel left more than it said. If this fails too, the file has no bytes
            // but those the client sent, and the next attach counts them.
            try? disk.truncate(data, to: position)
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
        guard recordState.durable != offset || isRecordDirty || !movedFrom.isEmpty else { return }
        let data = try requireData(while: queue != .corrupt)
        if recordState.durable != offset { try syncContent(data) }
        let isFirst = recordState.durable == nil
        // Before the slot says "durable": a record that says so must be one that can be found.
        if isFirst {
            try spool.onDisk { () throws(SystemError) in
                try disk.syncDirectory(layout.data[name])
            }
        }
        if isFirst || !movedFrom.isEmpty { try syncPlace() }
        if recordState.durable != offset {
            try writeDurably { $0.durable = offset }
        } else if isRecordDirty {
            try syncRecord()
        }
    }

    /// The offset that may be told to a client after `sync()`: without what is not verified yet.
    package var durableOffset: Int64 { recordState.verified ?? state.offset }

    /// Makes a delivered upload durable of which nothing was promised before: only its record is left.
    private func syncDelivered() throws(SpoolError) {
        guard !isUnlocked else { throw .busy(id) }
        guard recordState.durable == nil else { return }
        // Asking is no activity: it must not make the stored response live longer.
        let before = lastActivity
        defer { lastActivity = before }
        // With the response, before the slot says "durable".
        try syncRecord()
        try syncPlace()
        try writeDurably { $0.durable = state.offset }
    }

    /// Records the length.
    ///
    /// Survives the death of the process on return, a power cut after the next `sync()`.
    ///
    /// - Throws: `.contradiction` when another length is known; `.disk`.
    package func setLength(_ length: Int64) throws(SpoolError) {
        guard state.length != length else { return }
        if let known = state.length {
            throw .contradiction(id, reason: "its length is \(known) and was to become \(length)")
        }
        _ = try requireData(while: queue == .incoming)
        try write { $0.length = length }
        state.length = length
    }

    // MARK: The end

    /// Removes the upload and its content; later requests find nothing.
    ///
    /// Also lets go of it. A power cut soon afterwards may bring it back, unless it is removed durably.
    ///
    /// - Parameter durably: whether no power cut brings it back once this returns. Costs nothing if
    ///   nothing was ever promised of it: recovery forgets that by itself.
    /// - Throws: `.disk` where it, or a part of it, is there still or may come back.
    package func remove(durably: Bool = false) throws(SpoolError) {
        guard !isUnlocked else { throw .busy(id) }
        defer { unlock() }
        let size = data == nil ? 0 : state.offset
        try spool.onDisk { () throws(SystemError) in
            let record = try spool.room.sizeOfRecord(name.name, in: layout[queue][name])
            // The record first: content without a record is nothing, a record without content damage.
            try disk.unlink(name.name, in: layout[queue][name])
            spool.population.remove(id)
            spool.room.giveBackRecord(record)
            if durably, recordState.durable != nil { try spool.syncRemoval(of: name, from: queue) }
            if data != nil { try disk.unlink(name.name, in: layout.data[name]) }
        }
        spool.room.giveBack(size)
    }

    /// Whether a newer request has asked for it; one that is being delivered is not asked for.
    package var isReleaseRequested: Bool { lock.isReleaseRequested(until: .after(.zero)) }

    /// Lets go of it, so that the next request can have it.
    package func unlock() {
        guard !isUnlocked else { return }
        isUnlocked = true
        // The kernel's lock goes with the descriptor, so it must be closed before the next holder in
        // this process looks.
        data = nil
        record = nil
        lock.unlock()
    }

    // MARK: Steps

    /// The data file of an upload that is still held and not delivered.
    func requireData(while isAllowed: Bool) throws(SpoolError) -> OpenFile {
        guard !isUnlocked else { throw .busy(id) }
        guard isAllowed, let data else {
            throw .contradiction(id, reason: "a step was tried that is not for one in \(queue)")
        }
        return data
    }

    func openRecord() throws(SystemError) -> OpenFile {
        if let record { return record }
        guard let opened = try OpenFile.open(name.name, in: layout[queue][name]) else {
            throw SystemError(
                call: "openat",
                subject: layout[queue][name].path(of: name.name),
                errno: SystemError.gone
            )
        }
        record = opened
        return opened
    }

    /// Writes a new state beside the old one.
    ///
    /// Survives the death of the process on return.
    func write(_ change: (inout RecordState) -> Void) throws(SpoolError) {
        var next = recordState
        change(&next)
        next.sequence += 1
        try spool.onDisk { () throws(SystemError) in
            try disk.write(next.slot, to: try openRecord(), at: next.slotPosition)
        }
        recordState = next
        isRecordDirty = true
        lastActivity = spool.clock.now
    }

    /// Writes a new state and makes it durable, or takes it back.
    func writeDurably(_ change: (inout RecordState) -> Void) throws(SpoolError) {
        let before = recordState
        try write(change)
        do throws(SpoolError) { try syncRecord() } catch {
            // The next holder must not read a promise that was not kept; if this fails as well, the
            // record cannot be written at all and the upload is beyond use.
            try? write { next in
                next = RecordState(before, sequence: next.sequence)
            }
            throw error
        }
    }

    /// Makes the record durable, all of it.
    func syncRecord() throws(SpoolError) {
        try spool.onDisk { () throws(SystemError) in
            let record = try openRecord()
            do throws(SystemError) { try disk.sync(record) } catch {
                // After a failed sync the kernel calls the lost pages clean: what is not written again
                // would be in no later sync, and that one would still succeed. If this fails as well,
                // a later state can be there without its creation; such a record is set aside.
                try? disk.writeAgain(record)
                throw error
            }
        }
        isRecordDirty = false
    }

    /// Makes the content durable, or forgets what is not.
    func syncContent(_ data: OpenFile) throws(SpoolError) {
        do throws(SystemError) {
            guard !isContentInDoubt else {
                throw SystemError(call: "fdatasync", subject: data.subject, errno: SystemError.lost)
            }
            try disk.sync(data)
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
    /// One that waits for its delivery is received again from there. One that is held stays so: its
    /// client is not asked for anything more.
    func forgetUndurable(_ data: OpenFile) throws(SpoolError) {
        let durable = recordState.durable ?? 0
        do throws(SystemError) { try disk.truncate(data, to: durable) } catch {
            defer { unlock() }
            let reason = "its content could neither be made durable nor cut back"
            try spool.setAside(UploadFiles(id: id, queue: queue, data: data, file: data))
            throw SpoolError.corrupt(id, reason: reason)
        }
        isContentInDoubt = false
        spool.room.giveBack(state.offset - durable)
        state.offset = durable
        // Nothing was promised that was not verified.
        if recordState.verified != nil { try write { $0.verified = nil } }
        if queue == .deferred {
            try write { $0.takeUpAgain() }
            try move(to: .incoming)
        }
    }

    func move(to target: Queue) throws(SpoolError) {
        try spool.onDisk { () throws(SystemError) in
            // Opened before the move, so that no later step can fail for want of a descriptor.
            _ = try openRecord()
            try disk.rename(
                name.name,
                in: layout[queue][name],
                to: name.name,
                in: layout[target][name]
            )
        }
        movedFrom.append(queue)
        queue = target
        state.phase = target.phase(recordState.cause)
    }

    /// Makes the record's place durable: the entry that is there, and that the old ones are gone.
    ///
    /// A record that came back at an old place as well could be delivered from there again.
    func syncPlace() throws(SpoolError) {
        try spool.onDisk { () throws(SystemError) in
            try disk.syncDirectory(layout[queue][name])
            for place in Queue.allCases where place != queue && movedFrom.contains(place) {
                try disk.syncDirectory(layout[place][name])
            }
        }
        movedFrom = []
    }
}
