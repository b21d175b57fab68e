// Progress reports in 104 (Upload Resumption Supported) while content is being received.
//
// Invariant: an offset is durable before it is acknowledged. More content is received while it becomes durable.

import SpoolgateDelivery
import SpoolgatePosix
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateUploadProtocol

struct ReceptionProgress {
    /// The maximum number of bytes between two reports on content of unknown length.
    ///
    /// The client of such content buffers unacknowledged bytes, and pauses when its buffer is full.
    private static let step: Int64 = 4 << 20

    private let report: ProgressReport?
    private let rate: InterimRate
    private let step: Int64
    /// The offset of the last report, which may not be durable yet.
    private var told: Int64
    private var next: Deadline
    /// Rings when a sync has succeeded or failed; nil until the first sync in the background.
    private var alarm: Alarm?

    /// Reports nothing.
    init() { self.init(nil, rate: InterimRate(), from: 0, hasLength: true) }

    /// Begins content at `offset`, which the client must already know.
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
        next = report == nil ? .never : rate.progressInterval.map { .after($0) } ?? .never
    }

    /// Acknowledges the upload's offset if a report is due; call it after content arrived or the alarm rang.
    mutating func note(_ upload: Upload) throws(SpoolError) {
        guard let report else { return }
        try tellDurable(upload, report)
        guard !upload.isSyncing, isDue(at: upload.offset) else { return }
        told = upload.offset
        next = rate.progressInterval.map { .after($0) } ?? .never
        if let alarm = alarm(of: report), try upload.beginSync(ringing: alarm) {
            // The sync may be complete already.
            try tellDurable(upload, report)
        } else {
            try report.tell(upload)
        }
    }

    /// Waits for a sync that is still running when the content ends, and acknowledges its offset.
    ///
    /// The next operation on the upload would wait for this sync as well.
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

    /// Returns nil if no alarm can be created; each sync then delays the reception of content.
    private mutating func alarm(of report: ProgressReport) -> Alarm? {
        if alarm == nil, let made = try? Alarm() {
            alarm = made
            report.setAlarm(made)
        }
        return alarm
    }
}
