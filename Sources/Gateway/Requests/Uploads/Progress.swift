// Progress of content as it comes, told by 104 (Upload Resumption Supported).

import SpoolgateDelivery
import SpoolgatePosix
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateUploadProtocol

/// Progress while content comes: at a modest rate, in time and in bytes.
struct ReceptionProgress {
    private let report: ProgressReport?
    private let rate: InterimRate
    private var told: Int64
    private var next: Deadline

    /// Begins with content at `offset`, which the client knows.
    init(_ report: ProgressReport?, rate: InterimRate, from offset: Int64) {
        self.report = report
        self.rate = rate
        told = offset
        next = .after(rate.progressInterval)
    }

    /// Tells how far `upload` has come, if it is time.
    mutating func note(_ upload: Upload) throws(SpoolError) {
        let count = upload.offset - told
        guard let report, count > 0, count >= rate.progressSize, next.hasPassed else { return }
        try report.tell(upload)
        told = upload.offset
        next = .after(rate.progressInterval)
    }
}
