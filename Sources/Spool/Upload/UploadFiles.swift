// The one owner of an upload's files: its record, its content, its name in the queue, and the state that the
// record says.
//
// Used by Upload, recovery and removal alike, so that all write, sync and remove in the one order that
// spoolgate-spool(5) proves safe. Invariant: every step here leaves a combination of files that the page has a
// row for; a name in the queue is made before the state that needs it, and removed after the one that does
// not.

import HTTPTypes
import Posix
import UploadProtocol

/// The files of one upload, open and locked.
///
/// Used by one thread; the kernel's locks go with the last reference, or with `close()`.
final class UploadFiles {
    /// Bytes of content of one upload that may stay in memory.
    private static let mostInMemory = 256 << 10
    /// Bytes of content between two begins of writing it to the disk.
    private static let writeBackStep: Int64 = 2 << 20

    /// The upload.
    let id: UploadID
    /// What the record says; until `read(_:)` what a new one says.
    private(set) var state: RecordState
    /// Where the creation ends in the record.
    private(set) var creationEnd: Int64
    /// Bytes of content, as far as they count; the length where none are left.
    private(set) var size: Int64 = 0
    /// When content or state last changed.
    var lastActivity: WallTime
    /// Whether something in the record may not be durable.
    private(set) var isRecordDirty = true
    /// Whether its content is on its way to the disk while it comes.
    var writesBackEarly = false

    private let spool: Spool
    private let name: FileName
    /// Whether it has a record, and its content's file a name; without them it is gone with the process.
    let isRecorded: Bool
    /// The record, whose lock stands for the upload; nil once closed.
    private var record: OpenFile?
    /// The content's file; nil where there is none.
    private(set) var data: OpenFile?
    /// Whether the content's file may have another name: one outside the spool, so that it must stay as it is, or
    /// one that says that its own may not survive a power cut.
    private(set) var mayBeShared = false
    /// Content that is in no file: nobody was told of it, and a request holds the upload.
    private var memory: [UInt8] = []
    /// The buffer that has received all content of an upload without a record.
    private(set) var buffer: ContentBuffer?
    /// Whether the newest state is in a slot that serves from the first promise on.
    private var usesPromisedSlots = false
    /// Whether the newest state may not be durable.
    private var isStateDirty = true
    /// Whether the first write of both of those failed half-way.
    private var areSlotsTorn = false
    /// What was written into the record since it was made durable; nil: nobody here knows.
    private var unsynced: [Range<Int64>]?
    /// Content that somebody else adds, while it does.
    private var loan: Loan?
    /// Up to where the kernel was asked to write content to the disk.
    private var writtenBack: Int64 = 0
    private var disk: Disk { spool.disk }
    private var layout: SpoolLayout { spool.layout }
    private var directory: Directory { layout.directory(of: name) }

    /// Takes a record that the caller has opened and locked, nil for an upload without one; `state` and
    /// `creationEnd` where it was just made.
    init(
        of id: UploadID,
        _ name: FileName,
        in spool: Spool,
        record: OpenFile?,
        state: RecordState = RecordState(),
        creationEnd: Int64 = 0
    ) {
        self.id = id
        self.spool = spool
        self.record = record
        isRecorded = record != nil
        self.state = state
        self.creationEnd = creationEnd
        self.name = name
        lastActivity = spool.clock.now
        if creationEnd > 0 { unsynced = [RecordSlots.early[0]..<creationEnd] }
    }

    /// The path of the content's file.
    var dataPath: String { directory.path(of: name.data) }

    // MARK: Opening and reading

    /// The record.
    func openRecord() throws(SystemError) -> OpenFile {
        if let record { return record }
        throw SystemError(
            call: "openat",
            subject: directory.path(of: name.record),
            errno: SystemError.gone
        )
    }

    /// Closes all, and with that gives up the kernel's locks; content in memory is gone.
    func close() {
        dropMemory()
        // Whoever has the file may write all of it yet.
        if let loan {
            spool.room.endLoan(of: left(of: loan), written: left(of: loan), isCertain: false)
        }
        loan = nil
        if !isRecorded { forget() }
        data = nil
        record = nil
    }

