// Sends every 104 (Upload Resumption Supported): an upload's location, progress while content arrives, and heartbeats
// while the client waits for the upstream, so that no idle timer expires.
//
// Invariant: an offset is durable before it is sent, and content is synced here only to send its offset.

package import SpoolgateExchange
package import SpoolgateJournal
package import SpoolgatePosix
package import SpoolgateSettings
package import SpoolgateSpool
package import SpoolgateUploadProtocol

/// Sends a client the durable offset of its upload in 104 responses (draft-12 §4.1.1).
package struct ProgressReport {
    private let exchange: any Exchange
    private let responses: any ResponseWording

    /// Returns nil if the client's protocol or the web server does not support 104.
    package init?(
        to exchange: any Exchange,
        _ context: ExchangeContext,
        _ responses: any ResponseWording
    ) {
        guard responses.dialect.allowsProgress, context.interimStatuses.contains(104) else {
            return nil
        }
        self.exchange = exchange
        self.responses = responses
    }

    /// Sends the location of an upload (draft-12 §4.2.2), before any of its content is read.
    ///
    /// Call this function only if `Dialect.allowsInterim(toCreationOf:)` returns true.
    package static func tell(
        location: String,
        to exchange: any Exchange,
        _ responses: any ResponseWording
    ) {
        exchange.send(interim: responses.interimCreated(location: location))
    }

    /// Makes the upload's offset durable, then sends the offset.
    package func tell(_ upload: Upload) throws(SpoolError) {
        try upload.sync()
        tell(durable: upload.durableOffset)
    }

    /// Sends an offset that is already durable.
    package func tell(durable offset: Int64) {
        exchange.send(interim: responses.interimProgress(offset: offset))
    }

    /// Lets `alarm` end waits for content early, so that offsets are sent when they become durable.
    package func setAlarm(_ alarm: Alarm) { exchange.setAlarm(alarm) }
}

/// Repeats the offset of a complete upload to its client, from the end of the content to the final response.
///
/// Not thread-safe.
package final class Heartbeat {
    private let report: ProgressReport
    private let interval: Duration
    private(set) var next: Deadline

    /// Returns nil if `report` is nil or `rate` disables heartbeats.
    package init?(_ report: ProgressReport?, rate: InterimRate) {
        guard let report, rate.heartbeat > .zero else { return nil }
        self.report = report
        interval = rate.heartbeat
        next = .after(interval)
    }

    /// Sends a heartbeat if one is due.
    ///
    /// - Throws: the errors of `Upload.sync`. After an error, no more heartbeats are sent.
    package func beat(_ upload: Upload) throws(SpoolError) {
        guard next.hasPassed else { return }
        next = .never
        try report.tell(upload)
        next = .after(interval)
    }

    /// Sends a heartbeat if one is due.
    ///
    /// Logs an error, after which no more heartbeats are sent.
    package func beat(_ upload: Upload, failingInto journal: Journal) {
        do throws(SpoolError) { try beat(upload) } catch {
            journal.spoolFailed(error, upload: upload.creation.id)
        }
    }
}
