// The files of one upload: its record and its content.
//
// Invariant: every step leaves a combination of files that has a row in spoolgate-spool(5), which also describes the
// order of the steps.

import HTTPTypes
import SpoolgatePosix
import SpoolgateUploadProtocol

/// One upload's files, open and locked, used by one thread.
///
/// The last reference, or `close()`, releases the kernel's locks.
struct UploadFiles {
    let record: RecordFile
    let content: ContentFile

    private var spool: Spool { record.spool }
    var name: FileName { record.name }
    private var id: UploadID { record.id }
    private var state: RecordState { record.state }

    init(_ record: RecordFile) {
        self.record = record
        content = ContentFile(of: record)
    }

    func close() {
        content.close()
        record.close()
    }

    /// Reads the record and opens the data file.
    ///
    /// The caller must have read `status` after locking the record. If `waits` is true, waits for a file that another
    /// host may have left too short.
    ///
    /// - Throws: `.busy` if the web server may still write content, or a file may still grow and `waits` is false.
    func read(
        _ status: FileStatus,
        waits: Bool
    ) throws(SpoolError) -> Result<LoadedRecord, UnreadableRecord> {
        let status = try settled(record.open(), status, size: 1, waits: waits)
        let read = try record.read(status)
        var found = try content.open()
        if case .success(let loaded) = read {
            record.trust(loaded, status)
            if let data = content.data, let status = found, let durable = state.durable {
                found = try settled(data, status, size: durable, waits: waits)
            }
            content.trust(found)
        }
        if spool.isShared { spool.settling.remove(id) }
        return read
    }

    /// Waits until a file of a shared spool has `size` bytes or can no longer grow, and returns its status.
    private func settled(
        _ file: @autoclosure () throws(SystemError) -> OpenFile,
        _ status: FileStatus,
        size: Int64,
        waits: Bool
    ) throws(SpoolError) -> FileStatus {
        guard spool.isShared, status.size < size else { return status }
        let end = spool.settling.end(for: id)
        guard waits || end.hasPassed else { throw .busy(id) }
        return try spool.onDisk { () throws(SystemError) in
            let file = try file()
            var status = try file.status()
            while status.size < size, !end.hasPassed {
                Thread.pause(.milliseconds(50))
                status = try file.status()
            }
            return status
        }
    }

    // MARK: Names

    var areNamesUncertain: Bool { record.state.durable ?? 0 == 0 || content.mayBeShared }

    func syncNames() throws(SpoolError) {
        try spool.reporting(spool.disk.syncDirectory(spool.layout.directory(of: name)))
    }

    // MARK: Removing

    /// Moves the record to `corrupt`; the data file stays.
    func setAside() throws(SpoolError) {
        try spool.setAside(name)
        spool.room.giveBackUpload(of: nil, isFinished: true)
    }

    /// Removes the upload.
    ///
    /// The removal is durable on return if `durably` is true.
    ///
    /// - Throws: `.disk` if a part of the upload still exists or may be restored by a power failure.
    func remove(of client: ClientName?, durably: Bool = false) throws(SpoolError) {
        try spool.onDisk { () throws(SystemError) in
            try beginRemoval(of: client)
            try spool.finishRemovals(of: [self], durably: durably)
        }
    }

    /// Removes the record, so that a partially removed upload is never found; `finishRemovals` removes the rest.
    ///
    /// The name that marks the removal is created first. Without it, content that a crash leaves looks like that of a
    /// lost record, and is kept.
    ///
    /// - Throws: an error if the record still exists; the upload is then unchanged.
    func beginRemoval(of client: ClientName?) throws(SystemError) {
        if content.data != nil {
            // On a full disk, the removal must succeed all the same.
            try? spool.disk.createEmpty(name.removal, in: spool.layout.directory(of: name))
        }
        do throws(SystemError) { try record.remove(of: client) } catch {
            try? forgetRemoval()
            throw error
        }
    }

    /// Removes the name that marks a removal.
    func forgetRemoval() throws(SystemError) {
        try spool.disk.unlink(name.removal, in: spool.layout.directory(of: name))
    }

    /// Removes the content after `beginRemoval(of:)`.
    fileprivate func finishRemoval() throws(SystemError) {
        let isMarked = content.data != nil
        try content.remove()
        if isMarked { try forgetRemoval() }
    }

    // MARK: Repairing