    /// Reads the record and opens the content.
    ///
    /// - Parameter status: what the file system knows of the record since it was locked.
    /// - Returns: what the upload was created with, and what of the record matters to what becomes of it;
    ///   an unreadable record as it is.
    /// - Throws: `.busy` where content may still come from somebody else.
    func read(
        _ status: FileStatus
    ) throws(SpoolError) -> Result<LoadedRecord, UnreadableRecord> {
        // A file system in user space need not tell the kernel what another host has written: what was cached
        // before the lock may be old.
        if spool.isShared { try? openRecord().descriptor.forgetCached() }
        let read = try spool.onDisk { () throws(SystemError) in
            try LoadedRecord.read(
                try openRecord(),
                of: id,
                size: status.size,
                knowing: spool.creations
            )
        }
        let found = try spool.onDisk { () throws(SystemError) -> FileStatus? in
            data = try layout.openData(name)
            if let data, try !data.tryLock() { return nil }
            if spool.isShared { data?.descriptor.forgetCached() }
            return try data?.status()
        }
        guard found != nil || data == nil else { throw .busy(id) }
        guard case .success(let loaded) = read else { return read }
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
        size = found?.size ?? state.sizeWithoutFile
        mayBeShared = found?.names ?? 0 > 1
        writtenBack = size
        lastActivity = max(status.modified, found?.modified ?? status.modified)
        return read
    }

    /// Reads the fields of the completing request; nil where none are kept, or they are damaged.
    func completion() throws(SpoolError) -> HTTPFields? {
        guard let extent = state.completion, let bytes = try bytes(of: extent) else { return nil }
        return HTTPFields(completionText: bytes, of: id)
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
        try spool.onDisk { () throws(SystemError) in
            try state.storedResponse(of: id, in: try openRecord())
        }
    }

    // MARK: Content

    /// Appends content.
    ///
    /// What nobody was told of stays in memory while there is little of it: most uploads are whole before
    /// a file would be of use.
    ///
    /// - Throws: where the disk does not take all of it; what it took counts in `size`.
    func append(_ bytes: RawSpan) throws(SpoolError) {
        let count = Int64(bytes.byteCount)
        let isSmall =
            isRecorded && data == nil && state.durable == nil && size + count <= Self.mostInMemory
        if isSmall, try spool.room.takeMemory(count) {
            // A slow client's content takes the room it has; what comes at once is not moved again.
            if memory.isEmpty, let length = state.length, length <= 2 * count {
                memory.reserveCapacity(Int(length))
            }
            bytes.withUnsafeBytes { memory += $0 }
            size += count
            lastActivity = spool.clock.now
            return
        }
        let data = try writableData()
        try extend(data, by: count) { size throws(SystemError) in
            try disk.write(bytes, to: data.descriptor, at: &size, subject: data.subject)
        }
        writeBack(data)
    }

    private func writeBack(_ data: OpenFile) {
        guard writesBackEarly, size - writtenBack >= Self.writeBackStep else { return }
        disk.beginWriteBack(data.descriptor, from: writtenBack, count: size - writtenBack)
        writtenBack = size
    }

    /// Appends all content of another upload.
    ///
    /// - Throws: where the disk does not take all of it; what it took counts in `size`.
    func append(contentOf part: UploadFiles) throws(SpoolError) {
        guard part.size > 0 else { return }
        let source = try part.openedData()
        let data = try writableData()
        try extend(data, by: part.size) { size throws(SystemError) in
            try disk.copy(
                source.descriptor,
                count: part.size,
                to: data.descriptor,
                at: &size,
                subject: data.subject
            )
        }
    }

    /// Makes the content's file longer by `count` bytes, which `write` puts behind the `size` it has; where it
    /// fails, by those that it moved `size` by.
    private func extend(
        _ data: OpenFile,
        by count: Int64,
        _ write: (_ size: inout Int64) throws(SystemError) -> Void
    ) throws(SpoolError) {
        try spool.room.take(count, isNamed: isRecorded)
        let end = size + count
        var reached = size
        defer {
            size = reached
            if isRecorded { spool.room.wasWritten(count) }
            lastActivity = spool.clock.now
        }
        do throws(SystemError) { try write(&reached) } catch {
            // In case the kernel left more than it said. If this fails too, the file has no bytes
            // but those the client sent, and the next lock counts them.
            try? disk.truncate(data, to: reached)
            spool.room.giveBack(end - reached, isNamed: isRecorded)
            throw spool.failure(error)
        }
    }

