// The content of one upload: in memory, in its data file, or being written there by the web server.
//
// Invariant: `size` bytes of content exist, and they never change for a process outside the spool.

package import SpoolgatePosix
import SpoolgateUploadProtocol

/// The content of one upload.
///
/// Used by one thread. The last reference, or `close()`, releases the kernel's lock.
package final class ContentFile {
    /// The maximum number of bytes of one upload that stay in memory.
    private static let mostInMemory = 256 << 10
    /// The number of bytes after which the kernel is asked to write content to the disk.
    private static let writeBackStep: Int64 = 2 << 20

    /// The number of bytes of content that count; for removed content, the length.
    var size: Int64 = 0
    /// Whether the kernel starts to write content to the disk while more arrives.
    var writesBackEarly = false
    /// The data file; nil if there is none.
    var data: OpenFile?
    /// Whether the file may have another name.
    ///
    /// Such a name is outside the spool, so that the file must not change, or shows that its own name may not be
    /// durable.
    private(set) var mayBeShared = false
    /// Content that is in no file: its offset was not acknowledged, and a request holds the lock.
    private var memory: [UInt8] = []
    /// The buffer with all content of an upload without a record; nil if a file has the content.
    package private(set) var buffer: ContentBuffer?
    /// The current loan to the web server.
    var loan: Loan?
    /// The offset up to which the kernel was asked to write content to the disk.
    private var writtenBack: Int64 = 0
    let spool: Spool
    let record: RecordFile
    let name: FileName
    var id: UploadID { record.id }
    private var isNamed: Bool { record.isThere }
    var disk: Disk { spool.disk }
    var layout: SpoolLayout { spool.layout }
    var directory: Directory { layout.directory(of: name) }

    /// Content that the web server adds.
    struct Loan {
        /// The size before the loan.
        let start: Int64
        /// The number of bytes that may be added, for which room was taken.
        var taken: Int64
    }

    init(of record: RecordFile, _ name: FileName, in spool: Spool) {
        self.record = record
        self.name = name
        self.spool = spool
    }

    var path: String { directory.path(of: name.data) }

    /// Drops content in memory, closes the file and releases the kernel's lock.
    func close() {
        dropMemory()
        // The web server may still write as many bytes.
        if let loan {
            spool.room.endLoan(of: left(of: loan), written: left(of: loan), isCertain: false)
        }
        loan = nil
        if !isNamed { forget() }
        data = nil
    }

    /// Opens and locks the data file; nil if it is missing.
    ///
    /// - Throws: `.busy` if the web server may still write content.
    func open() throws(SpoolError) -> FileStatus? {
        guard try spool.onDisk({ () throws(SystemError) in try tryOpen() }) else {
            throw .busy(id)
        }
        if spool.isShared { data?.descriptor.forgetCached() }
        return try spool.onDisk { () throws(SystemError) in try data?.status() }
    }

    /// Opens and locks the data file, if there is one; false if another process has locked it.
    func tryOpen() throws(SystemError) -> Bool {
        let data = try layout.openData(name)
        if let data, try !data.tryLock() { return false }
        self.data = data
        return true
    }

    /// Takes over the status from `open()`, as far as the record allows.
    func believe(_ found: FileStatus?) {
        size = found?.size ?? record.state.sizeWithoutFile
        mayBeShared = found?.names ?? 0 > 1
        writtenBack = size
        if let found { record.lastActivity = max(record.lastActivity, found.modified) }
    }

    /// Corrects the size after the state was changed, if there is no data file.
    func forgetWithoutFile() { if data == nil { size = record.state.sizeWithoutFile } }

    // MARK: Receiving

    /// Appends content.
    ///
    /// Content without an acknowledged offset stays in memory while it is small: most uploads are complete before they
    /// need a file.
    ///
    /// - Throws: if the disk does not accept everything; `size` includes the bytes written.
    func append(_ bytes: RawSpan) throws(SpoolError) {
        let count = Int64(bytes.byteCount)
        let isSmall =
            isNamed && data == nil && record.state.durable == nil
            && size + count <= Self.mostInMemory
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

    /// Appends all content of another upload.
    ///
    /// - Throws: as `append(_:)`.
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

    /// Extends the data file by `count` bytes, which `write` writes at `size`; if it fails, by as many as it advanced
    /// `size`.
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

    /// Returns the data file with all content from memory; creates it if it is missing.
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

    /// Returns the data file for appending.
    @discardableResult
    func writableData() throws(SpoolError) -> OpenFile {
        let data = try openedData()
        return mayBeShared ? try separate(data, keeping: size) : data
    }

    /// Gives the upload its own file with the first `count` bytes if `data` has another name.
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

    /// Creates a nameless file with the content of the buffer.
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

    /// Calls `body` with a path of the nameless file for other processes of this user, valid until `body` returns.
    ///
    /// If the file system cannot give it a name, the path refers to this process's descriptor.
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

    /// Releases the resources of an upload without a record.
    private func forget() {
        if data != nil { spool.room.giveBack(size, isNamed: false) }
        if let buffer { spool.buffers.put(buffer) }
        buffer = nil
    }

    /// All content if it is only in memory; storing it does not change the returned value.
    package var inMemory: [UInt8]? { memory.isEmpty ? nil : memory }

    /// Reads content; returns fewer bytes than requested only at its end.
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

    /// Truncates the content to `size` bytes.
    func truncate(to size: Int64) throws(SpoolError) {
        if let data {
            // A delivery of this process may have given the file another name.
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

    /// Removes and closes the data file, if any; returns whether its name existed.
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
