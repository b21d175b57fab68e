// Makes uploads durable at a clean stop, whatever their promise, so that a restart of the machine, or a move to another
// one, loses none of them. Below: files that may still grow, synced states, and syncs in the background.
//
// Invariant: a state says that an offset is durable only after the content before it is.

package import SpoolgatePosix
import SpoolgateUploadProtocol

/// The undelivered uploads that no request uses and whose content or creation might not be durable; thread-safe.
///
/// May contain uploads that no longer exist.
final class UndurableUploads: Sendable {
    private let ids = Monitor<Set<UploadID>>([])

    var all: [UploadID] { ids.updateQuietly { Array($0) } }

    func note(_ id: UploadID, isUndurable: Bool) {
        ids.updateQuietly { ids in
            if isUndurable { ids.insert(id) } else { ids.remove(id) }
        }
    }
}

extension Spool {
    /// The number of uploads that are made durable together, limited because each needs two file descriptors.
    private static let batch = 256

    /// Makes the uploads durable that no request uses, also those whose promise does not cover a power failure.
    ///
    /// Call this at a clean stop. On return, each of them survives a restart of the machine and a copy of the spool.
    ///
    /// - Throws: `.disk` if a state could not be written or the file system not be synced; uploads may then be unchanged.
    package func makeAllDurable() throws(SpoolError) {
        // Hosts that share a spool make each upload durable when they release it.
        guard !isShared else { return }
        noteUndurableOfDead()
        var rest = undurable.all[...]
        while !rest.isEmpty {
            let ids = rest.prefix(Self.batch)
            rest = rest.dropFirst(Self.batch)
            // An upload that cannot be locked or read stays as after a crash.
            let uploads = ids.compactMap { try? tryLock($0) }
            defer { for upload in uploads { upload.unlock() } }
            guard uploads.contains(where: \.isUndurable) else { continue }
            try reporting(disk.syncFileSystem(of: layout.root))
            for upload in uploads { try upload.noteDurable() }
            try reporting(disk.syncFileSystem(of: layout.root))
        }
    }
}

// MARK: Settling files

// The time in which a short file of a shared spool may still grow.
//
// If a host crashes, CephFS releases its locks before it knows the sizes of the host's files, so a file that the host
// had synced is too short for a moment. Invariant: no upload is removed or moved to `corrupt` because of a file's size
// before the upload's time has passed.

/// The uploads of a shared spool with a file that is too short.
///
/// Thread-safe.
final class SettlingUploads: Sendable {
    let time: Duration
    private let ends = Monitor([UploadID: Deadline]())

    /// `time` is how long a file may still grow.
    init(for time: Duration) { self.time = time }

    /// Returns the end of the time in which the upload's files may grow.
    ///
    /// The time starts at the first call.
    func end(for id: UploadID) -> Deadline {
        ends.update { ends in
            let end = ends[id] ?? .after(time)
            ends[id] = end
            return end
        }
    }

    func remove(_ id: UploadID) { ends.update { $0[id] = nil } }
}

// MARK: Synced states

// The states of uploads that this process last made durable.
//
// Another process may have crashed before it synced its states. Invariant: every state in this table is durable; any
// other state may need a sync.

/// A bounded cache of the sequence numbers of durable states; thread-safe.
final class SyncedStates: Sendable {
    /// The maximum number of entries, which take a few megabytes.
    ///
    /// A dropped entry only costs one more sync.
    private static let limit = 1 << 16

    private let sequences = Monitor(RecentTable<UploadID, UInt64>(maximum: limit))

    /// Returns whether the state `sequence` of `id` is known to be durable.
    func contains(_ id: UploadID, _ sequence: UInt64) -> Bool {
        sequences.update { $0[id] == sequence }
    }

    /// Records that the state `sequence` of `id` is durable.
    func note(_ id: UploadID, _ sequence: UInt64) {
        sequences.update { $0[id] = sequence }
    }

    func forget(_ id: UploadID) { sequences.update { $0[id] = nil } }
}

// MARK: Sync in the background

// Makes an offset durable on another thread while the upload receives more content.
//
// Invariant: only one sync runs at a time for an upload, and nothing else writes the upload's record until the sync
// ends.

