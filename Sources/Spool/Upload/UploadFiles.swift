// The one owner of an upload's files: its data file, its record, the queue the record is in, and the
// state it says.
//
// Used by Upload, recovery and removal alike, so that all write, move, sync and remove in the one order
// that spoolgate-spool(5) proves safe. Invariant: every step here leaves a combination of files that the
// page has a row for.

import HTTPTypes
import Posix
import UploadProtocol

/// The files of one upload, open and locked.
///
/// Used by one thread; the kernel's lock goes with the last reference, or with `close()`.
final class UploadFiles {
    /// The upload.
    let id: UploadID
    /// Where its record is.
    private(set) var queue: Queue
    /// Its data file, whose lock stands for the upload; nil: there is none, as once it is delivered.
    private(set) var data: OpenFile?
    /// What the record says; until `read()` what a new one says.
    private(set) var state: RecordState
    /// Where the creation ends in the record.
    private(set) var creationEnd: Int64
    /// Bytes of content, as far as they count; the length where no data file is left.
    var size: Int64 = 0
    /// When content or state last changed.
    var lastActivity: WallTime
    /// Where the record was since its place was last durable, or created; empty: it is there still.
    var movedFrom: [Queue] = []
    /// Whether the record was written since it was last made durable.
    private(set) var isRecordDirty = false

    private let spool: Spool
    private let name: FileName
    /// The record, while it is needed; in `delivered` its lock stands for the upload.
    private var record: OpenFile?
    private var disk: Disk { spool.disk }
    private var layout: SpoolLayout { spool.layout }

    /// Takes files that the caller has opened and locked; `state` and `creationEnd` where they were just
    /// made.
    init(
        of id: UploadID,
        in queue: Queue,
        of spool: Spool,
        data: OpenFile?,
        record: OpenFile,
        state: RecordState = RecordState(),
        creationEnd: Int64 = 0
    ) {
        self.id = id
        self.queue = queue
        self.spool = spool
        self.data = data
        self.record = record
        self.state = state
        self.creationEnd = creationEnd
        name = FileName(id)
        lastActivity = spool.clock.now
    }

    /// The path of the data file.
    var dataPath: String { layout.data[name].path(of: name.name) }

    // MARK: Opening and reading

    /// The record, opened again where it was closed.
    func openRecord() throws(SystemError) -> OpenFile {
        if let record { return record }
        guard let opened = try layout[queue].open(name) else {
            throw SystemError(
                call: "openat",
                subject: layout[queue][name].path(of: name.name),
                errno: SystemError.gone
            )
        }
        record = opened
        return opened
    }

    /// Closes the record, where the data file's lock stands for the upload.
    func closeRecord() {
        if data != nil { record = nil }
    }

    /// Closes all, and with that gives up the kernel's lock.
    func close() {
        data = nil
        record = nil
    }

    /// Reads what the files say.
    ///
    /// - Returns: what the upload was created with.
    /// - Throws: `.corrupt` after setting a record aside that cannot be read.
    func read() throws(SpoolError) -> UploadCreation {
        let (status, read) = try spool.onDisk { () throws(SystemError) in
            let record = try openRecord()
            return (
                try record.status(), try LoadedRecord.read(record, of: id, knowing: spool.creations)
            )
        }
        switch read {
        case .failure(let fault):
            try setAside()
            throw .corrupt(id, reason: fault.reason)
        case .success(let loaded):
            let data = try spool.onDisk { () throws(SystemError) in try self.data?.status() }
            state = loaded.state
            creationEnd = loaded.creationEnd
            size = data?.size ?? state.length ?? 0
            lastActivity = max(status.modified, data?.modified ?? status.modified)
            return loaded.creation
        }
    }

    /// Reads a part of the record; nil where the file ends before it does.
    func bytes(of extent: Range<Int64>) throws(SpoolError) -> [UInt8]? {
        try spool.onDisk { () throws(SystemError) in
            let record = try openRecord()
            guard extent.upperBound <= (try record.status().size) else { return nil }
            return try record.bytes(at: extent.lowerBound, count: extent.count)
        }
    }

    /// Reads the stored response.
    func response() throws(SpoolError) -> Result<StoredResponse, UnreadableRecord> {
        try spool.onDisk { () throws(SystemError) in try state.storedResponse(in: try openRecord())
        }
    }

