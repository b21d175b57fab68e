// What happens to uploads, told once: to the log for people and as an event for programs.
//
// Invariant: what is told to both is told by one call, so that both say the same.

package import Exchange
import HTTPTypes
import Posix
package import Spool
package import UploadProtocol

/// Log and events of one process, or of one request in it.
///
/// Any thread; no call waits for whom it tells.
package struct Journal: Sendable {
    /// The log, with what correlates this request or upload in every line.
    package let log: Log
    /// The events.
    package let events: Events

    /// Makes a journal of both.
    package init(_ log: Log, _ events: Events) {
        self.log = log
        self.events = events
    }

    /// The journal with `correlation` in every line; as it is for nil.
    package func correlated(_ correlation: String?) -> Journal {
        Journal(log.correlated(correlation), events)
    }

    /// The journal of one upload, with what correlates it; as it is for nil.
    package func of(_ creation: UploadCreation?) -> Journal {
        correlated(creation.flatMap { events.correlation(of: $0) })
    }

    // MARK: While it is received

    /// An upload resource was created.
    package func created(_ upload: Upload) {
        log.created(upload.creation)
        events.note(Event(.created, of: upload))
    }

    /// Content ended early; what arrived is kept.
    package func interrupted(_ upload: Upload, reason: ContentError) {
        log.interrupted(upload.creation.id, offset: upload.state.offset, reason: reason)
        events.note(Event(.interrupted, of: upload, reason: "\(reason)"))
    }

    /// The content is whole.
    package func completed(_ upload: Upload) { events.note(Event(.completed, of: upload)) }

    /// An upload that can never become whole was removed.
    package func deactivated(_ upload: Upload, _ refusal: Refusal) {
        log.deactivated(upload.creation.id, reason: refusal.title)
        events.note(Event(.failed, of: upload, reason: refusal.title))
    }

    /// Its client removed it.
    package func cancelled(_ upload: Upload) {
        log.cancelled(upload.creation.id)
        events.note(Event(.cancelled, of: upload))
    }

    /// It was idle for longer than its route keeps one, and was removed.
    package func expired(_ upload: Upload) {
        log.expired(upload.creation.id)
        events.note(Event(.expired, of: upload))
    }

    /// The same of one that nobody used; of a stored response only the log hears.
    package func expired(_ summary: UploadSummary) {
        switch summary.queue {
        case .delivered: return log.responseExpired(summary.id)
        case .hold: log.failedExpired(summary)
        case .incoming, .active, .deferred, .corrupt: log.expired(summary.id)
        }
        events.note(Event(.expired, of: summary))
    }

    // MARK: When it is delivered

    /// There is a final response of the upstream, which the client gets.
    package func delivered(_ upload: Upload, status: Int) {
        if status < 400 {
            log.delivered(upload.creation.id, status: status)
        } else {
            log.refusedByUpstream(upload.creation.id, status: status)
        }
        events.note(Event(.delivered, of: upload, status: status))
    }

    /// The inspection or the authorizer refused it; that is its final response.
    package func refused(_ upload: Upload, status: Int, reason: String) {
        log.notTaken(upload.creation.id, status: status, reason: reason)
        events.note(Event(.failed, of: upload, status: status, reason: reason))
    }

    /// There is no final response yet, and the bytes stay.
    package func deferred(_ upload: Upload, reason: String) {
        log.deferred(upload.creation.id, reason: reason, next: upload.nextAttempt)
        events.note(Event(.deferred, of: upload, reason: reason))
    }

    /// It is not delivered and will not be; it is kept in `hold`.
    ///
    /// `status` is the upstream's, where there was one.
    package func failed(_ upload: Upload, status: Int? = nil, reason: String) {
        log.failed(upload.creation.id, reason: reason)
        events.note(Event(.failed, of: upload, status: status, reason: reason))
    }

    /// The upstream was sent it and gave no answer; it is kept in `hold`.
    package func indeterminate(_ upload: Upload, reason: String) {
        log.indeterminate(upload.creation.id, reason: reason)
        events.note(Event(.held, of: upload, reason: reason))
    }

    /// The same, found by recovery.
    package func indeterminate(_ summary: UploadSummary) {
        of(summary.creation).log.indeterminate(summary.id, reason: summary.reason ?? "")
        events.note(Event(.held, of: summary))
    }

    // MARK: Ordinary uploads, which have no resource

    /// The upstream has answered one.
    package func ordinaryDelivered(_ creation: UploadCreation, length: Int64, status: Int) {
        let id = creation.id
        if status < 400 {
            log.ordinaryDelivered(id, route: creation.route, length: length, status: status)
        } else {
            log.ordinaryRefused(id, route: creation.route, length: length, status: status)
        }
        events.note(Event(.delivered, ofOrdinary: creation, length: length, status: status))
    }

    /// One was not delivered, and its bytes are gone.
    package func ordinaryFailed(_ creation: UploadCreation, length: Int64, reason: String) {
        log.ordinaryFailed(creation.id, route: creation.route, reason: reason)
        events.note(Event(.failed, ofOrdinary: creation, length: length, reason: reason))
    }

    /// The inspection refused one; `message` is what it wrote.
    package func ordinaryInspected(
        _ creation: UploadCreation,
        length: Int64,
        status: Int,
        message: String
    ) {
        let reason = "refused by the inspection: \(message)"
        log.notTaken(creation.id, status: status, reason: reason)
        events.note(
            Event(.failed, ofOrdinary: creation, length: length, status: status, reason: message)
        )
    }
}