    /// The content's file, made where there is none, with what was in memory.
    @discardableResult
    func openedData() throws(SpoolError) -> OpenFile {
        if data == nil {
            guard isRecorded else { return try openedNameless() }
            data = try spool.onDisk { () throws(SystemError) in
                let made = try disk.create(name.data, in: directory)
                let data = OpenFile(made, name.data, in: directory)
                try data.descriptor.lock(subject: data.subject)
                return data
            }
        }
        guard let data else { throw .contradiction(id, reason: "its content has no file") }
        guard !memory.isEmpty else { return data }
        try spool.onDisk { () throws(SystemError) in try disk.write(memory, to: data, at: 0) }
        spool.room.giveBackMemory(Int64(memory.count), isStored: true)
        memory = []
        return data
    }

    /// The content's file, to be added to.
    @discardableResult
    private func writableData() throws(SpoolError) -> OpenFile {
        let data = try openedData()
        return mayBeShared ? try separate(data, keeping: size) : data
    }

    /// Gives the upload a file of its own with the first `count` bytes, if `data` has a name elsewhere.
    private func separate(
        _ data: OpenFile,
        keeping count: Int64
    ) throws(SpoolError) -> OpenFile {
        let status = try spool.onDisk { () throws(SystemError) in try data.status() }
        guard status.names > 1 else { return data }
        try spool.room.take(count)
        let copy: ContentCopy
        do throws(SystemError) {
            defer { spool.room.wasWritten(count) }
            copy = try ContentCopy(of: data, name, keeping: count, in: spool)
        } catch {
            spool.room.giveBack(count)
            throw spool.failure(error)
        }
        spool.room.giveBack(status.size)
        (self.data, size, mayBeShared) = (copy.file, count, true)
        try spool.onDisk { () throws(SystemError) in try copy.settle() }
        mayBeShared = false
        return copy.file
    }

    // MARK: Content without a record

    /// Keeps the buffer that has received all content.
    func keep(_ buffer: ContentBuffer) {
        self.buffer = buffer
        size = Int64(buffer.count)
    }

    /// Makes a nameless file, with what was in the buffer.
    private func openedNameless() throws(SpoolError) -> OpenFile {
        try spool.room.check(for: size, makesFile: true)
        let made = try spool.onDisk { () throws(SystemError) in
            let directory = layout.temporary
            if let nameless = try disk.createNameless(in: directory) {
                return OpenFile(nameless, "scratch", in: directory)
            }
            let name = TemporaryName.next()
            let file = OpenFile(try disk.create(name, in: directory), name, in: directory)
            try disk.unlink(name, in: directory)
            return file
        }
        data = made
        guard let buffer else { return made }
        self.buffer = nil
        defer { spool.buffers.put(buffer) }
        size = 0
        try buffer.withBytes { bytes throws(SpoolError) in try append(bytes) }
        return made
    }

    /// Calls `body` with a path by which another process of this user can open a nameless file; good until `body`
    /// returns.
    ///
    /// Where the file system cannot give the file a name, it leads over this process's descriptor.
    func withNamelessPath<R>(
        _ body: (String) throws(SpoolError) -> R
    ) throws(SpoolError) -> R {
        let file = try openedData()
        let name = TemporaryName.next()
        do throws(SystemError) {
            try disk.link(file.descriptor, as: name, in: layout.temporary)
        } catch {
            return try body("/proc/\(Directory.process)/fd/\(file.descriptor.number)")
        }
        // One that stays is removed with what is old there.
        defer { _ = try? disk.unlink(name, in: layout.temporary) }
        return try body(layout.temporary.path(of: name))
    }

    /// Gives back what an upload without a record has.
    private func forget() {
        if data != nil { spool.room.giveBack(size, isNamed: false) }
        if let buffer { spool.buffers.put(buffer) }
        buffer = nil
    }

    /// The content, where it is in memory and in no file.
    var contentInMemory: [UInt8]? { memory.isEmpty ? nil : memory }

    /// Reads content; the bytes read are less than asked only at its end.
    func read(
        into target: UnsafeMutableRawBufferPointer,
        at position: Int64
    ) throws(SpoolError) -> Int {
        if let buffer { return buffer.copy(from: Int(position), to: target) }
        if !memory.isEmpty {
            guard position < memory.count else { return 0 }
            let part = memory[Int(position)...].prefix(target.count)
            target.copyBytes(from: part)
            return part.count
        }
        guard let data else { return 0 }
        return try spool.onDisk { () throws(SystemError) in
            try data.descriptor.read(into: target, at: position, subject: data.subject)
        }
    }

