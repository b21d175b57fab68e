// An offset that is made durable beside the content that comes: the disk's part on a thread of its own, all that it
// means on the request's.
//
// Invariant: there is one at a time, and until its end the record is written by nobody else.

package import SpoolgatePosix

/// The calls on the disk that make one offset of one upload durable: the content first, then the record that says so.
///
/// Made and finished by the request's thread, run by any.
final class OffsetSync: Sendable {
    /// How it ended.
    enum Outcome: Sendable {
        case durable
        /// The content may not be on the disk.
        case contentFailed(SystemError)
        /// The record was not written, or only in part.
        case writeFailed(SystemError)
        /// The record was written and may not be on the disk.
        case recordFailed(SystemError)
    }

    private enum Progress {
        /// The files are open, and with the record's the upload is locked, no longer than needed.
        case waiting(content: OpenFile, record: OpenFile)
        case running
        case over(Outcome)
    }

    /// The offset.
    let offset: Int64
    /// The state that says that it is durable.
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

    /// Makes the calls, unless another thread has begun to.
    func run() {
        // The files are closed again before anybody hears of the end.
        guard let outcome = outcome() else { return }
        progress.update { $0 = .over(outcome) }
    }

    /// How the calls end; nil if another thread makes them.
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

    /// How it ended; nil: it has not.
    var end: Outcome? { progress.updateQuietly(Self.end) }

    /// Waits for its end, and runs it if nobody does yet.
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
    /// Begins to make the offset durable while content goes on to come, as `sync()` does before it returns.
    ///
    /// - Parameter alarm: rings at the end; then `takeSync()` has the result.
    /// - Returns: false if `sync()` has to do it: the first time, which makes names durable too, and whenever it costs
    ///   nothing.
    /// - Throws: as `append`; nothing is begun then.
    package func beginSync(ringing alarm: Alarm) throws(SpoolError) -> Bool {
        guard isReceiving, creation.promise == .powerCut, isPromised, !isContentInDoubt,
            offsetSync == nil, record.state.verified == nil
        else { return false }
        try store()
        let offset = content.size
        guard let data = content.data, !files.areNamesInDoubt, record.state.durable != offset,
            let write = record.prepare({ $0.durable = offset })
        else { return false }
        expectPromise()
        let file = try spool.onDisk { () throws(SystemError) in try record.open() }
        let sync = OffsetSync(of: data, at: offset, write, in: file, on: spool.disk)
        offsetSync = sync
        spool.runBeside {
            sync.run()
            alarm.ring()
        }
        return true
    }

    /// Whether an offset is on its way to the disk.
    package var isSyncing: Bool { offsetSync != nil }

    /// Takes the result of `beginSync(ringing:)`.
    ///
    /// - Parameter waits: whether to wait for it.
    /// - Returns: the offset that is durable now; nil: it is not over, or there is none.
    /// - Throws: as `sync()`. Content that somebody else adds is cut back once it is taken back.
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
            try doubtContent()
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