/// Syncs the content, then writes and syncs the record, on any thread.
final class OffsetSync: Sendable {
    enum Outcome: Sendable {
        case durable
        /// The content may not be on the disk.
        case contentFailed(SystemError)
        /// The record was written only partially or not at all.
        case writeFailed(SystemError)
        /// The record may not be on the disk.
        case recordFailed(SystemError)
    }

    private enum Progress {
        /// No thread has started the sync. The open files keep the upload locked.
        case waiting(content: OpenFile, record: OpenFile)
        case running
        case over(Outcome)
    }

    let offset: Int64
    let write: RecordFile.StateWrite
    private let disk: Disk
    private let progress: Monitor<Progress>

    init(
        of content: OpenFile,
        at offset: Int64,
        _ write: RecordFile.StateWrite,
        in record: OpenFile,
        on disk: Disk
    ) {
        self.offset = offset
        self.write = write
        self.disk = disk
        progress = Monitor(.waiting(content: content, record: record))
    }

    /// Runs the sync unless another thread has started it.
    func run() {
        // The files are closed before the result is available.
        guard let outcome = outcome() else { return }
        progress.update { $0 = .over(outcome) }
    }

    /// Returns nil if another thread has started the sync.
    @inline(never)
    private func outcome() -> Outcome? {
        guard let (content, record) = begin() else { return nil }
        do throws(SystemError) { try disk.sync(content) } catch { return .contentFailed(error) }
        do throws(SystemError) { try write.put(into: record, disk) } catch {
            return .writeFailed(error)
        }
        do throws(SystemError) { try disk.sync(record) } catch { return .recordFailed(error) }
        return .durable
    }

    private func begin() -> (content: OpenFile, record: OpenFile)? {
        progress.updateQuietly { progress in
            guard case .waiting(let content, let record) = progress else { return nil }
            progress = .running
            return (content, record)
        }
    }

    var end: Outcome? { progress.updateQuietly(Self.end) }

    /// Waits for the result.
    ///
    /// Runs the sync if no thread has started it.
    func waitForEnd() -> Outcome {
        run()
        // A call on the disk has no deadline.
        while true {
            if let end = progress.wait(until: .never, isQuiet: true, Self.end) { return end }
        }
    }

    private static func end(_ progress: inout Progress) -> Outcome? {
        if case .over(let outcome) = progress { outcome } else { nil }
    }
}

extension Upload {
    /// Starts to make the offset durable on another thread, while more content is received.
    ///
    /// - Parameter alarm: rung when `takeSync()` has the result.
    /// - Returns: false if no sync was started, because the offset is already durable or `sync()` must be called
    ///   instead (for example, to make names durable too).
    /// - Throws: the errors of `append(_:)`; no sync was then started.
    package func beginSync(ringing alarm: Alarm) throws(SpoolError) -> Bool {
        guard isReceiving, creation.promise == .powerCut, isPromised, !isContentUncertain,
            offsetSync == nil, record.state.verified == nil
        else { return false }
        try store()
        let offset = content.size
        guard let data = content.data, !files.areNamesUncertain, record.state.durable != offset,
            let write = record.prepare({ $0.durable = offset })
        else { return false }
        expectPromise()
        let file = try spool.reporting(record.open())
        let sync = OffsetSync(of: data, at: offset, write, in: file, on: spool.disk)
        offsetSync = sync
        spool.runInBackground {
            sync.run()
            alarm.ring()
        }
        return true
    }

    package var isSyncing: Bool { offsetSync != nil }

    /// Finishes a sync, after waiting for it if `waits` is true.
    ///
    /// - Returns: the offset that is now durable; nil if no sync was started or it is still running.
    /// - Throws: the errors of `sync()`. Content that the web server is writing is cut back only when its loan ends.
    package func takeSync(waits: Bool = false) throws(SpoolError) -> Int64? {
        guard let sync = offsetSync, let end = waits ? sync.waitForEnd() : sync.end else {
            return nil
        }
        try finish(sync, end)
        return sync.offset
    }

    private func finish(_ sync: OffsetSync, _ end: OffsetSync.Outcome) throws(SpoolError) {
        offsetSync = nil
        switch end {
        case .durable: record.finish(sync.write)
        case .contentFailed(let error):
            try distrustContent()
            throw spool.failure(error)
        case .writeFailed(let error):
            record.takeBack(sync.write, wasWritten: false)
            throw spool.failure(error)
        case .recordFailed(let error):
            record.takeBack(sync.write, wasWritten: true)
            throw spool.failure(error)
        }
    }
}
