// Sends every 104 (Upload Resumption Supported): an upload's location, progress while content arrives, and heartbeats
// while the client waits for the upstream, so that no idle timer expires.
//
// Invariant: an offset is durable before it is sent, and content is synced here only to send its offset.

package import HTTPTypes
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
    package static func send(
        location: String,
        to exchange: any Exchange,
        _ responses: any ResponseWording
    ) {
        exchange.send(interim: responses.interimCreated(location: location))
    }

    /// Makes the upload's offset durable, then sends the offset.
    package func send(_ upload: Upload) throws(SpoolError) {
        try upload.sync()
        send(durable: upload.durableOffset)
    }

    /// Sends an offset that is already durable.
    package func send(durable offset: Int64) {
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
        try report.send(upload)
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

// MARK: The response

// The receiver of a delivery's final response.

/// The receiver of a final response, and the form of the response.
package struct ResponseListener {
    /// The waiting request; nil if the response is only stored.
    package var exchange: (any Exchange)?
    let responses: any ResponseWording
    /// The URI of the upload resource; nil unless the request is the creation.
    package var location: String?
    /// The sender of heartbeats; nil if the client cannot receive them.
    package var heartbeat: Heartbeat?
    /// The fields of the request that completed the upload, if any, with the credentials of the attempt.
    var completing: HTTPFields?
    /// The request that waits for the result, although the final response is only stored; nil if none does.
    package var waiting: (any Exchange)?
    /// Whether the client can resume after a lost connection.
    package var isResumable = false
    /// Whether the client sent the whole upload in this request.
    package var hasSentAll = false
    /// Whether the client did not use the upload protocol.
    private let isOrdinary: Bool

    /// Creates a listener without a request: the final response is only stored.
    package init(
        _ responses: any ResponseWording,
        completing: HTTPFields?,
        isOrdinary: Bool = false
    ) {
        self.responses = responses
        self.completing = completing
        self.isOrdinary = isOrdinary
    }

    /// `isSuccess` is true if the upstream has accepted the upload.
    func final(_ head: ResponseHead, of upload: Upload, isSuccess: Bool) -> FinalHead {
        isOrdinary
            ? .ordinary(head)
            : responses.final(
                head,
                isSuccess: isSuccess,
                offset: upload.offset,
                location: location
            )
    }

    /// A copy that only stores the response.
    var storingOnly: ResponseListener { ResponseListener(responses, completing: completing) }

    var isThere: Bool { (exchange ?? waiting).map { !$0.isPeerGone } ?? false }

    /// What the client can still do.
    ///
    /// `isAccepted` is true if the client received 202 for the upload.
    func knowledge(isAccepted: Bool) -> ClientKnowledge {
        if isAccepted { return .accepted }
        guard isThere else { return .gone }
        if hasSentAll { return isResumable ? .all : .message }
        if responses.dialect.family == .tus { return .tus }
        return responses.dialect.takesOffsetForSuccess ? .eager : .resource
    }
}

// MARK: Relayed heads

// The limit of web servers on the head of a relayed response.

extension ResponseHead {
    /// Returns the head without the fields that exceed the limit.
    ///
    /// Logs if fields were removed.
    package func fitting(noting log: Log, upload: UploadID? = nil) -> ResponseHead {
        guard fieldBytes > Self.maximumFieldBytes else { return self }
        log.headCut(upload: upload, bytes: fieldBytes)
        return fitting
    }
}
