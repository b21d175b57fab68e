// Every 104 (Upload Resumption Supported) is sent from here: where an upload is, progress of content as it comes, and
// heartbeats while the client of a whole upload waits for the upstream, so that no idle timer on the way runs out.
//
// Invariant: an offset is durable before it is told, and nothing is made durable that is not told.

package import SpoolgateExchange
package import SpoolgateJournal
package import SpoolgatePosix
package import SpoolgateSettings
package import SpoolgateSpool
package import SpoolgateUploadProtocol

/// One way to tell a client how much of its upload is safe (draft-12 §4.1.1).
package struct ProgressReport {
    private let exchange: any Exchange
    private let responses: any ResponseWording

    /// Makes it; nil where the client's dialect or the web server knows no such report.
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

    /// Tells a client where its upload is (draft-12 §4.2.2), before any of its content is read.
    ///
    /// Only where `Dialect.allowsInterim(toCreationOf:)` allows it.
    package static func tell(
        location: String,
        to exchange: any Exchange,
        _ responses: any ResponseWording
    ) {
        exchange.send(interim: responses.interimCreated(location: location))
    }

    /// Makes the offset durable and tells it.
    package func tell(_ upload: Upload) throws(SpoolError) {
        try upload.sync()
        tell(durable: upload.durableOffset)
    }

    /// Tells an offset that is durable.
    package func tell(durable offset: Int64) {
        exchange.send(interim: responses.interimProgress(offset: offset))
    }

    /// Has `alarm` end the exchange's waits for content early, so that what became durable meanwhile is told.
    package func setAlarm(_ alarm: Alarm) { exchange.setAlarm(alarm) }
}

/// Progress while nothing comes: the whole length again and again, from the end of the content to the
/// final response.
///
/// One thread.
package final class Heartbeat {
    private let report: ProgressReport
    private let interval: Duration
    /// When the next one is due.
    private(set) var next: Deadline

    /// Begins with the wait; nil where there are no heartbeats.
    package init?(_ report: ProgressReport?, rate: InterimRate) {
        guard let report, rate.heartbeat > .zero else { return nil }
        self.report = report
        interval = rate.heartbeat
        next = .after(interval)
    }

    /// Tells the client that the wait goes on, if it is time.
    ///
    /// - Throws: what `Upload.sync` throws; there is no further heartbeat then.
    package func beat(_ upload: Upload) throws(SpoolError) {
        guard next.hasPassed else { return }
        next = .never
        try report.tell(upload)
        next = .after(interval)
    }

    /// The same where a heartbeat that fails must not end what it tells of: the client hears no more of
    /// the wait.
    package func beat(_ upload: Upload, failingInto log: Log) {
        do throws(SpoolError) { try beat(upload) } catch {
            log.spoolFailed(error, upload: upload.creation.id)
        }
    }
}