    // MARK: Writing

    /// Writes a new state beside the old one.
    ///
    /// Survives the death of the process on return.
    func write(_ change: (inout RecordState) -> Void) throws(SpoolError) {
        var next = state
        change(&next)
        next.sequence += 1
        try write(next.slot, at: next.slotPosition)
        state = next
        isRecordDirty = true
        lastActivity = spool.clock.now
    }

    /// Writes a new state and makes it durable, or takes it back.
    func writeDurably(_ change: (inout RecordState) -> Void) throws(SpoolError) {
        let before = state
        try write(change)
        do throws(SpoolError) { try syncRecord() } catch {
            // The next lock must not read a promise that was not kept; if this fails as well, the
            // record cannot be written at all and the upload is beyond use.
            try? write { next in
                next = RecordState(before, sequence: next.sequence)
            }
            throw error
        }
    }

    /// Writes into the record; behind its creation nothing counts that no state points to.
    func write(_ bytes: [UInt8], at position: Int64) throws(SpoolError) {
        try spool.onDisk { () throws(SystemError) in
            try disk.write(bytes, to: try openRecord(), at: position)
        }
    }

    /// Cuts the content to its first `size` bytes, all of which count from then on.
    func cutBack(to size: Int64) throws(SpoolError) {
        try spool.onDisk { () throws(SystemError) in
            if let data { try disk.truncate(data, to: size) }
        }
        try noteCutBack(to: size)
    }

    /// Counts content that was cut off no more.
    func noteCutBack(to size: Int64) throws(SpoolError) {
        spool.room.giveBack(self.size - size)
        self.size = size
        if state.verified != nil { try write { $0.verified = nil } }
    }

    // MARK: Moving

    /// Moves the record to another queue.
    func move(to target: Queue) throws(SpoolError) {
        try spool.onDisk { () throws(SystemError) in
            // Opened before the move, so that no later step can fail for want of a descriptor.
            _ = try openRecord()
            try layout.move(name, from: queue, to: target, disk)
        }
        movedFrom.append(queue)
        queue = target
    }

    /// Moves the record to `corrupt`; the data file stays where it is.
    func setAside() throws(SpoolError) {
        try spool.onDisk { () throws(SystemError) in
            try layout.move(name, from: queue, to: .corrupt, disk)
        }
        spool.population.remove(id)
    }

    // MARK: Making durable

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

