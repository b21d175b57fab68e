// The spool on disk: opens the directory, creates uploads and finds them.
//
// See spoolgate-spool(5) for the directories, the files and every state that a crash can leave. Invariant: the files of
// an upload change only under the lock on its record.

package import SpoolgatePosix
package import SpoolgateUploadProtocol

/// How a process uses a spool.
package struct SpoolOptions {
    /// The number of bytes that must stay free on the file system.
    package var reserve: Int64 = 0
    /// The maximum size of the spool in bytes, or nil for no limit.
    package var quota: Int64?
    /// The calls that change the disk.
    package var disk = Disk()
    package var clock = SystemClock()
    /// The node of this process if several hosts share the spool, or nil if the spool belongs to this host.
    package var node: String?
    /// The name of this process in states, or nil for the running kernel or, in a shared spool, this process of its
    /// node.
    package var writer: String?
    /// Runs a sync on another thread while more content is received.
    ///
    /// More than 64 threads would only wait for the same disk.
    package var runInBackground: HelperThreads.Run = HelperThreads(name: "sync", maximum: 64).run
    /// How long a file of a shared spool can still grow after the crash of the host that has written it.
    package var settling = Duration.seconds(5)
}

/// A spool directory.
///
/// Thread-safe; several processes may use the same directory.
package final class Spool: Sendable {
    package let directory: String

    /// The name of this process's node in a shared spool, otherwise nil.
    package let node: String?

    let layout: SpoolLayout
    let disk: Disk
    let room: SpoolRoom
    package let clock: SpoolClock
    /// The name under which this process writes states; see `Writer`.
    let writer: String
    let locks = UploadLocks()
    let daemons = Daemons()
    let fence = Fence()
    let creations = CreationCache()
    /// The uploads whose files another host may have left too short.
    let settling: SettlingUploads
    let syncedStates = SyncedStates()
    let undurable = UndurableUploads()
    /// Whether this process may remove uploads that a power failure has made worthless; false for commands.
    let isRecovering: Bool
    /// Runs a sync on another thread while more content is received.
    let runInBackground: HelperThreads.Run
    package let buffers = BufferPool()

    /// Opens a spool and creates its directories on first use.
    ///
    /// The parent of `directory` must exist. `setOptions` can change the options. If a quota is set, all files are
    /// counted before this initialiser returns.
    ///
    /// - Throws: `.unusable` if the directory is not a spool, has another format, or other users can access it; `.disk`
    ///   if its file system is read-only; `.bootUnknown` if the kernel's boot identity cannot be read.
    package convenience init(
        directory: String,
        _ setOptions: (inout SpoolOptions) -> Void = { _ in }
    ) throws(SpoolError) {
        var options = SpoolOptions()
        setOptions(&options)
        try self.init(directory, options, isRecovering: true)
        if options.quota != nil {
            do throws(SystemError) {
                try room.count { () throws(SystemError) in try layout.census(readingRecords: false)
                }
            } catch {
                throw .unusable(directory: directory, reason: error.description)
            }
        }
        // A step of the clock before its first record would go undetected.
        if self.clock.isFirst { noteClock() }
    }

    /// Opens an existing spool for listing and changing uploads; creates no upload and no directory.
    ///
    /// An upload that only a daemon may remove, after a power failure, is left unchanged: locking it throws
    /// `.unrecovered`.
    ///
    /// - Throws: the errors of `init(directory:_:)`.
    package convenience init(
        existing directory: String,
        node: String? = nil
    ) throws(SpoolError) {
        try self.init(directory, SpoolOptions(node: node), isRecovering: false)
    }

    private init(
        _ directory: String,
        _ options: SpoolOptions,
        isRecovering: Bool
    ) throws(SpoolError) {
        layout = try SpoolLayout(path: directory, creating: isRecovering, disk: options.disk)
        self.isRecovering = isRecovering
        runInBackground = options.runInBackground
        settling = SettlingUploads(for: options.settling)
        self.directory = directory
        disk = options.disk
        node = options.node
        if let writer = options.writer ?? options.node.map(Writer.process) {
            self.writer = writer
        } else {
            writer = Writer.name(of: try Writer.boot())
        }
        do throws(SystemError) { clock = try SpoolClock(options.clock, in: layout.root) } catch {
            throw SpoolError.unusable(directory: directory, reason: error.description)
        }
        room = SpoolRoom(layout, reserve: options.reserve, quota: options.quota)
    }

    /// How long a file of a shared spool can still grow after the crash of the host that has written it.
    package var settlingTime: Duration { settling.time }

    /// Creates an upload and locks it.
    ///
    /// On return, the upload survives a crash; it survives a power failure only after the first `sync()`.
    ///
    /// - Parameters:
    ///   - creation: the properties of the upload, which never change.
    ///   - length: the length of the complete content in bytes, or nil if unknown.
    ///   - expected: the number of expected bytes of content, or 0 if unknown.
    ///   - requestRelease: called at most once, from another thread, when a newer request needs the upload; must make
    ///     the caller's read of content end soon.
    /// - Returns: the upload, empty and locked.
    /// - Throws: `.full`, `.fewFiles` or `.overQuota` if there is no room for the expected content; `.tooMany` if a
    ///   limit on the number of uploads is reached. No upload was created then.
    package func create(
        _ creation: UploadCreation,
        length: Int64? = nil,
        expecting expected: Int64 = 0,
        requestRelease: @escaping @Sendable () -> Void
    ) throws(SpoolError) -> Upload {
        try room.check(for: max(length ?? 0, expected), makesFile: true)
        let id = creation.id
        let name = FileName(id)
        let state = RecordState(writer: writer, length: length)
        let bytes = LoadedRecord.bytes(state: state, creation: creation)
        let size = RecordSlots.early[0] + Int64(bytes.count)
        let client = creation.client
        try room.takeUpload(of: client, record: size)
        defer { room.wasMade(client, record: size) }
        let lock = locks.lockNew(creation, requestRelease: requestRelease)
        do throws(SystemError) {
            let record = try createRecord(bytes, name)
            let file = RecordFile(of: id, name, in: self, record, state: state, creationEnd: size)
            return Upload(lock, creation, UploadFiles(file))
        } catch {
            lock.unlock()
            room.giveBackUpload(of: client, isFinished: false)
            room.giveBackRecord(size)
            throw failure(error)
        }
    }

    /// Creates an empty upload without a record, which exists only during its request.
    ///
    /// `expected` is the expected number of bytes of content; 0 if unknown.
    ///
    /// - Throws: `.full`, `.fewFiles` or `.overQuota` if the content needs a file and there is no room for it.
    package func createUnrecorded(
        _ creation: consuming UploadCreation,
        expecting expected: Int64
    ) throws(SpoolError) -> Upload {
        if expected > Upload.maximumInBuffer { try room.check(for: expected, makesFile: true) }
        let files = UploadFiles(RecordFile(of: creation.id, .none, in: self, nil))
        return Upload(nil, creation, files)
    }

    /// Finds an upload and locks it; returns nil if it does not exist or `admits` returns false.
    ///
    /// If another request is receiving the upload, this asks that request to release it. If several requests are
    /// waiting, the newest gets the lock. During a delivery, this waits until the delivery ends. `admits` returns
    /// whether the caller may use the upload; it is called before a release is requested, so that clients cannot
    /// disturb each other, and must be quick and without side effects. `requestRelease` is as in `create`.
    ///
    /// - Throws: `.busy` if the upload was not unlocked in time, or a newer request needs it.
    package func lock(
        _ id: UploadID,
        until limit: WaitLimit,
        admits: (UploadCreation) -> Bool = { _ in true },
        requestRelease: @escaping @Sendable () -> Void
    ) throws(SpoolError) -> Upload? {
        let lock: UploadLock
        switch locks.lock(id, until: limit, admits: admits, requestRelease: requestRelease) {
        case .locked(let taken): lock = taken
        case .notAdmitted: return nil
        case .busy: throw .busy(id)
        }
        return try find(lock, until: limit, admits: admits)
    }

    /// Finds an upload and locks it as with a `WaitLimit`, but with a fixed deadline.
    package func lock(
        _ id: UploadID,
        until deadline: Deadline,
        admits: (UploadCreation) -> Bool = { _ in true },
        requestRelease: @escaping @Sendable () -> Void
    ) throws(SpoolError) -> Upload? {
        try lock(id, until: WaitLimit(deadline), admits: admits, requestRelease: requestRelease)
    }

    /// Finds an upload and locks it without waiting; returns nil if it does not exist or is locked, or if a request is
    /// waiting for it.
    ///
    /// Later requests for the upload wait until it is unlocked.
    package func tryLock(_ id: UploadID) throws(SpoolError) -> Upload? {
        guard let lock = locks.tryLock(id) else { return nil }
        do throws(SpoolError) { return try find(lock, until: nil) { _ in true } } catch {
            if case .busy = error { return nil }
            throw error
        }
    }

    // MARK: Creating files

    private func createRecord(_ bytes: [UInt8], _ name: FileName) throws(SystemError) -> OpenFile {
        let directory = layout.directory(of: name)
        while true {
            let made = try disk.create(name.record, in: directory)
            let record = OpenFile(made, name.record, in: directory)
            // Before the record is locked, another process can take it for one that was never written, and remove it.
            try record.descriptor.lock(subject: record.subject)
            guard try record.status().names > 0 else { continue }
            do throws(SystemError) {
                try disk.write(bytes, to: record, at: RecordSlots.early[0])
                return record
            } catch {
                // A record that was never written is removed later.
                _ = try? disk.unlink(name.record, in: directory)
                throw error
            }
        }
    }

    // MARK: Finding files

    /// Opens the upload that `lock` protects.
    ///
    /// Releases the lock if opening fails or `admits` returns false.
    ///
    /// If `limit` is nil, neither waits for other processes nor requests a release.
    private func find(
        _ lock: UploadLock,
        until limit: WaitLimit?,
        admits: (UploadCreation) -> Bool
    ) throws(SpoolError) -> Upload? {
        var upload: Upload?
        defer { if upload == nil { lock.unlock() } }
        let name = FileName(lock.id)
        let opened = try openSound(name) { () throws(SystemError) in try layout.openRecord(name) }
        guard let record = opened,
            try waitForLock(on: record, lock, until: limit, admits: admits),
            case let status = try reporting(record.status()),
            // Without a name, the record was removed while this request waited.
            status.names > 0
        else {
            try checkMembership()
            settling.remove(lock.id)
            return nil
        }
        lock.setInUse()
        let files = UploadFiles(RecordFile(of: lock.id, name, in: self, record))
        // The files are closed before another request of this process locks the upload.
        defer { if upload == nil { files.close() } }
        let read = try openSound(name) { () throws(SpoolError) in
            try files.read(status, waits: limit != nil)
        }
        switch read {
        case .failure(let fault) where fault.kind == .unwritten:
            // Only a power failure leaves content with such a record.
            let size = try reporting(files.content.data?.status().size ?? 0)
            if size > 0, !isAfterPowerFailure {
                try files.setAside()
                throw .corrupt(lock.id, reason: fault.reason)
            }
            try files.remove(of: nil)
            return nil
        case .failure(let fault) where fault.kind == .newer:
            throw .newer(lock.id, reason: fault.reason)
        case .failure(let fault):
            try files.setAside()
            throw .corrupt(lock.id, reason: fault.reason)
        case .success(let record):
            let creation = record.creation
            lock.setCreation(creation)
            guard admits(creation) else { return nil }
            if try files.repair(record) == .forget { return nil }
            upload = Upload(lock, creation, files)
            return upload
        }
    }

    /// Locks an upload's record, or returns nil if the upload is in use or was removed.
    func openUnused(_ id: UploadID) throws(SystemError) -> UploadFiles? {
        let name = FileName(id)
        guard let record = try layout.openRecord(name), try record.tryLock(),
            try record.status().names > 0
        else { return nil }
        return UploadFiles(RecordFile(of: id, name, in: self, record))
    }

    /// Opens files of an upload; if one is not a regular file, moves the record to `corrupt` and throws
    /// `.corrupt`.
    private func openSound<R, E: Error>(
        _ name: FileName,
        _ body: () throws(E) -> R
    ) throws(SpoolError) -> R {
        do { return try body() } catch {
            let failure = (error as? SpoolError) ?? (error as? SystemError).map { self.failure($0) }
            guard case .disk(let error)? = failure, error.isNotRegular,
                let id = UploadID(name.record)
            else { throw failure ?? .unusable(directory: directory, reason: "\(error)") }
            // No lock is needed: no process can use the upload.
            try setAside(name)
            throw .corrupt(id, reason: "\(error.subject) is not a regular file")
        }
    }

    func setAside(_ name: FileName) throws(SpoolError) {
        try onDisk { () throws(SystemError) in
            try disk.rename(
                name.record,
                in: layout.directory(of: name),
                to: name.record,
                in: layout.corrupt
            )
        }
    }

    /// Takes the kernel's lock, or returns false if the caller may not use the upload.
    ///
    /// Throws `.busy` instead of waiting if `limit` is nil.
    private func waitForLock(
        on file: OpenFile,
        _ lock: UploadLock,
        until limit: WaitLimit?,
        admits: (UploadCreation) -> Bool
    ) throws(SpoolError) -> Bool {
        if try reporting(file.tryLock()) { return true }
        guard let limit else { throw .busy(lock.id) }
        guard let creation = try reporting(peek(lock.id)) else {
            try waitForLock(on: file, lock, until: limit)
            return true
        }
        // A client must not request the release of another client's upload.
        guard admits(creation) else { return false }
        // Lets a newer request of this process decide whether to replace this one.
        lock.setCreation(creation)
        try whileRequestingRelease(of: file) { () throws(SpoolError) in
            try waitForLock(on: file, lock, until: limit)
        }
        return true
    }

    private func waitForLock(
        on file: OpenFile,
        _ lock: UploadLock,
        until limit: WaitLimit
    ) throws(SpoolError) {
        while try !reporting(file.tryLock()) {
            // The kernel does not report that a lock was released, so this polls.
            guard !limit.hasPassed, !lock.isReleaseRequested(until: .after(.milliseconds(20)))
            else {
                throw .busy(lock.id)
            }
        }
    }

    /// Returns the creation of an upload that another process has locked, or nil if its record cannot be read.
    private func peek(_ id: UploadID) throws(SystemError) -> UploadCreation? {
        guard let file = try layout.openRecord(FileName(id), forWriting: false) else { return nil }
        return try? LoadedRecord.read(file, of: id, knowing: creations).get().creation
    }

    // MARK: Errors and room

    func onDisk<R>(_ body: () throws(SystemError) -> R) throws(SpoolError) -> R {
        do throws(SystemError) { return try body() } catch { throw failure(error) }
    }

    /// Evaluates one expression, and reports its error with the spool's directory.
    func reporting<R>(_ value: @autoclosure () throws(SystemError) -> R) throws(SpoolError) -> R {
        do throws(SystemError) { return try value() } catch { throw failure(error) }
    }

    func failure(_ error: SystemError) -> SpoolError {
        if isShared, error.mayBeFenced || error.isDenial && isClosedToUs { fence.note(error) }
        if error.isExhausted { return .exhausted(error) }
        guard error.isFull else { return .disk(error) }
        // Nil if the free space cannot be read either.
        return .noSpace(error, directory: directory, free: try? layout.root.space())
    }

    /// Throws an error if `count` more bytes of content would currently exceed a limit.
    ///
    /// Pass 0 if the size is unknown. Reserves nothing.
    package func checkRoom(for count: Int64) throws(SpoolError) { try room.check(for: count) }

    /// Changes the limits on the number of uploads; existing uploads are kept.
    package func setBounds(_ bounds: UploadBounds) { room.setBounds(bounds) }

    /// Changes the number of bytes that must stay free when new content is written.
    package func setReserve(_ reserve: Int64) { room.setReserve(reserve) }
}
