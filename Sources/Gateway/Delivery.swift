// The delivery of one upload: one regular request to the upstream, the verdict stored, then relayed.
//
// A request that completed the upload drives it, or the queue; here they are the same. Invariant: an
// upload is in `active` exactly while its attempt runs.

import Crypto
import HTTPTypes
import Posix
import Spool
import UploadProtocol
import Upstream

/// Delivers whole uploads of one route.
struct Delivery {
    let gateway: Gateway
    let routeName: String
    var route: RouteInForce
    let upstream: Upstream
    let checks: RouteChecks
    let log: Log
    /// How long to wait for a free place among the deliveries.
    let patience: Duration
    /// The request that drives it; nil: the queue does.
    var visit: Visit?

    /// Delivers an upload that is whole and held.
    ///
    /// - Parameters:
    ///   - upload: the upload.
    ///   - listener: who waits for the verdict.
    /// - Returns: nil when the verdict is in and went to the listener, else why there is none; the
    ///   offset is durable then.
    /// - Throws: where the spool failed and the upstream has nothing.
    func deliver(_ upload: Upload, to listener: VerdictListener) throws(SpoolError) -> Refusal? {
        if case .ended(let refusal) = try check(upload, listener) { return refusal }
        guard let slot = try waitForSlot(upload, listener.heartbeat) else {
            return try postpone(
                upload,
                reason: "no free place among the deliveries",
                // Broken off, it hears nothing, and the queue goes on.
                listener.isResumable ? listener.unheard : listener,
                telling: .deliveryUnderWay
            )
        }
        defer { slot.giveBack() }
        return try attempt(upload, listener, in: slot)
    }

    /// Makes the attempt that is due for an upload in `deferred`, with nobody waiting for its verdict.
    func deliverQueued(_ upload: Upload) throws(SpoolError) {
        if upload.nextAttempt == nil {
            // Its client was told that it is not delivered, and has the time of the queue to come back.
            guard isOver(upload) else { return }
            return try fail(upload, reason: upload.reason ?? "its client did not come back")
        }
        // Who put it there may have died before it was durable, and clients are told of the attempt.
        try upload.settle()
        let answers = UploadResponse(dialect: .newest, limits: route.limits)
        _ = try deliver(upload, to: .nobody(answers, completing: try upload.completion()))
    }

    /// Keeps of the completing request what a delivery by the queue needs.
    ///
    /// - Throws: `SpoolError` where the record cannot be written.
    func keepCompletion(_ upload: Upload, _ fields: HTTPFields?) throws(SpoolError) {
        let kept = UpstreamFields.keptOfCompletion(fields ?? [:], policy: route.fields)
        if !kept.isEmpty { try upload.keepCompletion(kept) }
    }

    /// Waits for a slot; nil when none came free in time, or a newer request wants the upload.
    private func waitForSlot(
        _ upload: Upload,
        _ heartbeat: Heartbeat?
    ) throws(SpoolError) -> DeliverySlot? {
        let place = WaitingPlace(gateway.admission, for: visit)
        let end = Deadline.after(patience)
        let limit = WaitLimit(.after(min(patience, WaitingPlace.briefWait))) {
            !end.hasPassed && place.take() ? end : nil
        }
        while true {
            let deadline = limit.deadline
            // Whoever asks for the upload must not wait for a slot as well.
            let look = Deadline.after(.milliseconds(100))
            let next = min(deadline, look, heartbeat?.next ?? deadline)
            if let slot = gateway.slots.take(of: routeName, until: next) { return slot }
            if limit.hasPassed || upload.isAsked { return nil }
            // One that fails may have cut the content back: then this is no whole upload any more.
            try heartbeat?.beat(upload)
        }
    }

