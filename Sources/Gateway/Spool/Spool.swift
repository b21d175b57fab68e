// The disk queue: opens the directory, creates and finds uploads.
//
// See spoolgate-spool(5) for the directories, the files and every state a crash can leave. Changing
// an upload is in Upload, what comes after a death in Recovery, looking and purging in Listing. Invariant: an
// upload's files are changed only under the lock on its record.

package import SpoolgatePosix
package import SpoolgateUploadProtocol

/// A spool directory.
///
/// Any thread; several processes may use one directory.
package final class Spool: Sendable {
    /// The directory's path.
    package let directory: String

    /// The node that this process is on, in a spool that several hosts share; nil: it is this host's alone.
    package let node: String?

    let layout: SpoolLayout
    let disk: Disk
    let room: SpoolRoom
    /// What time it is here.
    package let clock: SpoolClock
    /// Who this process is in the states it writes.
    let writer: String
    let locks = UploadLocks()
    let daemons = Daemons()
    let fence = Fence()
    let creations = CreationCache()
    let syncedStates = SyncedStates()
    /// Runs what makes content durable while more of it comes, soon and once, on another thread.
    let runBeside: HelperThreads.Run
    /// The buffers in which content comes.
    package let buffers = BufferPool()

    /// Threads that make content durable while more of it comes: no more than can wait for one disk to any use.
    package static func syncThreads() -> HelperThreads.Run {
        HelperThreads(name: "sync", maximum: 64).run
    }

    /// Opens a spool, making its directories on first use.
    ///
    /// - Parameters:
    ///   - directory: the path; its parent must exist.
    ///   - reserve: bytes that must stay free on the file system; no content is taken below it.
    ///   - quota: most bytes of content that the spool may hold; nil: no limit. With one, all files are
    ///     looked at before this returns.
    ///   - disk: the calls that change the disk; tests give one that fails.
    ///   - clock: the machine's clocks; tests give some that jump.
    ///   - node: the node that this process is on, where several hosts share the spool; nil: it is this host's.
    ///   - writer: who this process is in the states it writes; nil: the running kernel, or this process of its
    ///     node. Tests give another one after a power cut.
    ///   - runBeside: runs what makes content durable while more of it comes; tests choose the moment.
    /// - Throws: `.unusable` where the directory is no spool, of another format, or not ours to use; `.disk` where
    ///   its file system is read-only; `.bootUnknown`.
    package convenience init(
        directory: String,
        reserve: Int64,
        quota: Int64? = nil,
        disk: Disk = Disk(),
        clock: SystemClock = SystemClock(),
        node: String? = nil,
        writer: String? = nil,
        runBeside: @escaping HelperThreads.Run = Spool.syncThreads()
    ) throws(SpoolError) {
        try self.init(
            SpoolLayout(path: directory, creating: true, disk: disk),
            directory,
            reserve,
            quota,
            disk,
            clock,
            node,
            writer,
            runBeside
        )
        if quota != nil {
            do throws(SystemError) {
                try room.count { () throws(SystemError) in try layout.census(readingRecords: false)
                }
            } catch {
                throw .unusable(directory: directory, reason: error.description)
            }
        }
        // From the start on: what is not noted down is not known after a step of the clock.
        if self.clock.isFirst { noteClock() }
    }

    /// Opens a spool that exists, to look at it and change what is in it; makes nothing.
    ///
    /// - Parameters:
    ///   - directory: the path.
    ///   - node: the node that this process is on, where several hosts share the spool.
    /// - Throws: `.unusable` where the directory is no spool, of another format, or not ours to use; `.disk` where
    ///   its file system is read-only; `.bootUnknown`.
    package convenience init(
        existing directory: String,
        node: String? = nil
    ) throws(SpoolError) {
        let disk = Disk()
        let layout = try SpoolLayout(path: directory, creating: false, disk: disk)
        try self.init(layout, directory, 0, nil, disk, SystemClock(), node, nil, Self.syncThreads())
    }

    private init(
        _ layout: SpoolLayout,
        _ directory: String,
        _ reserve: Int64,
        _ quota: Int64?,
        _ disk: Disk,
        _ clock: SystemClock,
        _ node: String?,
        _ writer: String?,
        _ runBeside: @escaping HelperThreads.Run
    ) throws(SpoolError) {
        self.layout = layout
        self.runBeside = runBeside
        self.directory = directory
        self.disk = disk
        self.node = node
        if let writer = writer ?? node.map(Writer.process) {
            self.writer = writer
        } else {
            self.writer = Writer.name(of: try Writer.boot())
        }
        do throws(SystemError) { self.clock = try SpoolClock(clock, in: layout.root) } catch {
            throw SpoolError.unusable(directory: directory, reason: error.description)
        }
        room = SpoolRoom(layout, reserve: reserve, quota: quota)
    }

    /// Creates an upload and locks it.
    ///
    /// Survives the death of the process at once, a power cut after the first `sync()`: the instant
    /// it exists is the one write of its record.
    ///
    /// - Parameters:
    ///   - creation: what is known of it, kept for its whole life.
    ///   - length: its length, if known.
    ///   - expected: bytes of content that are to come, as far as known.
    ///   - requestRelease: called from another thread, at most once, when a newer request wants the
    ///     upload; must make the caller's next read end.
    /// - Returns: the upload, empty and locked.
    /// - Throws: `.full`, `.fewFiles` or `.overQuota` where there is no room for what is expected,
    ///   `.tooMany` where there are as many uploads as may be; then nothing was made.
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
            let files = UploadFiles(
                of: id,
                name,
                in: self,
                record: record,
                state: state,
                creationEnd: size
            )
            return Upload(spool: self, lock: lock, creation: creation, files: files)
        } catch {
            lock.unlock()
            room.giveBackUpload(of: client, isFinished: false)
            room.giveBackRecord(size)
            throw failure(error)
        }
    }

    /// Finds an upload and locks it.
    ///
    /// The release of one that is being received is requested (of several requests the newest wins);
    /// one that is being delivered is waited for.
    ///
    /// - Parameters:
    ///   - id: the upload.
    ///   - limit: when to give up waiting for another lock.
    ///   - admits: whether the caller may use an upload with that creation; called before any
    ///     release is requested, so that a stranger cannot disturb it. Quick and without effect.
    ///   - requestRelease: as in `create`.
    /// - Returns: nil if there is no such upload, or `admits` says no.
    /// - Throws: `.busy` when `limit` comes first, or a newer request does.
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

    /// Finds an upload and locks it, as above, with a deadline that stands.
    package func lock(
        _ id: UploadID,
        until deadline: Deadline,
        admits: (UploadCreation) -> Bool = { _ in true },
        requestRelease: @escaping @Sendable () -> Void
    ) throws(SpoolError) -> Upload? {
        try lock(id, until: WaitLimit(deadline), admits: admits, requestRelease: requestRelease)
    }

    /// Finds an upload and locks it, unless it is locked or awaited.
    ///
    /// Requests that come while it is locked wait for the final response.
    ///
    /// - Returns: nil if there is no such upload, or it is in use.
    package func tryLock(_ id: UploadID) throws(SpoolError) -> Upload? {
        guard let lock = locks.tryLock(id) else { return nil }
        do throws(SpoolError) { return try find(lock, until: nil) { _ in true } } catch {
            if case .busy = error { return nil }
            throw error
        }
    }

    // MARK: Making files

    /// Makes a record, locks it and writes it, at which instant the upload exists.
    private func createRecord(_ bytes: [UInt8], _ name: FileName) throws(SystemError) -> OpenFile {
        let directory = layout.directory(of: name)
        while true {
            let made = try disk.create(name.record, in: directory)
            let record = OpenFile(made, name.record, in: directory)
            // Between the two calls another process can take it for one that was never written; it
            // then removes it and unlocks, and it is made again.
            try record.descriptor.lock(subject: record.subject)
            guard try record.status().names > 0 else { continue }
            do throws(SystemError) {
                try disk.write(bytes, to: record, at: RecordSlots.early[0])
                return record
            } catch {
                // The first error tells; what stays behind was never written, and is removed later.
                _ = try? disk.unlink(name.record, in: directory)
                throw error
            }
        }
    }

    // MARK: Finding files

    /// Finds the upload of a lock, or unlocks it; `limit` nil: nobody is waited for, and no release is
    /// requested.
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
            case let status = try onDisk({ () throws(SystemError) in try record.status() }),
            // Else it was removed while this request waited.
            status.names > 0
        else {
            try checkMembership()
            return nil
        }
        lock.setInUse()
        let files = UploadFiles(of: lock.id, name, in: self, record: record)
        // Closed before another request in this process looks.
        defer { if upload == nil { files.close() } }
        let read = try openSound(name) { () throws(SpoolError) in try files.read(status) }
        switch read {
        case .failure(let fault) where fault.kind == .unwritten:
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
            upload = Upload(spool: self, lock: lock, creation: creation, files: files)
            return upload
        }
    }

    /// Opens and locks the record of an upload; nil if it is in use or no longer there.
    func openUnused(_ id: UploadID) throws(SystemError) -> UploadFiles? {
        let name = FileName(id)
        guard let record = try layout.openRecord(name), try record.tryLock(),
            try record.status().names > 0
        else { return nil }
        return UploadFiles(of: id, name, in: self, record: record)
    }

    /// Opens files of an upload; sets it aside where one of them is something else than a file.
    ///
    /// - Throws: `.corrupt` then, if it has a record.
    private func openSound<R, E: Error>(
        _ name: FileName,
        _ body: () throws(E) -> R
    ) throws(SpoolError) -> R {
        do { return try body() } catch {
            let failure = (error as? SpoolError) ?? (error as? SystemError).map { self.failure($0) }
            guard case .disk(let error)? = failure, error.isNotRegular,
                let id = UploadID(name.record)
            else { throw failure ?? .unusable(directory: directory, reason: "\(error)") }
            // A move touches the name alone, whatever it stands for. It has no lock that would mean
            // anything, and nobody can use it.
            try setAside(name)
            throw .corrupt(id, reason: "\(error.subject) is not a regular file")
        }
    }

    /// Moves a record to `corrupt`.
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

    /// Takes the kernel's lock, waiting for another process; false if the caller may not use the upload.
    ///
    /// Where `limit` is nil, nobody is waited for, and no release is requested.
    private func waitForLock(
        on file: OpenFile,
        _ lock: UploadLock,
        until limit: WaitLimit?,
        admits: (UploadCreation) -> Bool
    ) throws(SpoolError) -> Bool {
        if try onDisk({ () throws(SystemError) in try file.tryLock() }) { return true }
        guard let limit else { throw .busy(lock.id) }
        guard let creation = try onDisk({ () throws(SystemError) in try peek(lock.id) }) else {
            try waitForLock(on: file, lock, until: limit)
            return true
        }
        // A stranger must not request a release.
        guard admits(creation) else { return false }
        // Lets a newer request in this process judge that it may take this one's place.
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
        while try !onDisk({ () throws(SystemError) in try file.tryLock() }) {
            // The kernel tells nobody when a lock comes free, so another process is asked again.
            guard !limit.hasPassed, !lock.isReleaseRequested(until: .after(.milliseconds(20)))
            else {
                throw .busy(lock.id)
            }
        }
    }

    /// The creation of an upload that another process has locked; nil where it cannot be seen just now.
    private func peek(_ id: UploadID) throws(SystemError) -> UploadCreation? {
        guard let file = try layout.openRecord(FileName(id), forWriting: false) else { return nil }
        return try? LoadedRecord.read(file, of: id, knowing: creations).get().creation
    }

    // MARK: Errors and room

    /// Runs calls on the disk, their errors as the spool's.
    func onDisk<R>(_ body: () throws(SystemError) -> R) throws(SpoolError) -> R {
        do throws(SystemError) { return try body() } catch { throw failure(error) }
    }

    /// What a failed call means here.
    func failure(_ error: SystemError) -> SpoolError {
        if isShared, error.mayBeFenced || error.isDenial && isClosedToUs { fence.note(error) }
        if error.isExhausted { return .exhausted(error) }
        guard error.isFull else { return .disk(error) }
        // Only for the message: if even this fails, nothing is known of the room.
        return .noSpace(error, directory: directory, free: try? layout.root.space())
    }

    /// Refuses content of `count` bytes, or of an unknown number (0), for which there is no room now.
    ///
    /// For content that is about to be read: bytes are taken only as they are written.
    package func checkRoom(for count: Int64) throws(SpoolError) { try room.check(for: count) }

    /// Changes how many uploads there may be; those there are stay.
    package func setBounds(_ bounds: UploadBounds) { room.setBounds(bounds) }

    /// Changes how many bytes must stay free on the file system, for content that is taken from now on.
    package func setReserve(_ reserve: Int64) { room.setReserve(reserve) }
}