    /// Repairs the files after a crash or a power failure, and returns the repair that was made.
    ///
    /// - Throws: `.corrupt` after the record was moved to `corrupt`.
    func repair(_ loaded: LoadedRecord) throws(SpoolError) -> Repair {
        let isForeign = state.writer != spool.writer
        let fault = isForeign ? try trustOlderState() : nil
        let repair = Repair(
            state: state,
            dataSize: content.data == nil ? nil : content.size,
            responseFault: fault,
            isForeign: isForeign,
            isSlotDamaged: loaded.isSlotDamaged,
            isConcatenation: loaded.creation.kind.isFinal
        )
        // A file system may keep the state but lose the name created before it (btrfs). The name is restored first,
        // because after a new state is written, nothing shows that the name may be missing.
        if isForeign, repair.keepsUpload { try record.restoreName() }
        if repair == .forget, !spool.isRecovering { throw .unrecovered(id) }
        try apply(repair, loaded.creation)
        // The process that checked the content is the writer from now on. Complete content never changes, and the time
        // of a write would restart the client's pause.
        let isComplete = state.queue == .deferred && state.durable == content.size
        let isTakenOver =
            isForeign && state.writer != spool.writer
            && [.incoming, .deferred].contains(state.queue) && !isComplete
        // The queue and removals read the file without a repair, and would take the upload for delivered.
        if repair != .forget, isTakenOver || !record.isStateInFile {
            // In a shared spool, the last writer may still be running, and must not trust later content as its own.
            try record.write(durably: spool.isShared) { _ in }
        }
        return repair
    }

    /// Adopts the previous state if a power failure has destroyed bytes to which the newest state refers.
    ///
    /// - Returns: the reason why needed bytes cannot be read; nil if they can.
    private func trustOlderState() throws(SpoolError) -> UnreadableRecord? {
        guard let fault = try partFault() else { return nil }
        guard try record.trustOlder() else { return fault }
        content.forgetWithoutFile()
        return try partFault()
    }

    private func partFault() throws(SpoolError) -> UnreadableRecord? {
        if state.queue == .delivered {
            guard case .failure(let fault) = try record.response() else { return nil }
            guard fault.kind != .newer else { throw .newer(id, reason: fault.reason) }
            return fault
        }
        guard state.completion != nil, try record.completion() == nil else { return nil }
        return UnreadableRecord(reason: "the stored completing request is damaged")
    }

    private func apply(_ repair: Repair, _ creation: UploadCreation) throws(SpoolError) {
        switch repair {
        case .keep: return
        case .cutBack(let size):
            try content.truncate(to: size)
            if state.verified != nil { try record.write { $0.verified = nil } }
        case .receiveAgain(let size):
            try content.truncate(to: size)
            try record.write { $0.receiveAgain() }
        case .retry:
            // The client received no failure, so the queue retries.
            try record.write { state in
                state.go(to: .deferred, Repair.interrupted)
                state.then = .deferred
                state.next = spool.clock.now
            }
        case .hold:
            // Content without an acknowledged offset was still being written to its file.
            if content.size != state.length { try content.truncate(to: 0) }
            try record.write { state in
                state.go(to: .hold, Repair.outcomeUnknown)
                state.cause = .indeterminate
            }
        case .removeContent:
            // The writer of the state may have crashed before the state was durable.
            if state.durable != nil, record.isDirty { try record.sync() }
            _ = try spool.reporting(content.remove())
            content.size = state.length ?? content.size
        case .forget:
            try remove(of: creation.client)
        case .setAside(let reason):
            try setAside()
            throw .corrupt(id, reason: reason)
        }
    }

    // MARK: Comparing

    /// Returns whether the upload has not changed since it was listed; the properties fixed at creation need no check.
    func isUnchanged(since earlier: UploadSummary) throws(SystemError) -> Bool {
        let file = try record.open()
        let status = try file.status()
        guard try content.tryOpen() else { return false }
        let found = try content.data?.status()
        let read = try LoadedRecord.read(file, of: id, knowing: nil)
        if let loaded = try? read.get() { record.look(at: loaded.state) }
        let now = UploadSummary(id, try? read.get(), status: status, data: found)
        return (now.queue, now.offset, now.lastActivity, now.sequence)
            == (earlier.queue, earlier.offset, earlier.lastActivity, earlier.sequence)
    }

    func touch() throws(SystemError) {
        for file in [try spool.layout.openData(name), try record.open()].compactMap({ $0 }) {
            try spool.disk.touch(file.descriptor, subject: file.subject)
        }
    }
}

extension Spool {
    /// Removes the content of uploads whose records were removed.
    ///
    /// - Throws: an error if a part of an upload still exists or may be restored by a power failure.
    func finishRemovals(of removed: [UploadFiles], durably: Bool) throws(SystemError) {
        for files in removed { try files.finishRemoval() }
        guard durably else { return }
        // After a power failure, a directory has its changes up to some point, in order, so no record remains without
        // its content.
        for number in Set(removed.map(\.name.number)).sorted() {
            try disk.syncDirectory(layout.uploads[number])
        }
    }
}