    private func attempt(
        _ upload: Upload,
        _ listener: VerdictListener,
        in slot: DeliverySlot
    ) throws(SpoolError) -> Refusal? {
        let id = upload.creation.id
        let isRepeatable = isRepeatable(upload)
        let relay = VerdictRelay(
            upload,
            to: listener,
            cap: Int(route.maxResponseSize),
            keepsRefused: isAccepted(upload),
            isRepeatable: isRepeatable,
            log: log
        )
        relay.slot = slot
        switch try checkDigests(of: upload, completing: listener.completing, relay.attemptGoesOn) {
        case .success(let digests): relay.digests = digests
        case .failure(let refusal): return refusal
        }
        let form: UploadForm
        do throws(FormFailure) {
            form = try self.form(of: upload, completing: listener.completing, relay)
        } catch {
            return try postpone(
                upload,
                reason: error.reason,
                listener,
                telling: error.refusal(isKept: true)
            )
        }
        try upload.beginAttempt(isRepeatable: isRepeatable)
        log.delivering(id, length: upload.state.offset)
        let outcome = upstream.attempt(form.request, sink: relay)
        if outcome == .answered { relay.finish() }
        form.end(status: relay.isStored ? relay.status : nil)
        if let error = relay.spoolError {
            // The upstream has taken the upload: its client must hear that, stored or not.
            guard relay.hasBegun else { throw error }
            log.spoolFailed(error, upload: id)
        }
        switch outcome {
        case .answered where relay.isPutOff:
            return try postpone(
                upload,
                reason: "the upstream answered \(relay.status)",
                listener,
                asked: relay.retryAfter,
                telling: .upstreamBusy(retryAfter: relay.retryAfter)
            )
        case .answered:
            noteVerdict(of: upload, relay)
            return nil
        case .notReached(let reason, let timedOut):
            return try postpone(
                upload,
                reason: reason,
                listener,
                telling: .notReached(timedOut: timedOut, isKept: true)
            )
        case .noRoom(let reason):
            return try postpone(
                upload,
                reason: reason,
                listener,
                telling: .destinationFull(isKept: true)
            )
        case .indeterminate(let reason, _), .abandoned(let reason), .unheard(let reason):
            // Over the cap the verdict was stored before its content was relayed; what the client
            // has of that content is not the whole.
            if relay.isStored || relay.hasBegun {
                noteVerdict(of: upload, relay)
                relay.breakOff()
                return nil
            }
            if isRepeatable {
                return try postpone(
                    upload,
                    reason: reason,
                    listener,
                    telling: .brokeOff(outcome)
                )
            }
            try upload.indeterminate(reason: reason)
            gateway.holdSizes.add(upload.state.offset, of: routeName)
            log.indeterminate(id, reason: reason)
            gateway.events.note(Event(.held, of: upload, reason: reason))
            return .silent(timedOut: outcome.timedOut)
        }
    }

    private func noteVerdict(of upload: Upload, _ relay: VerdictRelay) {
        if let reason = upload.holdCause == .failed ? upload.reason : nil {
            gateway.holdSizes.add(upload.state.offset, of: routeName)
            log.failed(upload.creation.id, reason: reason)
            gateway.events.note(Event(.failed, of: upload, status: relay.status, reason: reason))
        } else {
            if relay.status < 400 {
                log.delivered(upload.creation.id, status: relay.status)
            } else {
                log.refusedByUpstream(upload.creation.id, status: relay.status)
            }
            gateway.events.note(Event(.delivered, of: upload, status: relay.status))
        }
    }

    /// Whether an attempt of unknown outcome may be repeated, by the settings of the creation and by those
    /// in force: a reload may have made a POST of it, or taken its key away.
    private func isRepeatable(_ upload: Upload) -> Bool {
        upload.creation.isRepeatable && route.settings.mayRepeat(upload.creation.head)
    }

    /// Whether the client was told 202, and so hears nothing of what the upstream says.
    private func isAccepted(_ upload: Upload) -> Bool {
        route.reply == .accepted && upload.nextAttempt != nil
    }

    // MARK: Trying again

