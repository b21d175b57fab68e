// The content of one upload: in memory, in its file, or on its way there from somebody else.
//
// Invariant: `size` bytes of content are there, and nobody outside the spool sees any of them change.

package import SpoolgatePosix
import SpoolgateUploadProtocol

/// The content of one upload.
///
/// Used by one thread; the kernel's lock goes with the last reference, or with `close()`.
package final class ContentFile {
    /// Bytes of content of one upload that may stay in memory.
    private static let mostInMemory = 256 << 10
    /// Bytes of content between two begins of writing it to the disk.
    private static let writeBackStep: Int64 = 2 << 20

    /// Bytes of content, as far as they count; the length where none are left.
    var size: Int64 = 0
    /// Whether it is on its way to the disk while it comes.
    var writesBackEarly = false
    /// The file; nil where there is none.
    var data: OpenFile?
    /// Whether the file may have another name: one outside the spool, so that it must stay as it is, or
    /// one that says that its own may not survive a power cut.
    private(set) var mayBeShared = false
    /// Content that is in no file: nobody was told of it, and a request holds the upload.
    private var memory: [UInt8] = []
    /// The buffer that has received all content of an upload without a record; nil where that is in a file.
    package private(set) var buffer: ContentBuffer?
    /// Content that somebody else adds, while it does.
    var loan: Loan?
    /// Up to where the kernel was asked to write content to the disk.
    private var writtenBack: Int64 = 0
    let spool: Spool
    let record: RecordFile
    let name: FileName
    var id: UploadID { record.id }
    /// Whether its file has a name: without a record it has none.
    private var isNamed: Bool { record.isThere }
    var disk: Disk { spool.disk }
    var layout: SpoolLayout { spool.layout }
    var directory: Directory { layout.directory(of: name) }

    /// Content that somebody else adds.
    struct Loan {
        /// The size before.
        let start: Int64
        /// Bytes that may be added, for which there is room.
        var taken: Int64
    }

    /// None yet, of an upload with this record.
    init(of record: RecordFile, _ name: FileName, in spool: Spool) {
        self.record = record
        self.name = name
        self.spool = spool
    }

    /// The path of the file.
    var path: String { directory.path(of: name.data) }

    /// Closes all, and with that gives up the kernel's lock; content in memory is gone.
    func close() {
        dropMemory()
        // Whoever has the file may write all of it yet.
        if let loan {
            spool.room.endLoan(of: left(of: loan), written: left(of: loan), isCertain: false)
        }
        loan = nil
        if !isNamed { forget() }
        data = nil
    }

    /// Opens and locks the file; nil where there is none.
    ///
    /// - Throws: `.busy` where content may still come from somebody else.
    func open() throws(SpoolError) -> FileStatus? {
        guard try spool.onDisk({ () throws(SystemError) in try tryOpen() }) else {
            throw .busy(id)
        }
        if spool.isShared { data?.descriptor.forgetCached() }
        return try spool.onDisk { () throws(SystemError) in try data?.status() }
    }

    /// Opens and locks the file, if there is one; false where somebody has it.
    func tryOpen() throws(SystemError) -> Bool {
        let data = try layout.openData(name)
        if let data, try !data.tryLock() { return false }
        self.data = data
        return true
    }

    /// Takes what `open()` found for the content, as far as the record lets it count.
    func believe(_ found: FileStatus?) {
        size = found?.size ?? record.state.sizeWithoutFile
        mayBeShared = found?.names ?? 0 > 1
        writtenBack = size
        if let found { record.lastActivity = max(record.lastActivity, found.modified) }
    }

    /// Has the content be gone that has no file, whatever was counted.
    func forgetWithoutFile() { if data == nil { size = record.state.sizeWithoutFile } }

    // MARK: Receiving

    /// Appends content.
    ///
    /// What nobody was told of stays in memory while there is little of it: most uploads are whole before
    /// a file would be of use.
    ///
    /// - Throws: where the disk does not take all of it; what it took counts in `size`.
    func append(_ bytes: RawSpan) throws(SpoolError) {
        let count = Int64(bytes.byteCount)
        let isSmall =
            isNamed && data == nil && record.state.durable == nil
            && size + count <= Self.mostInMemory
        if isSmall, try spool.room.takeMemory(count) {
            // A slow client's content takes the room it has; what comes at once is not moved again.
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

    /// Appends all content of another upload.
    ///
    /// - Throws: where the disk does not take all of it; what it took counts in `size`.
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

    /// Makes the content's file longer by `count` bytes, which `write` puts behind the `size` it has; where it
    /// fails, by those that it moved `size` by.
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
            // In case the kernel left more than it said. If this fails too, the file has no bytes
            // but those the client sent, and the next lock counts them.
            try? disk.truncate(data, to: reached)
            spool.room.giveBack(end - reached, isNamed: isNamed)
            throw spool.failure(error)
        }
    }

    /// The content's file, made where there is none, with what was in memory.
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
        try spool.onDisk { () throws(SystemError) in try disk.write(memory, to: data, at: 0) }
        spool.room.giveBackMemory(Int64(memory.count), isStored: true)
        memory = []
        return data
    }

    /// The content's file, to be added to.
    @discardableResult
    func writableData() throws(SpoolError) -> OpenFile {
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

    /// All of it, where it is in memory and in no file; stays what it is when it is stored.
    package var inMemory: [UInt8]? { memory.isEmpty ? nil : memory }

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

    /// Removes the file, if there is any, and closes it; returns whether its name was there.
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
