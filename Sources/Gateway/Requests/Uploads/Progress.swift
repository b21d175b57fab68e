// Progress reports in 104 (Upload Resumption Supported) while content is being received.
//
// Invariant: an offset is durable before it is acknowledged. It becomes durable while more content is received.

import SpoolgateDelivery
import SpoolgatePosix
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateUploadProtocol

struct ReceptionProgress {
    /// The maximum number of bytes between two reports on content of unknown length, however little time has passed.
    ///
    /// The client of such content buffers bytes that are not acknowledged, and pauses when its buffer is full.
    private static let step: Int64 = 4 << 20

    private let report: ProgressReport?
    private let rate: InterimRate
    private let step: Int64
    /// The offset of the last report, which may still be in the process of becoming durable.
    private var told: Int64
    private var next: Deadline
    /// Rings when a sync has succeeded or failed; nil until the first sync that runs in the background.
    private var alarm: Alarm?

    /// Creates the progress of content that begins at `offset`, which the client knows.
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

    /// Acknowledges the upload's offset if a report is due.
    ///
    /// Call it after content arrived or the exchange's alarm rang.
    ///
    /// - Throws: `SpoolError` if an offset could not be made durable.
    mutating func note(_ upload: Upload) throws(SpoolError) {
        guard let report else { return }
        try tellDurable(upload, report)
        guard !upload.isSyncing, isDue(at: upload.offset) else { return }
        told = upload.offset
        next = .after(rate.progressInterval)
        if let alarm = alarm(of: report), try upload.beginSync(ringing: alarm) {
            // The sync may be complete already.
            try tellDurable(upload, report)
        } else {
            try report.tell(upload)
        }
    }

    /// Waits for the sync that is under way when the content ends, and acknowledges the offset that it made durable.
    ///
    /// The next operation on the upload would wait for the sync as well.
    ///
    /// - Throws: `SpoolError` if the offset could not be made durable.
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

    /// The alarm; nil if none can be created, in which case receiving content waits for each sync.
    private mutating func alarm(of report: ProgressReport) -> Alarm? {
        if alarm == nil, let made = try? Alarm() {
            alarm = made
            report.setAlarm(made)
        }
        return alarm
    }
}
