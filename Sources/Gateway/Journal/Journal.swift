// What happens to uploads, told once: to the log for people, as an event for programs, and counted.
//
// Invariant: what is told to all of them is told by one call, so that all say the same.

import HTTPTypes
package import SpoolgateExchange
import SpoolgatePosix
package import SpoolgateSpool
package import SpoolgateUploadProtocol
package import SpoolgateUpstream

/// Log, events and counts of one process, or of one request in it.
///
/// Any thread; no call waits for whom it tells.
package struct Journal: Sendable {
    /// The log, with what correlates this request or upload in every line.
    package let log: Log
    /// The events.
    package let events: Events
    /// The counts.
    package let metrics: Metrics

    /// Makes a journal of all three.
    package init(_ log: Log, _ events: Events, _ metrics: Metrics) {
        self.log = log
        self.events = events
        self.metrics = metrics
    }

    /// The journal with `correlation` in every line; as it is for nil.
    package func correlated(_ correlation: String?) -> Journal {
        Journal(log.correlated(correlation), events, metrics)
    }

    /// The journal of one upload, with what correlates it.
    package func of(_ creation: UploadCreation) -> Journal {
        correlated(events.correlation(of: creation))
    }

    /// The same of an upload that was seen without holding it; as it is if nothing is known of the creation.
    package func of(_ summary: UploadSummary) -> Journal { summary.creation.map(of) ?? self }

    // MARK: While it is received

    /// An upload resource was created.
    package func created(_ upload: Upload) {
        log.created(upload.creation)
        count(.created, of: upload.creation)
        events.note(Event(.created, of: upload))
    }

    /// The content of one request is over, at its end or before; nothing is told of one without content.
    ///
    /// - Parameters:
    ///   - upload: where it went.
    ///   - path: who wrote it, and if it was not nginx why not.
    ///   - nginx: bytes that nginx has written.
    ///   - gateway: bytes that came through the gateway.
    ///   - counts: what is counted of its route.
    package func written(
        _ upload: Upload,
        _ path: ContentPath,
        nginx: Int64,
        gateway: Int64,
        on counts: RouteMetrics
    ) {
        // Of a client that left before its content, nginx's offer may not have come yet.
        guard nginx + gateway > 0 || path != .notOffered && path != .small else { return }
        log.written(upload.creation.id, path, nginx: nginx, gateway: gateway)
        counts.add(path)
    }

    /// Content ended early; what arrived is kept.
    package func interrupted(_ upload: Upload, reason: ContentError) {
        log.interrupted(upload.creation.id, offset: upload.offset, reason: reason)
        metrics.interruptions["\(reason)"].add()
        events.note(Event(.interrupted, of: upload, reason: "\(reason)"))
    }

    /// The content is whole.
    package func completed(_ upload: Upload) {
        let age = max(0, WallTime.now.seconds - upload.creation.created.seconds)
        let times = metrics[upload.creation.route].uploadTimes
        times.add(nanoseconds: Int(age) * 1_000_000_000)
        events.note(Event(.completed, of: upload))
    }

    /// An upload that can never become whole was removed.
    package func deactivated(_ upload: Upload, _ refusal: Refusal) {
        log.deactivated(upload.creation.id, reason: refusal.title)
        countFailure(upload.creation, reason: refusal.title)
        events.note(Event(.failed, of: upload, reason: refusal.title))
    }

    /// Its client removed it.
    package func cancelled(_ upload: Upload) {
        log.cancelled(upload.creation.id)
        count(.cancelled, upload.creation)
        metrics.waiting.forget(upload.creation.id)
        events.note(Event(.cancelled, of: upload))
    }

    /// It was idle for longer than its route keeps one, and was removed.
    package func expired(_ upload: Upload) {
        log.expired(upload.creation.id)
        count(.expired, upload.creation)
        events.note(Event(.expired, of: upload))
    }

    /// The same of one that nobody used; of a stored response only the log hears.
    package func expired(_ summary: UploadSummary) {
        switch summary.queue {
        case .delivered: return log.responseExpired(summary.id)
        case .hold: log.failedExpired(summary)
        case .incoming, .active, .deferred, .corrupt: log.expired(summary.id)
        }
        count(.expired, summary.creation)
        metrics.waiting.forget(summary.id)
        events.note(Event(.expired, of: summary))
    }

    // MARK: When it is delivered

    /// It was accepted for the queue.
    package func accepted(_ upload: Upload) {
        let creation = upload.creation
        log.accepted(
            creation.id,
            route: creation.route,
            target: creation.head.target,
            length: upload.offset
        )
        metrics.waiting.note(upload)
    }

    /// An attempt to deliver it begins.
    package func delivering(_ upload: Upload) {
        log.delivering(upload.creation.id, length: upload.offset)
        metrics.waiting.forget(upload.creation.id)
    }

    /// An attempt has ended, of an upload with a resource or without.
    ///
    /// - Parameters:
    ///   - counts: what is counted of its route.
    ///   - outcome: how it ended.
    ///   - client: whose upload it is.
    ///   - status: the upstream's; 0 where it gave none.
    ///   - isPutOff: whether that asks for another attempt.
    ///   - nanoseconds: how long it took.
    package func attempted(
        on counts: RouteMetrics,
        _ outcome: AttemptOutcome,
        of client: ClientName,
        status: Int,
        isPutOff: Bool = false,
        nanoseconds: Int
    ) {
        let result: RouteMetrics.Result =
            switch outcome {
            case .answered, .unheard: isPutOff ? .putOff : status < 400 ? .taken : .refused
            case .notTried: .notTried
            case .notReached: .notReached
            case .noRoom: .noRoom
            case .putOff, .redirected: .putOff
            case .notForwarded: .notReached
            case .indeterminate: .noAnswer
            case .abandoned: .abandoned
            }
        counts.add(result)
        counts.deliveryTimes.add(nanoseconds: nanoseconds)
        judge(counts, outcome, of: client, status: status)
    }

    /// An attempt to stream an ordinary upload to the upstream has ended; parameters as of `attempted`.
    package func streamed(
        on counts: RouteMetrics,
        _ outcome: AttemptOutcome,
        of client: ClientName,
        status: Int
    ) {
        // Its content is the client's connection: it broke off.
        if case .abandoned = outcome { return }
        judge(counts, outcome, of: client, status: status)
    }

    /// A whole upload could not be sent because of something else than its upstream and itself: what is asked about it,
    /// or what it is sent as.
    ///
    /// - Parameters:
    ///   - counts: what is counted of its route.
    ///   - client: whose upload it is.
    ///   - reason: one sentence.
    package func notSent(on counts: RouteMetrics, of client: ClientName, reason: String) {
        counts.health.addFailure(of: client, .notSent, reason: reason)
    }

    /// Tells the route's health what an attempt says of it.
    ///
    /// An answer of 4xx says nothing: the web server of an application that is down gives such answers as well. Nor
    /// does one that the client did not wait for, unless the upstream took the upload.
    private func judge(
        _ counts: RouteMetrics,
        _ outcome: AttemptOutcome,
        of client: ClientName,
        status: Int
    ) {
        switch outcome {
        case .answered where status >= 500:
            counts.health.addFailure(
                of: client,
                .sent,
                reason: "the upstream responded with \(status)"
            )
        case .answered, .unheard:
            if (200..<400).contains(status) { counts.health.reset() }
        case .notTried(let reason):
            counts.health.addFailure(of: client, .notTried, reason: reason)
        case .notReached(let reason, _), .notForwarded(let reason):
            counts.health.addFailure(of: client, .notSent, reason: reason)
        case .noRoom(let reason), .putOff(let reason, _), .indeterminate(let reason, _),
            .abandoned(let reason):
            counts.health.addFailure(of: client, .sent, reason: reason)
        // It was followed, and says nothing yet.
        case .redirected: break
        }
    }

    /// There is a final response of the upstream, which the client gets.
    package func delivered(_ upload: Upload, status: Int) {
        log.answered(upload, status: status)
        countDelivery(upload.creation, length: upload.offset, status: status)
        metrics.waiting.forget(upload.creation.id)
        events.note(Event(.delivered, of: upload, status: status))
    }

    /// The inspection or the authorizer refused it; that is its final response.
    ///
    /// `told`: what an event says in place of the reason.
    package func refused(
        _ upload: Upload,
        status: Int,
        reason: String,
        told: String? = nil
    ) {
        log.notTaken(upload.creation.id, status: status, reason: reason)
        countFailure(upload.creation, reason: reason)
        metrics.waiting.forget(upload.creation.id)
        events.note(Event(.failed, of: upload, status: status, reason: told ?? reason))
    }

    /// There is no final response yet, and the bytes stay.
    package func deferred(_ upload: Upload, reason: String) {
        log.deferred(upload.creation.id, reason: reason, next: upload.nextAttempt)
        metrics.waiting.note(upload)
        events.note(Event(.deferred, of: upload, reason: reason))
    }

    /// It is not delivered and will not be; it is kept in `hold`, if it has a record.
    ///
    /// `status` is the upstream's, where there was one.
    package func failed(_ upload: Upload, status: Int? = nil, reason: String) {
        if upload.isRecorded {
            log.failed(upload.creation.id, reason: reason)
        } else {
            log.ordinaryFailed(upload.creation, reason: reason)
        }
        countFailure(upload.creation, reason: reason)
        metrics.waiting.note(upload)
        events.note(Event(.failed, of: upload, status: status, reason: reason))
    }

    /// The upstream was sent it and gave no answer; it is kept in `hold`.
    package func indeterminate(_ upload: Upload, reason: String) {
        log.indeterminate(upload.creation.id, reason: reason)
        countFailure(upload.creation, .held, reason: "outcome unknown: \(reason)")
        metrics.waiting.note(upload)
        events.note(Event(.held, of: upload, reason: reason))
    }

    /// The same, found by recovery.
    package func indeterminate(_ summary: UploadSummary) {
        of(summary).log.indeterminate(summary.id, reason: summary.reason ?? "")
        count(.held, summary.creation)
        events.note(Event(.held, of: summary))
    }

    // MARK: Counting

    /// Counts an upload of which perhaps nothing is known.
    private func count(_ outcome: RouteMetrics.Outcome, _ creation: UploadCreation?) {
        guard let creation else { return metrics[Metrics.noRoute].add(outcome, .none) }
        count(outcome, of: creation)
    }

    @discardableResult
    private func count(
        _ outcome: RouteMetrics.Outcome,
        of creation: UploadCreation
    ) -> RouteMetrics {
        let counts = metrics[creation.route]
        // An ordinary upload has no resource.
        let dialect: RouteMetrics.DialectName =
            creation.resourcePath.isEmpty ? .none : creation.kind.family == .tus ? .tus : .ietf
        counts.add(outcome, dialect)
        return counts
    }

    private func countDelivery(_ creation: UploadCreation, length: Int64, status: Int) {
        let counts = count(.delivered, of: creation)
        if status < 400 {
            counts.delivered.add(Int(length))
        } else {
            metrics.failures.note(
                creation.id,
                route: creation.route,
                reason: "the upstream responded with \(status)"
            )
        }
    }

    private func countFailure(
        _ creation: UploadCreation,
        _ outcome: RouteMetrics.Outcome = .failed,
        reason: String
    ) {
        count(outcome, of: creation)
        metrics.failures.note(creation.id, route: creation.route, reason: reason)
    }
}
