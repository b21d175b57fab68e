// Progress of content as it comes, told by 104 (Upload Resumption Supported).
//
// Invariant: an offset is durable before it is told. What is not durable yet becomes so while more content comes.

import SpoolgateDelivery
import SpoolgatePosix
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateUploadProtocol

/// Progress while content comes: at a modest rate, in time and in bytes.
struct ReceptionProgress {
    /// Bytes of content without a length between two reports, whatever the time: its client keeps what it was not told
    /// of, and sends no more than it can keep.
    private static let step: Int64 = 4 << 20

    private let report: ProgressReport?
    private let rate: InterimRate
    private let step: Int64
    /// The offset that the last report tells, also while it becomes durable.
    private var told: Int64
    private var next: Deadline
    /// Rings when an offset has become durable, or has not; made with the first one that takes a while.
    private var alarm: Alarm?

    /// Begins with content at `offset`, which the client knows.
    init(
        _ report: ProgressReport?,
        rate: InterimRate,
        from offset: Int64,
        hasLength: Bool
    ) {
        self.report = report
        self.rate = rate
        step = hasLength ? .max : Self.step
        told = offset
        next = .after(rate.progressInterval)
    }

    /// Tells how far `upload` has come, if it is time.
    ///
    /// Called whenever content came, or the exchange's alarm rang.
    ///
    /// - Throws: `SpoolError` if an offset could not be made durable.
    mutating func note(_ upload: Upload) throws(SpoolError) {
        guard let report else { return }
        try tellDurable(upload, report)
        guard !upload.isSyncing, isDue(at: upload.offset) else { return }
        told = upload.offset
        next = .after(rate.progressInterval)
        if let alarm = alarm(of: report), try upload.beginSync(ringing: alarm) {
            // It may have been a matter of an instant.
            try tellDurable(upload, report)
        } else {
            try report.tell(upload)
        }
    }

    /// Tells the offset that is on its way to the disk, once the content has ended: what follows waits for it too.
    ///
    /// - Throws: as `note`.
    func end(_ upload: Upload) throws(SpoolError) {
        if let report { try tellDurable(upload, report, waits: true) }
    }

    private func tellDurable(
        _ upload: Upload,
        _ report: ProgressReport,
        waits: Bool = false
    ) throws(SpoolError) {
        if let durable = try upload.takeSync(waits: waits) { report.tell(durable: durable) }
    }

    private func isDue(at offset: Int64) -> Bool {
        let count = offset - told
        guard count > 0 else { return false }
        return count >= step || count >= rate.progressSize && next.hasPassed
    }

    /// nil if there is no room for one: then content waits.
    private mutating func alarm(of report: ProgressReport) -> Alarm? {
        if alarm == nil, let made = try? Alarm() {
            alarm = made
            report.setAlarm(made)
        }
        return alarm
    }
}