    /// Cuts the content to its first `size` bytes.
    func truncate(to size: Int64) throws(SpoolError) {
        if let data {
            // A delivery of this process may have given it another name since it was opened.
            let own = try separate(data, keeping: size)
            try spool.onDisk { () throws(SystemError) in try disk.truncate(own, to: size) }
        }
        if memory.isEmpty {
            spool.room.giveBack(self.size - size)
        } else {
            let count = memory.count - Int(size)
            memory.removeLast(count)
            spool.room.giveBackMemory(Int64(count), isStored: false)
        }
        self.size = size
        writtenBack = min(writtenBack, size)
    }

    private func dropMemory() {
        guard !memory.isEmpty else { return }
        spool.room.giveBackMemory(Int64(memory.count), isStored: false)
        memory = []
    }

    // MARK: Content that somebody else adds

    /// Content that somebody else adds.
    private struct Loan {
        /// The size before.
        let start: Int64
        /// Bytes that may be added, for which there is room.
        var taken: Int64
    }

    /// Bytes that somebody else may add in all; nil: nobody has the file.
    var lent: Int64? { loan?.taken }

    /// Bytes of a loan that were not reported as added.
    private func left(of loan: Loan) -> Int64 { loan.start + loan.taken - size }

    /// Opens the content's file for somebody else who adds content to its end.
    ///
    /// The lock of that opening stands for the content from now on: whoever dies, nobody else touches it before
    /// the other is done. Nothing may be appended here until `takeBack`.
    ///
    /// - Parameter count: the most bytes that may be added; `lent` says how many, at least one.
    /// - Returns: the file.
    /// - Throws: where there is no room at all; nothing is lent then.
    func lend(upTo count: Int64) throws(SpoolError) -> Descriptor {
        try writableData()
        let taken = try spool.room.lend(upTo: count)
        do throws(SpoolError) {
            let lent = try openForLending()
            loan = Loan(start: size, taken: taken)
            return lent
        } catch {
            spool.room.endLoan(of: taken, written: 0)
            throw error
        }
    }

    private func openForLending() throws(SpoolError) -> Descriptor {
        do throws(SystemError) {
            if let lent = try directory.openForAppending(name.data),
                let kept = try OpenFile.open(name.data, in: directory, forWriting: false)
            {
                // The record's lock keeps others away between the two.
                data = kept
                if try lent.tryLock(subject: kept.subject) { return lent }
            }
        } catch {
            throw spool.failure(error)
        }
        throw .contradiction(id, reason: "its content is not its own")
    }

    /// Lets up to `count` bytes more be added, at least one.
    func lendMore(upTo count: Int64) throws(SpoolError) {
        guard loan != nil else { throw .contradiction(id, reason: "its content is not lent") }
        loan?.taken += try spool.room.lend(upTo: count)
    }

    /// Notes that so many bytes were added in all; no more count than may be, and than there are.
    func noteAdded(_ count: Int64) throws(SpoolError) {
        guard let loan, let data else { return }
        let found = try spool.onDisk { () throws(SystemError) in try data.status().size }
        let before = size
        try checkNotCut(found)
        size = max(size, min(loan.start + min(count, loan.taken), found))
        spool.room.endLoan(of: size - before, written: size - before)
        lastActivity = spool.clock.now
        writeBack(data)
    }

    /// Refuses content that somebody has shortened while it was lent: what a client was told of it is gone.
    private func checkNotCut(_ found: Int64) throws(SpoolError) {
        guard found >= size else {
            throw .disk(SystemError(call: "fstat", subject: dataPath, errno: SystemError.lost))
        }
    }

    /// Whether bytes were added of which nothing was noted.
    var hasGrown: Bool {
        guard loan != nil, let found = try? data?.status().size else { return false }
        return found > size
    }

