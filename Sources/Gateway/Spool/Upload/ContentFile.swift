// The content of one upload: in memory, in its data file, or being written there by the web server.
//
// Invariant: `size` bytes of content exist, and they never change for a process outside the spool.

package import SpoolgatePosix
import SpoolgateUploadProtocol

/// The content of one upload.
///
/// Used by one thread. The last reference, or `close()`, releases the kernel's lock.
package final class ContentFile {
    /// The maximum number of bytes of one upload's content that stay in memory.
    private static let maximumInMemory = 256 << 10
    /// The number of new bytes after which the kernel is asked to write them.
    private static let writeBackStep: Int64 = 2 << 20

    /// The number of bytes of content, excluding those to be discarded; if the content was removed, its former length.
    var size: Int64 = 0
    /// Whether content is written to the disk while more is received.
    var writesBackEarly = false
    /// The data file, or nil if it is missing or not open.
    var data: OpenFile?
    /// Whether the data file may have another name.
    ///
    /// A file with a name outside the spool must not be changed; if the other name is in `tmp`, the file's own name may
    /// not be durable.
    private(set) var mayBeShared = false
    /// Content that is in no file yet and whose offset has not been acknowledged.
    private var memory: [UInt8] = []
    /// The content of an upload without a record, or nil if the content is in a file.
    package private(set) var buffer: ContentBuffer?
    /// The web server's loan, or nil if the web server may not write content.
    var loan: Loan?
    /// The offset up to which the kernel was asked to write content.
    private var writtenBack: Int64 = 0
    let spool: Spool
    let record: RecordFile
    let name: FileName
    var id: UploadID { record.id }
    private var isNamed: Bool { record.isThere }
    var disk: Disk { spool.disk }
    var layout: SpoolLayout { spool.layout }
    var directory: Directory { layout.directory(of: name) }

    /// The web server's permission to append content to the data file.
    struct Loan {
        /// The size of the content when the loan began.
        let start: Int64
        /// The number of bytes that may be added; their space is reserved.
        var taken: Int64
    }

    init(of record: RecordFile) {
        self.record = record
        name = record.name
        spool = record.spool
    }

    var path: String { directory.path(of: name.data) }

    /// Discards content that is only in memory, and closes the data file, which releases the kernel's lock on it.
    func close() {
        dropMemory()
        // The web server may still write the rest of the loan.
        if let loan {
            spool.room.endLoan(of: left(of: loan), written: left(of: loan), isCertain: false)
        }
        loan = nil
        if !isNamed { forget() }
        data = nil
    }

    /// Opens and locks the data file; returns its status, or nil if it is missing.
    ///
    /// - Throws: `.busy` if another process, such as nginx, may still be writing content.
    func open() throws(SpoolError) -> FileStatus? {
        guard try spool.reporting(tryOpen()) else {
            throw .busy(id)
        }
        if spool.isShared { data?.descriptor.forgetCached() }
        return try spool.reporting(data?.status())
    }

    /// Opens and locks the data file, or returns false if another process has locked it.
    func tryOpen() throws(SystemError) -> Bool {
        let data = try layout.openData(name)
        if let data, try !data.tryLock() { return false }
        self.data = data
        return true
    }

    /// Adopts the size and modification time in `found`, the opened file's status; nil if the file is missing.
    func trust(_ found: FileStatus?) {
        size = found?.size ?? record.state.sizeWithoutFile
        mayBeShared = found?.names ?? 0 > 1
        writtenBack = size
        if let found { record.lastActivity = max(record.lastActivity, found.modified) }
    }

    /// Corrects the size after a change of the state, unless a data file is open.
    func forgetWithoutFile() { if data == nil { size = record.state.sizeWithoutFile } }

    // MARK: Receiving

    /// Appends content.
    ///
    /// Before an offset is acknowledged, small content stays in memory, because most uploads are complete before they
    /// need a file.
    ///
    /// - Throws: an error if not all bytes could be written; `size` includes the bytes that were written.
    func append(_ bytes: RawSpan) throws(SpoolError) {
        let count = Int64(bytes.byteCount)
        let isSmall =
            isNamed && data == nil && record.state.durable == nil
            && size + count <= Self.maximumInMemory
        if isSmall, try spool.room.takeMemory(count) {
            // Avoids copying fast content later; a slow client's content only takes the memory it needs.
            if memory.isEmpty, let length = record.state.length, length <= 2 * count {
                memory.reserveCapacity(Int(length))
            }
            bytes.withUnsafeBytes { memory += $0 }
            size += count
            record.lastActivity = spool.clock.now
            return
        }
        let data = try writableData()
        try extend(data, by: count) { size throws(SystemError) in
            try disk.write(bytes, to: data.descriptor, at: &size, subject: data.subject)
        }
        writeBack(data)
    }

    func writeBack(_ data: OpenFile) {
        guard writesBackEarly, size - writtenBack >= Self.writeBackStep else { return }
        disk.beginWriteBack(data.descriptor, from: writtenBack, count: size - writtenBack)
        writtenBack = size
    }

    func append(contentOf part: ContentFile) throws(SpoolError) {
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

    /// Extends the data file by `count` bytes.
    ///
    /// `write` must write the bytes from the offset `size` on, and advance `size` even if it throws, because the file
    /// keeps the bytes already written.
    private func extend(
        _ data: OpenFile,
        by count: Int64,
        _ write: (_ size: inout Int64) throws(SystemError) -> Void
    ) throws(SpoolError) {
        try spool.room.take(count, isNamed: isNamed)
        let end = size + count
        var reached = size
        defer {
            size = reached
            if isNamed { spool.room.wasWritten(count) }
            record.lastActivity = spool.clock.now
        }
        do throws(SystemError) { try write(&reached) } catch {
            // The kernel may have written more than it reported. If truncating fails too, the next lock counts these
            // bytes, which the client has sent.
            try? disk.truncate(data, to: reached)
            spool.room.giveBack(end - reached, isNamed: isNamed)
            throw spool.failure(error)
        }
    }

    /// Returns the data file after moving content from memory to it; creates a missing file.
    @discardableResult
    func openedData() throws(SpoolError) -> OpenFile {
        if data == nil {
            guard isNamed else { return try openedNameless() }
            data = try spool.onDisk { () throws(SystemError) in
                let made = try disk.create(name.data, in: directory)
                let data = OpenFile(made, name.data, in: directory)
                try data.descriptor.lock(subject: data.subject)
                return data
            }
        }
        guard let data else { throw .contradiction(id, reason: "its data file is missing") }
        guard !memory.isEmpty else { return data }
        try spool.reporting(disk.write(memory, to: data, at: 0))
        spool.room.giveBackMemory(Int64(memory.count), isStored: true)
        memory = []
        return data
    }

    /// Returns the data file for appending, replaced by a copy if it had another name.
    @discardableResult
    func writableData() throws(SpoolError) -> OpenFile {
        let data = try openedData()
        return mayBeShared ? try separate(data, keeping: size) : data
    }

    /// Replaces a data file that has another name by a copy of its first `count` bytes.
    private func separate(
        _ data: OpenFile,
        keeping count: Int64
    ) throws(SpoolError) -> OpenFile {
        let status = try spool.reporting(data.status())
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
        try spool.reporting(copy.settle())
        mayBeShared = false
        return copy.file
    }

    // MARK: Content without a record

    /// Takes over `buffer`, which must have all content of an upload without a record.
    func keep(_ buffer: ContentBuffer) {
        self.buffer = buffer
        size = Int64(buffer.count)
    }

    /// Moves the buffer's content to a new file without a name.
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

    /// Calls `body` with a path by which other processes of this user can open the nameless file until `body` returns.
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
        // A name that remains is removed with other old files.
        defer { _ = try? disk.unlink(name, in: layout.temporary) }
        return try body(layout.temporary.path(of: name))
    }

    private func forget() {
        if data != nil { spool.room.giveBack(size, isNamed: false) }
        if let buffer { spool.buffers.put(buffer) }
        buffer = nil
    }

    /// All content if it is in memory, otherwise nil.
    package var inMemory: [UInt8]? { memory.isEmpty ? nil : memory }

    /// Reads content into `target`.
    ///
    /// Returns the number of bytes read, which is smaller than `target` only at the content's end.
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

    func truncate(to size: Int64) throws(SpoolError) {
        if let data {
            // A delivery of this process may have given the file another name.
            let own = try separate(data, keeping: size)
            try spool.reporting(disk.truncate(own, to: size))
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

    /// Closes and removes any data file; returns whether a file was removed.
    @discardableResult
    func remove() throws(SystemError) -> Bool {
        dropMemory()
        guard let data else { return false }
        defer { self.data = nil }
        let size = try data.status().size
        let isRemoved = try disk.unlink(name.data, in: directory)
        if isRemoved { spool.room.giveBack(size) }
        return isRemoved
    }
}

// MARK: Buffers

// Reused buffers that receive content.

/// A pool of unused buffers, which saves the kernel from mapping new memory for each upload.
package final class BufferPool: Sendable {
    /// The size of a buffer in bytes, and so the most that is written at once.
    private static let capacity = 1 << 20
    private static let maximum = 16

    /// An unused buffer in the pool.
    ///
    /// Safe to pass between threads, because the buffer is used only outside the pool and its last user kept no
    /// reference.
    private struct Parked: @unchecked Sendable {
        let buffer: ContentBuffer
    }

    private let parked = Monitor<[Parked]>([])

    /// Calls `body` with a buffer that `body` may use until it returns; throws `.exhausted` if there is no memory for a
    /// buffer.
    package func withBuffer<R>(
        _ body: (ContentBuffer) throws(SpoolError) -> R
    ) throws(SpoolError) -> R {
        let buffer = try take()
        defer { put(buffer) }
        return try body(buffer)
    }

    /// Takes an empty buffer out of the pool, or creates one; throws `.exhausted` if there is no memory for it.
    package func take() throws(SpoolError) -> ContentBuffer {
        if let parked = parked.update({ $0.popLast() }) { return parked.buffer }
        do throws(SystemError) { return try ContentBuffer(capacity: Self.capacity) } catch {
            throw .exhausted(error)
        }
    }

    /// Returns a buffer that is no longer used to the pool.
    package func put(_ buffer: ContentBuffer) {
        buffer.removeAll()
        let buffer = Parked(buffer: buffer)
        parked.update { parked in
            if parked.count < Self.maximum { parked.append(buffer) }
        }
    }
}
