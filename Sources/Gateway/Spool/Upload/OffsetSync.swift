// Makes an offset durable on another thread while the upload receives more content.
//
// Invariant: only one sync runs at a time for an upload, and nothing else writes the upload's record until the sync
// ends.

package import SpoolgatePosix

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
        let file = try spool.onDisk { () throws(SystemError) in try record.open() }
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