    /// Takes the content back once nobody else can add to it any more.
    ///
    /// - Parameters:
    ///   - count: bytes that were added in all; nil: as many as there are.
    ///   - deadline: until when the other is waited for.
    /// - Returns: false where it is not done by then.
    /// - Throws: `.disk`.
    func takeBack(_ count: Int64?, until deadline: Deadline) throws(SpoolError) -> Bool {
        guard let loan else { return true }
        let data = try spool.onDisk { () throws(SystemError) in try layout.openData(name) }
        guard let data else { throw .contradiction(id, reason: "its content has no file") }
        while try !spool.onDisk({ () throws(SystemError) in try data.tryLock() }) {
            // The kernel tells nobody when a lock comes free.
            guard !deadline.hasPassed else { return false }
            Thread.pause(.milliseconds(2))
        }
        self.data = data
        let found = try spool.onDisk { () throws(SystemError) in try data.status().size }
        try checkNotCut(found)
        let most = loan.start + min(count ?? loan.taken, loan.taken)
        let (before, lent) = (size, left(of: loan))
        size = min(found, most)
        self.loan = nil
        spool.room.endLoan(of: lent, written: size - before)
        lastActivity = spool.clock.now
        if found > size {
            try spool.onDisk { () throws(SystemError) in try disk.truncate(data, to: size) }
        }
        return true
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
            if durably { try syncRecord() }
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
        if usesPromisedSlots, unsynced == nil { try syncRecord() }
        next.sequence = state.sequence + (usesPromisedSlots && isStateDirty ? 2 : 1)
        next.writer = spool.writer
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
                let start = try? openRecord().bytes(at: 0, count: RecordSlots.size)
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
        state = next
        isStateDirty = true
        lastActivity = spool.clock.now
    }