    /// Keeps the bytes for another attempt: the queue's, unless a client hears now that it may try.
    ///
    /// - Parameters:
    ///   - upload: the upload.
    ///   - reason: why there is no verdict.
    ///   - listener: who is told.
    ///   - asked: seconds the upstream asked to wait.
    ///   - refusal: what the listener is told.
    /// - Returns: the refusal, or another one where it is not tried again.
    /// - Throws: where the disk does not take what became of it.
    func postpone(
        _ upload: Upload,
        reason: String,
        _ listener: VerdictListener,
        asked: Int? = nil,
        telling refusal: Refusal
    ) throws(SpoolError) -> Refusal {
        let pause = route.queue.pause(
            after: upload.attempts,
            asked: asked,
            random: RandomBits.next()
        )
        let next = WallTime(seconds: gateway.clock.now.seconds + pause.components.seconds)
        if isOver(upload, in: pause) {
            // It goes to `hold` from `deferred` or `active`, never from where it is received.
            if upload.state.phase == .receiving { try upload.deferred(reason: reason) }
            try fail(upload, reason: reason)
            return .deliveryFailed
        }
        // Who hears that it is not delivered must not find it delivered behind its back.
        let isQueued = !listener.isThere
        if isQueued { try keepCompletion(upload, listener.completing) }
        try upload.deferred(reason: reason, next: isQueued ? next : nil)
        try upload.settle()
        log.deferred(upload.creation.id, reason: reason, next: upload.nextAttempt)
        gateway.events.note(Event(.deferred, of: upload, reason: reason))
        return refusal
    }

    /// Whether the upload's time in the queue is over when `pause` is.
    private func isOver(_ upload: Upload, in pause: Duration = .zero) -> Bool {
        let now = gateway.clock.confirmed
        return route.queue.isOver(
            since: upload.wholeSince ?? now,
            at: WallTime(seconds: now.seconds + pause.components.seconds)
        )
    }

    private func fail(_ upload: Upload, reason: String) throws(SpoolError) {
        let whole = "its time in the queue is over; the last attempt: \(reason)"
        try upload.failed(reason: whole)
        gateway.holdSizes.add(upload.state.offset, of: routeName)
        log.failed(upload.creation.id, reason: whole)
        gateway.events.note(Event(.failed, of: upload, reason: whole))
    }
}

extension Refusal {
    /// The upstream was not reached; `timedOut`: a deadline ended it.
    ///
    /// Why stands in the log: it names hosts and files of the inside.
    static func notReached(timedOut: Bool, isKept: Bool) -> Refusal {
        .upstreamNotReached(
            reason: timedOut ? "its time ran out" : "no connection could be made",
            timedOut: timedOut,
            isKept: isKept
        )
    }

    /// An attempt that may be repeated ended without an answer; the log says why.
    static func brokeOff(_ outcome: AttemptOutcome) -> Refusal {
        let isOurs = if case .abandoned = outcome { true } else { false }
        return .upstreamBrokeOff(
            reason: outcome.timedOut
                ? "its time ran out"
                : isOurs ? "the upload could not be read to its end" : "the connection ended",
            timedOut: outcome.timedOut
        )
    }

    /// The upstream was sent the request and did not answer; the log says why.
    static func silent(timedOut: Bool) -> Refusal {
        .upstreamSilent(
            reason: timedOut ? "its time ran out" : "the connection ended",
            timedOut: timedOut
        )
    }
}

extension AttemptOutcome {
    /// Why there is no whole answer; nil where there is one.
    var reason: String? {
        switch self {
        case .answered: nil
        case .notReached(let reason, _), .noRoom(let reason), .indeterminate(let reason, _),
            .abandoned(let reason), .unheard(let reason):
            reason
        }
    }

    /// Whether a deadline of the upstream ended the attempt.
    var timedOut: Bool {
        switch self {
        case .notReached(_, let timedOut), .indeterminate(_, let timedOut): timedOut
        case .answered, .noRoom, .abandoned, .unheard: false
        }
    }
}
