// Reports about uploads: log lines for people, events for programs, and metrics.
//
// Invariant: one call makes all reports about a change, so that they agree.

import HTTPTypes
package import SpoolgateExchange
import SpoolgatePosix
package import SpoolgateSpool
package import SpoolgateUploadProtocol
package import SpoolgateUpstream

/// The log, events and metrics of one process or request.
///
/// Thread-safe; no call waits for a webhook.
package struct Journal: Sendable {
    /// Each line contains the correlation ID of the request or upload, if there is one.
    package let log: Log
    package let events: Events
    package let metrics: Metrics

    /// Creates a journal.
    package init(_ log: Log, _ events: Events, _ metrics: Metrics) {
        self.log = log
        self.events = events
        self.metrics = metrics
    }

    /// Returns a journal whose log lines contain the ID `correlation`; unchanged if `correlation` is nil.
    package func correlated(_ correlation: String?) -> Journal {
        Journal(log.correlated(correlation), events, metrics)
    }

    /// Returns a journal whose log lines contain the upload's correlation ID, if it has one.
    package func of(_ creation: UploadCreation) -> Journal {
        correlated(events.correlation(of: creation))
    }

    /// Returns a journal for an upload read without a lock; unchanged if its creation is unknown.
    package func of(_ summary: UploadSummary) -> Journal { summary.creation.map(of) ?? self }

    // MARK: Reception

    /// Reports the creation of an upload resource.
    package func created(_ upload: Upload) {
        log.created(upload.creation)
        count(.created, upload.creation)
        events.note(Event(.created, of: upload))
    }

    /// Reports how the content of one request reached the spool.
    ///
    /// Call it when the content has ended, completely or early. nginx wrote `nginx` bytes, and `gateway` bytes passed
    /// through the gateway.
    package func written(
        _ upload: Upload,
        _ path: ContentPath,
        nginx: Int64,
        gateway: Int64,
        on counts: RouteMetrics
    ) {
        // Without content nothing is reported because, if the client left early, nginx may not have offered to write
        // yet.
        guard nginx + gateway > 0 || path != .notOffered && path != .small else { return }
        log.written(upload.creation.id, path, nginx: nginx, gateway: gateway)
        counts.add(path)
    }

    /// Reports an error of the spool; `upload` is nil if it concerns no single upload.
    package func spoolFailed(_ error: SpoolError, upload: UploadID?) {
        log.spoolFailed(error, upload: upload)
        switch error {
        case .corrupt(let id, _): metrics.waiting.noteCorrupt(id)
        case .full, .fewFiles, .noSpace, .overQuota, .tooMany, .exhausted, .busy: break
        default: metrics.spoolErrors.note(error.sentence)
        }
    }

    /// Reports that recovery moved an upload to `corrupt`.
    package func setAside(_ id: UploadID, reason: String) {
        log.setAside(id, reason: reason)
        metrics.waiting.noteCorrupt(id)
    }

    /// Reports that the content of a request ended early; the bytes received so far are kept.
    package func interrupted(_ upload: Upload, reason: ContentError) {
        log.interrupted(upload.creation.id, offset: upload.offset, reason: reason)
        metrics.interruptions[reason.rawValue].add()
        events.note(Event(.interrupted, of: upload, reason: "\(reason)"))
    }

    /// Reports that an upload's content is complete.
    package func completed(_ upload: Upload) {
        let age = max(0, WallTime.now.seconds - upload.creation.created.seconds)
        let times = metrics[upload.creation.route].uploadTimes
        times.add(nanoseconds: Int(age) * 1_000_000_000)
        events.note(Event(.completed, of: upload))
    }

    /// Reports the removal of an upload that can never become complete.
    package func deactivated(_ upload: Upload, _ refusal: Refusal) {
        log.deactivated(upload.creation.id, reason: refusal.title)
        countFailure(upload.creation, reason: refusal.title)
        events.note(Event(.failed, of: upload, reason: refusal.title))
    }

    /// Reports a client's cancellation of its upload.
    package func cancelled(_ upload: Upload) {
        log.cancelled(upload.creation.id)
        count(.cancelled, upload.creation)
        metrics.waiting.forget(upload.creation.id)
        events.note(Event(.cancelled, of: upload))
    }

    /// Reports the removal of an upload that was idle longer than its route allows.
    package func expired(_ upload: Upload) {
        log.expired(upload.creation.id)
        count(.expired, upload.creation)
        events.note(Event(.expired, of: upload))
    }

    /// Reports the removal of an expired upload that was read without a lock.
    ///
    /// If only its stored response was left, no event is written.
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

    // MARK: Delivery

    /// Reports that the queue accepted a complete upload for delivery.
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

    /// Reports the start of a delivery attempt.
    package func delivering(_ upload: Upload) {
        log.delivering(upload.creation.id, length: upload.offset)
        metrics.waiting.forget(upload.creation.id)
    }

    /// Reports the end of a delivery attempt.
    ///
    /// `status` is 0 if the upstream sent no response. `isDeferred` states whether the upstream's response asks for
    /// another attempt.
    package func attempted(
        on counts: RouteMetrics,
        _ outcome: AttemptOutcome,
        of client: ClientName,
        status: Int,
        isDeferred: Bool = false,
        nanoseconds: Int
    ) {
        let result: RouteMetrics.Result =
            switch outcome {
            case .responded, .undelivered:
                isDeferred ? .deferred : status < 400 ? .accepted : .refused
            case .notTried: .notAttempted
            case .notReached: .unreachable
            case .noRoom: .upstreamFull
            case .deferred, .redirected: .deferred
            case .notForwarded: .unreachable
            case .indeterminate: .noResponse
            case .abandoned: .abandoned
            }
        counts.results.add(result)
        counts.deliveryTimes.add(nanoseconds: nanoseconds)
        judge(counts, outcome, of: client, status: status)
    }

    /// Reports the end of an attempt to send an upload without a resource while it was received.
    ///
    /// `status` is 0 if the upstream sent no response.
    package func streamed(
        on counts: RouteMetrics,
        _ outcome: AttemptOutcome,
        of client: ClientName,
        status: Int
    ) {
        // The client's connection ended the content early, which says nothing about the upstream.
        if case .abandoned = outcome { return }
        judge(counts, outcome, of: client, status: status)
    }

    /// Reports that a complete upload could not be sent, although neither the upstream nor the upload is at fault, as
    /// when a check or conversion before the delivery fails.
    ///
    /// `reason` must be one sentence.
    package func notSent(on counts: RouteMetrics, of client: ClientName, reason: String) {
        counts.health.addFailure(of: client, .notSent, reason: reason)
    }

    /// Updates the route's health after a delivery attempt.
    ///
    /// A 4xx response does not change the health, because the web server of an application that is down sends such
    /// responses too. Neither does a response to a client that had disconnected, unless the upstream accepted the
    /// upload.
    private func judge(
        _ counts: RouteMetrics,
        _ outcome: AttemptOutcome,
        of client: ClientName,
        status: Int
    ) {
        switch outcome {
        case .responded where status >= 500:
            let reason = "the upstream responded with \(status)"
            counts.health.addFailure(of: client, .sent, reason: reason)
        case .responded, .undelivered:
            if (200..<400).contains(status) { counts.health.reset() }
        case .notTried(let reason):
            counts.health.addFailure(of: client, .notTried, reason: reason)
        case .notReached(let reason, _), .notForwarded(let reason):
            counts.health.addFailure(of: client, .notSent, reason: reason)
        case .noRoom(let reason), .deferred(let reason, _), .indeterminate(let reason, _),
            .abandoned(let reason):
            counts.health.addFailure(of: client, .sent, reason: reason)
        // The next attempt decides.
        case .redirected: break
        }
    }

    /// Reports the upstream's final response, which is passed on to the client.
    package func delivered(_ upload: Upload, status: Int) {
        log.responded(upload, status: status)
        if status < 400 {
            count(.delivered, upload.creation).delivered.add(Int(upload.offset))
        } else {
            let reason = "the upstream responded with \(status)"
            countFailure(upload.creation, .delivered, reason: reason)
        }
        metrics.waiting.forget(upload.creation.id)
        events.note(Event(.delivered, of: upload, status: status))
    }

    /// Reports that the inspection or the authorizer refused a complete upload.
    ///
    /// `status` is the status of the response to the client. The event contains `message` instead of `reason`, unless
    /// `message` is nil.
    package func refused(
        _ upload: Upload,
        status: Int,
        reason: String,
        message: String? = nil
    ) {
        log.notTaken(upload.creation.id, status: status, reason: reason)
        countFailure(upload.creation, reason: reason)
        metrics.waiting.forget(upload.creation.id)
        events.note(Event(.failed, of: upload, status: status, reason: message ?? reason))
    }

    /// Reports a failed delivery attempt; the upload is kept for another attempt.
    package func deferred(_ upload: Upload, reason: String) {
        log.deferred(upload.creation.id, reason: reason, next: upload.nextAttempt)
        metrics.waiting.note(upload)
        events.note(Event(.deferred, of: upload, reason: reason))
    }

    /// Reports that an upload will not be delivered; `status` is nil if the upstream sent no response.
    ///
    /// The upload is kept in the queue `hold` if it has a record, and removed otherwise.
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

    /// Reports that the upstream may have received an upload but sent no response; the upload is kept in the queue
    /// `hold` until an operator acts.
    package func indeterminate(_ upload: Upload, reason: String) {
        log.indeterminate(upload.creation.id, reason: reason)
        countFailure(upload.creation, .held, reason: "outcome unknown: \(reason)")
        metrics.waiting.note(upload)
        events.note(Event(.held, of: upload, reason: reason))
    }

    /// Reports that recovery found an upload whose delivery a crash interrupted; the upload is kept in the queue `hold`
    /// until an operator acts.
    package func indeterminate(_ summary: UploadSummary) {
        of(summary).log.indeterminate(summary.id, reason: summary.reason ?? "")
        count(.held, summary.creation)
        events.note(Event(.held, of: summary))
    }

    // MARK: Counting

    /// Counts an outcome, and returns the metrics of the upload's route.
    @discardableResult
    private func count(
        _ outcome: RouteMetrics.Outcome,
        _ creation: UploadCreation?
    ) -> RouteMetrics {
        let counts = metrics[creation?.route ?? Metrics.noRoute]
        // An ordinary upload, without a resource, uses neither protocol.
        let dialect: RouteMetrics.DialectName =
            creation?.resourcePath.isEmpty ?? true
            ? .none : creation?.kind.family == .tus ? .tus : .ietf
        counts.add(outcome, dialect)
        return counts
    }

    private func countFailure(
        _ creation: UploadCreation,
        _ outcome: RouteMetrics.Outcome = .failed,
        reason: String
    ) {
        count(outcome, creation)
        metrics.failures.note(creation.id, route: creation.route, reason: reason)
    }
}