    private func write(_ bytes: [UInt8], at position: Int64) throws(SpoolError) {
        isRecordDirty = true
        unsynced?.append(position..<position + Int64(bytes.count))
        try spool.onDisk { () throws(SystemError) in
            try disk.write(bytes, to: try openRecord(), at: position)
        }
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
            try disk.createEmpty(QueueName(time, id).text, in: layout.queue)
            // A daemon that does not end in good order is known by its file, and the names are made again.
            if !spool.isDaemon { try disk.syncDirectory(layout.queue) }
        }
    }

    private func removeName(_ time: WallTime) throws(SpoolError) {
        try spool.onDisk { () throws(SystemError) in
            _ = try disk.unlink(QueueName(time, id).text, in: layout.queue)
        }
    }

    /// Makes the name in `queue` that the state needs, if a power failure has removed it.
    func restoreName() throws(SpoolError) {
        if let time = state.queueTime { try makeName(time) }
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
                for part in unsynced ?? ofNewestState { try? disk.writeAgain(part, of: record) }
                // What another process made durable is in doubt while it is written again: not for longer than
                // needed.
                if unsynced == nil { try? disk.sync(record) }
                throw error
            }
        }
        noteSync()
        spool.syncedStates.note(id, state.sequence)
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

    private func noteSync() { (isRecordDirty, isStateDirty, unsynced) = (false, false, []) }

    /// Whether the names of record and content may not be durable.
    var areNamesInDoubt: Bool { state.durable ?? 0 == 0 || mayBeShared }

    /// Makes the names of record and content durable.
    func syncNames() throws(SpoolError) {
        try spool.onDisk { () throws(SystemError) in try disk.syncDirectory(directory) }
    }

    // MARK: Removing

    /// Moves the record to `corrupt`; the content stays where it is.
    func setAside() throws(SpoolError) {
        try spool.setAside(name)
        spool.room.giveBackUpload(of: nil, isFinished: true)
    }

    /// Removes the upload: first the record, so that nothing half is ever found, then the content.
    ///
    /// - Parameters:
    ///   - client: whose it is; nil: nobody knows.
    ///   - durably: whether no power cut brings it back once this returns.
    /// - Throws: `.disk` where a part of it is there still or may come back.
    func remove(of client: ClientName?, durably: Bool = false) throws(SpoolError) {
        try spool.onDisk { () throws(SystemError) in
            try removeRecord(of: client)
            _ = try removeData()
            // One directory keeps a first part of its changes, in order: no content goes before its record.
            if durably { try disk.syncDirectory(directory) }
        }
    }

    /// Removes the record, and with it the upload, and the name in the queue.
    func removeRecord(of client: ClientName?) throws(SystemError) {
        let size = try openRecord().status().size
        try disk.unlink(name.record, in: directory)
        spool.creations.forget(id)
        spool.syncedStates.forget(id)
        spool.room.giveBackUpload(of: client, isFinished: state.queue == .delivered)
        spool.room.giveBackRecord(size)
        if let time = state.queueTime {
            try? removeName(time)
        }
    }

    /// Removes the content, if there is any, and closes it; returns whether its name was there.
    @discardableResult
    func removeData() throws(SystemError) -> Bool {
        dropMemory()
        guard let data else { return false }
        defer { self.data = nil }
        let size = try data.status().size
        let isRemoved = try disk.unlink(name.data, in: directory)
        if isRemoved { spool.room.giveBack(size) }
        return isRemoved
    }

    // MARK: Making legal

    /// Makes the files legal again that a crash or a power cut has left.
    ///
    /// - Parameter record: what `read(_:)` gave.
    /// - Returns: what was done.
    /// - Throws: `.corrupt` after setting an upload aside.
    func repair(_ record: LoadedRecord) throws(SpoolError) -> Repair {
        let isForeign = state.writer != spool.writer
        let fault = isForeign ? try believeOlderState() : nil
        let repair = Repair(
            state: state,
            dataSize: data == nil ? nil : size,
            responseFault: fault,
            isForeign: isForeign,
            isSlotDamaged: record.isSlotDamaged,
            isConcatenation: record.creation.kind.isFinal
        )
        // A file system may keep the state and lose the name that was made before it (btrfs). Before the state is
        // written anew: after that nothing shows that the name may be missing.
        if isForeign, repair.keepsUpload { try restoreName() }
        try apply(repair, record.creation)
        // Who cut content back, or found that it need not be, answers for what comes after.
        if isForeign, state.writer != spool.writer, [.incoming, .deferred].contains(state.queue),
            repair != .forget
        {
            // Its last writer may live, and must not take for its own what comes now.
            try write(durably: spool.isShared) { _ in }
        }
        return repair
    }

    /// Goes back to the state before, where a power cut has kept the newest one and not what it points to.
    ///
    /// - Returns: why a part of the record cannot be read that still counts; nil: it can.
    private func believeOlderState() throws(SpoolError) -> UnreadableRecord? {
        guard let fault = try partFault() else { return nil }
        let older = try spool.onDisk { () throws(SystemError) in
            try LoadedRecord.state(before: state, in: try openRecord(), of: id)
        }
        guard var older else { return fault }
        // What is written next takes the place of the newest one.
        (older.sequence, isStateDirty) = (state.sequence, true)
        state = older
        if data == nil { size = state.sizeWithoutFile }
        return try partFault()
    }

    private func partFault() throws(SpoolError) -> UnreadableRecord? {
        if state.queue == .delivered {
            guard case .failure(let fault) = try response() else { return nil }
            guard fault.kind != .newer else { throw .newer(id, reason: fault.reason) }
            return fault
        }
        guard state.completion != nil, try completion() == nil else { return nil }
        return UnreadableRecord(reason: "the completing request is damaged")
    }

    private func apply(_ repair: Repair, _ creation: UploadCreation) throws(SpoolError) {
        switch repair {
        case .keep: return
        case .cutBack(let size):
            try truncate(to: size)
            if state.verified != nil { try write { $0.verified = nil } }
        case .receiveAgain(let size):
            try truncate(to: size)
            try write { $0.receiveAgain() }
        case .retry:
            // Its client heard of no failure: it is the queue's to repeat.
            try write { state in
                state.go(to: .deferred, Repair.interrupted)
                state.next = spool.clock.now
            }
        case .hold:
            // What nobody was told of was on its way into its file.
            if size != state.length { try truncate(to: 0) }
            try write { state in
                state.go(to: .hold, Repair.outcomeUnknown)
                state.cause = .indeterminate
            }
        case .removeContent:
            // Who wrote that may have died before it was durable.
            if state.durable != nil, isRecordDirty { try syncRecord() }
            try spool.onDisk { () throws(SystemError) in _ = try removeData() }
            size = state.length ?? size
        case .forget:
            try remove(of: creation.client)
        case .setAside(let reason):
            try setAside()
            throw .corrupt(id, reason: reason)
        }
    }

    // MARK: Looking

    /// Whether nothing has changed since the upload was looked at; the creation never does.
    func isUnchanged(since earlier: UploadSummary) throws(SystemError) -> Bool {
        let record = try openRecord()
        let status = try record.status()
        let data = try layout.openData(name)
        if let data, try !data.tryLock() { return false }
        self.data = data
        let found = try data?.status()
        let read = try LoadedRecord.read(record, of: id, knowing: nil)
        if let loaded = try? read.get() { state = loaded.state }
        let now = UploadSummary(
            id: id,
            try? read.get(),
            status: status,
            data: found,
            isInUse: earlier.isInUse
        )
        return (now.queue, now.offset, now.lastActivity, now.sequence)
            == (earlier.queue, earlier.offset, earlier.lastActivity, earlier.sequence)
    }

    /// Has the last activity be now.
    func touch() throws(SystemError) {
        for file in [try layout.openData(name), try openRecord()].compactMap({ $0 }) {
            try disk.touch(file.descriptor, subject: file.subject)
        }
    }
}
