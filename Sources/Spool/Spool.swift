// The disk queue: opens the directory, creates and finds uploads.
//
// See spoolgate-spool(5) for the directories, the files and every state a crash can leave. Changing
// an upload is in Upload, start-up in Recovery, looking and purging in Listing. Invariant: an
// upload's files are changed only under the lock on its data file (on its record once delivered).

package import Posix
package import UploadProtocol

/// A spool directory.
///
/// Any thread; several processes may use one directory.
package final class Spool: Sendable {
    /// The directory's path.
    package let directory: String

    let layout: SpoolLayout
    let disk: Disk
    let room: SpoolRoom
    /// What time it is here.
    package let clock: SpoolClock
    let locks = UploadLocks()
    let creations = CreationCache()
    let population: Population
    /// What the last recovery could not look at.
    let unrecovered = Monitor(Unrecovered())

    /// Opens a spool, making its directories on first use.
    ///
    /// - Parameters:
    ///   - directory: the path; its parent must exist.
    ///   - reserve: bytes that must stay free on the file system; no content is taken below it.
    ///   - quota: most bytes of content that the spool may hold; nil: no limit.
    ///   - disk: the calls that change the disk; tests give one that fails.
    ///   - clock: the machine's clocks; tests give some that jump.
    /// - Throws: `.unusable` where the directory is no spool, of another format, or not ours to use.
    package init(
        directory: String,
        reserve: Int64,
        quota: Int64? = nil,
        disk: Disk = Disk(),
        clock: SystemClock = SystemClock()
    ) throws(SpoolError) {
        layout = try SpoolLayout(path: directory, creating: true, disk: disk)
        self.directory = directory
        self.disk = disk
        self.clock = try Self.usable(layout) { [layout] () throws(SystemError) in
            try SpoolClock(clock, in: layout.root)
        }
        population = Population(layout)
        room = try Self.usable(layout) { [layout] () throws(SystemError) in
            try SpoolRoom(layout, reserve: reserve, quota: quota)
        }
        // From the start on: what is not noted down is not known after a step of the clock.
        if self.clock.isFirst { noteClock() }
    }

    /// Opens a spool that exists, to list and purge it; makes nothing.
    ///
    /// - Parameter directory: the path.
    /// - Throws: `.unusable` where the directory is no spool, of another format, or not ours to use.
    package init(existing directory: String) throws(SpoolError) {
        disk = Disk()
        layout = try SpoolLayout(path: directory, creating: false, disk: disk)
        self.directory = directory
        clock = try Self.usable(layout) { [layout] () throws(SystemError) in
            try SpoolClock(SystemClock(), in: layout.root)
        }
        population = Population(layout)
        room = try Self.usable(layout) { [layout] () throws(SystemError) in
            try SpoolRoom(layout, reserve: 0, quota: nil)
        }
    }

    /// Makes a part of the spool, which cannot be used without.
    private static func usable<R>(
        _ layout: SpoolLayout,
        _ make: () throws(SystemError) -> R
    ) throws(SpoolError) -> R {
        do throws(SystemError) { return try make() } catch {
            throw .unusable(directory: layout.root.path, reason: error.description)
        }
    }

    /// Creates an upload and locks it.
    ///
    /// Survives the death of the process at once, a power cut after the first `sync()`: the instant
    /// it exists is the one `linkat` of its record.
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
        // An upload among others that nobody could look at would be judged with them.
        _ = try isUnrecovered(id)
        let name = FileName(id)
        let state = RecordState(length: length)
        let bytes = LoadedRecord.bytes(state: state, creation: creation)
        try population.take(creation)
        do throws(SpoolError) { try room.takeRecord(Int64(bytes.count)) } catch {
            population.remove(id)
            throw error
        }
        let lock = locks.lockNew(creation, requestRelease: requestRelease)
        do throws(SystemError) {
            let data = try createData(name)
            do throws(SystemError) {
                let files = UploadFiles(
                    of: id,
                    in: .incoming,
                    of: self,
                    data: data,
                    record: try createRecord(bytes, name),
                    state: state,
                    creationEnd: Int64(bytes.count)
                )
                population.noteMade(id)
                return Upload(spool: self, lock: lock, creation: creation, files: files)
            } catch {
                // The first error tells; what stays behind has no record, and recovery removes it.
                _ = try? disk.unlink(name.name, in: layout.data[name])
                throw error
            }
        } catch {
            lock.unlock()
            population.remove(id)
            room.giveBackRecord(Int64(bytes.count))
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

    /// Makes a data file and locks it.
    private func createData(_ name: FileName) throws(SystemError) -> OpenFile {
        while true {
            let made = try disk.create(name.name, in: layout.data[name])
            let data = OpenFile(made, name.name, in: layout.data[name])
            // Between the two calls a recovery in another process can take it for an orphan; it
            // then removes it and unlocks, and it is made again.
            if try !data.tryLock() { try data.descriptor.lock(subject: data.subject) }
            if try data.status().names > 0 { return data }
        }
    }

    /// Makes a record whole and gives it its name, at which instant the upload exists.
    private func createRecord(_ bytes: [UInt8], _ name: FileName) throws(SystemError) -> OpenFile {
        let incoming = layout[.incoming][name]
        if let nameless = try disk.createNameless(in: incoming) {
            let record = OpenFile(nameless, name.name, in: incoming)
            try disk.write(bytes, to: record, at: 0)
            try disk.link(record.descriptor, as: name.name, in: incoming)
            return record
        }
        let newName = TemporaryName.next()
        let record = OpenFile(
            try disk.create(newName, in: layout.temporary),
            newName,
            in: layout.temporary
        )
        try disk.write(bytes, to: record, at: 0)
        try disk.rename(newName, in: layout.temporary, to: name.name, in: incoming)
        return record
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
        guard let files = try open(lock, until: limit, admits: admits) else { return nil }
        // Closed before another request in this process looks.
        defer { if upload == nil { files.close() } }
        let isUnrecovered = try isUnrecovered(lock.id)
        let creation = try files.read()
        lock.setCreation(creation)
        guard admits(creation) else { return nil }
        let repair = try files.repair(creation, afterPowerCut: isUnrecovered)
        if isUnrecovered { try noteRecovered(lock.id) }
        if repair == .forget { return nil }
        files.closeRecord()
        upload = Upload(spool: self, lock: lock, creation: creation, files: files)
        return upload
    }

    /// Opens an upload's files and takes the kernel's lock; nil if there are none to be used.
    private func open(
        _ lock: UploadLock,
        until limit: WaitLimit?,
        admits: (UploadCreation) -> Bool
    ) throws(SpoolError) -> UploadFiles? {
        let name = FileName(lock.id)
        let data = try openSound(lock.id) { () throws(SystemError) in try layout.data.open(name) }
        if let data {
            guard try waitForLock(on: data, lock, until: limit, admits: admits) else { return nil }
            lock.setInUse()
        }
        // Without content only a delivered upload is one.
        for queue in data == nil ? [.delivered] : SpoolLayout.usable {
            let record = try openSound(lock.id) { () throws(SystemError) in
                try layout[queue].open(name)
            }
            guard let record else { continue }
            if data == nil || queue == .delivered {
                guard try waitForLock(on: record, lock, until: limit, admits: admits),
                    // Removed while this request waited.
                    try onDisk({ () throws(SystemError) in try record.status().names }) > 0
                else { return nil }
            }
            return UploadFiles(of: lock.id, in: queue, of: self, data: data, record: record)
        }
        return nil
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
        for queue in SpoolLayout.usable {
            guard let file = try layout[queue].open(FileName(id), forWriting: false) else {
                continue
            }
            let read = try LoadedRecord.read(file, of: id, knowing: creations)
            return (try? read.get())?.creation
        }
        return nil
    }

    // MARK: Errors and room

    /// Runs calls on the disk, their errors as the spool's.
    func onDisk<R>(_ body: () throws(SystemError) -> R) throws(SpoolError) -> R {
        do throws(SystemError) { return try body() } catch { throw failure(error) }
    }

    /// What a failed call means here.
    func failure(_ error: SystemError) -> SpoolError {
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
    package func setBounds(_ bounds: UploadBounds) { population.setBounds(bounds) }
}