    /// Makes the data file's name durable.
    func syncDataName() throws(SpoolError) {
        try spool.onDisk { () throws(SystemError) in try disk.syncDirectory(layout.data[name]) }
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

    // MARK: Removing

    /// Removes the upload: first the record, so that nothing half is ever found, then the content.
    ///
    /// - Parameter durably: whether no power cut brings it back once this returns.
    /// - Throws: `.disk` where a part of it is there still or may come back.
    func remove(durably: Bool = false) throws(SpoolError) {
        try spool.onDisk { () throws(SystemError) in
            try removeRecord()
            if durably {
                for place in Queue.places(ofRemovalFrom: queue) {
                    try disk.syncDirectory(layout[place][name])
                }
            }
            try removeData()
        }
    }

    /// Removes the record, and with it the upload: content without a record is nothing, a record without
    /// content damage.
    func removeRecord() throws(SystemError) {
        let size = try spool.room.sizeOfRecord(name.name, in: layout[queue][name])
        try disk.unlink(name.name, in: layout[queue][name])
        spool.creations.forget(id)
        spool.population.remove(id)
        spool.room.giveBackRecord(size)
    }

    /// Removes the data file, if there is one, and closes it; returns whether its name was there.
    @discardableResult
    func removeData() throws(SystemError) -> Bool {
        guard let data else { return false }
        defer { self.data = nil }
        let size = try data.status().size
        let isRemoved = try disk.unlink(name.name, in: layout.data[name])
        if isRemoved { spool.room.giveBack(size) }
        return isRemoved
    }

    // MARK: Making legal

    /// Makes the files legal again that a crash or a power cut has left.
    ///
    /// - Parameters:
    ///   - creation: what `read()` gave.
    ///   - afterPowerCut: whether the kernel was started since the spool was last used.
    /// - Returns: what was done.
    /// - Throws: `.corrupt` after setting an upload aside.
    func repair(_ creation: UploadCreation, afterPowerCut: Bool) throws(SpoolError) -> Repair {
        var fault: UnreadableRecord?
        // In `delivered` it is otherwise read when it is asked for; in `hold` nothing follows from it.
        if afterPowerCut || queue != .delivered && queue != .hold,
            case .failure(let found) = try response()
        {
            fault = found
        }
        let repair = Repair(
            queue: queue,
            state: state,
            isRepeatable: creation.isRepeatable,
            dataSize: data == nil ? nil : size,
            responseFault: fault,
            afterPowerCut: afterPowerCut
        )
        try apply(repair)
        if repair != .forget { spool.population.note(creation, in: queue) }
        // What a power cut takes back of it, the next recovery does again.
        (isRecordDirty, movedFrom) = (false, [])
        return repair
    }

    private func apply(_ repair: Repair) throws(SpoolError) {
        switch repair {
        case .keep: return
        case .cutBack(let size): try cutBack(to: size)
        case .receiveAgain:
            try write { $0.takeUpAgain() }
            try move(to: .incoming)
        case .putOff:
            // Its client heard of no failure: it is the queue's to repeat.
            try write { $0.decide(Repair.interrupted, next: spool.clock.now) }
            try move(to: .deferred)
        case .hold:
            try write { $0.decide(Repair.outcomeUnknown, cause: .indeterminate) }
            try move(to: .hold)
        case .finishDeferral:
            try move(to: .deferred)
        case .finishHold:
            try syncAgain()
            try move(to: .hold)
        case .finishDelivery:
            if queue != .delivered {
                try syncAgain()
                try move(to: .delivered)
            }
            try spool.onDisk { () throws(SystemError) in _ = try removeData() }
            size = state.length ?? size
            spool.population.finish(id)
        case .forget:
            try remove()
        case .setAside(let reason):
            try setAside()
            throw .corrupt(id, reason: reason)
        }
    }

    /// Makes a final response durable, if anything was ever promised: a sync of it may have failed before.
    private func syncAgain() throws(SpoolError) {
        guard state.durable != nil else { return }
        try spool.onDisk { () throws(SystemError) in try disk.writeAgain(try openRecord()) }
        try syncRecord()
    }

    /// Whether the record lacks parts because it never was durable: then nothing can have been promised.
    func isUnwritten() throws(SpoolError) -> Bool {
        try spool.onDisk { () throws(SystemError) in
            let record = try openRecord()
            let count = LoadedRecord.size(ofFile: try record.status().size)
            let bytes = try record.bytes(at: 0, count: count)
            return !RecordState.mayPromise(in: bytes) && LoadedRecord.isUnwritten(bytes)
        }
    }

    /// Removes the names that moves were to take away, where a power cut left several.
    func removeOtherNames() throws(SpoolError) {
        try spool.onDisk { () throws(SystemError) in
            let record = try openRecord().status()
            guard record.names > 1 else { return }
            for other in SpoolLayout.usable where other != queue {
                guard try layout[other].status(of: name)?.file == record.file else { continue }
                try disk.unlink(name.name, in: layout[other][name])
            }
        }
    }

    // MARK: Looking

    /// Whether nothing has changed since the upload was looked at; the creation never does.
    func isUnchanged(since earlier: UploadSummary) throws(SystemError) -> Bool {
        let record = try openRecord()
        let status = try record.status()
        let data = try self.data?.status()
        var newest: RecordState?
        if earlier.creation != nil {
            newest = RecordState.newest(
                in: try record.bytes(at: 0, count: 2 * RecordState.slotSize)
            )
            guard newest != nil else { return false }
        }
        let lastActivity = max(status.modified, data?.modified ?? status.modified)
        return (queue, UploadSummary.offset(data, newest), lastActivity)
            == (earlier.queue, earlier.offset, earlier.lastActivity)
            && (newest?.attempts ?? 0, newest?.length) == (earlier.attempts, earlier.length)
    }

    /// Has the last activity be now.
    func touch() throws(SystemError) {
        for file in [data, try openRecord()].compactMap({ $0 }) {
            try disk.touch(file.descriptor, subject: file.subject)
        }
    }
}
