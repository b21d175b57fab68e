// The delivery of one upload: one regular request to the upstream, the final response stored, then relayed.
//
// A request that completed the upload drives it, or the queue; here they are the same. Invariant: an
// upload is in `active` exactly while its attempt runs.

import Crypto
package import Exchange
package import HTTPTypes
package import Journal
import Posix
import Settings
package import Spool
package import UploadProtocol
import Upstream

/// Delivers whole uploads of one route.
package struct Delivery {
    /// What all deliveries share.
    let deliveries: Deliveries
    let route: Route
    let journal: Journal
    /// How long to wait for a free place among the deliveries.
    let patience: Duration
    /// The request that drives it; nil: the queue does.
    let visit: Visit?

    /// Makes the delivery of uploads of one route.
    ///
    /// - Parameters:
    ///   - deliveries: what all deliveries share.
    ///   - route: the route.
    ///   - journal: the journal, correlated with the upload.
    ///   - patience: how long to wait for a free place among the deliveries.
    ///   - visit: the request that drives it; nil: the queue does.
    package init(
        _ deliveries: Deliveries,
        route: Route,
        journal: Journal,
        patience: Duration,
        visit: Visit? = nil
    ) {
        self.deliveries = deliveries
        self.route = route
        self.journal = journal
        self.patience = patience
        self.visit = visit
    }

    /// Delivers an upload that is whole and held.
    ///
    /// One without a record is sent once, takes no slot, and nothing of it is kept.
    ///
    /// - Parameters:
    ///   - upload: the upload.
    ///   - listener: who waits for the final response.
    ///   - digests: the upload's, checked; nil: they are computed here.
    /// - Returns: nil when the final response is in and went to the listener, else why there is none; the
    ///   offset is durable then.
    /// - Throws: where the spool failed and the upstream has nothing.
    package func deliver(
        _ upload: Upload,
        to listener: ResponseListener,
        _ digests: UploadDigests? = nil
    ) throws(SpoolError) -> Refusal? {
        if let seconds = pause(of: upload) {
            try upload.sync()
            return .deliveryPauses(seconds)
        }
        if case .ended(let refusal) = try check(upload, listener) { return refusal }
        // Its client waits for nobody but the upstream, as it would without a gateway.
        if !upload.isRecorded, let digests {
            return try attempt(upload, digests, listener, in: nil)
        }
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
        let checked = try checkDigests(
            of: upload,
            completing: listener.completing,
            told: route.toldDigests,
            listener.heartbeat
        )
        switch checked {
        case .success(let digests): return try attempt(upload, digests, listener, in: slot)
        case .failure(let refusal): return refusal
        }
    }

    /// Delivers an upload that was left to wait, maybe by a process that has died.
    ///
    /// The other parameters and results are those of `deliver`.
    package func deliverWaiting(_ upload: Upload, to listener: ResponseListener) throws(SpoolError)
        -> Refusal?
    {
        // Who put it there may have died before it was durable, and clients are told of the attempt.
        try upload.sync()
        guard try consumeParts(of: upload) else {
            return try postpone(
                upload,
                reason: "one of its parts is in use",
                listener,
                telling: .deliveryUnderWay
            )
        }
        return try deliver(upload, to: listener)
    }

    /// Consumes the parts of an upload that is made of parts and durable: who made it may have died before.
    ///
    /// - Returns: false where a part is in use.
    private func consumeParts(of upload: Upload) throws(SpoolError) -> Bool {
        let id = upload.creation.id
        for part in upload.creation.parts ?? [] {
            guard let locked = try deliveries.spool.tryLock(part) else {
                if try deliveries.spool.look(at: part) != nil { return false }
                continue
            }
            defer { locked.unlock() }
            if locked.final == id { try locked.consume(for: upload.creation.resourcePath) }
        }
        return true
    }

    /// Makes the attempt that is due for an upload in `deferred`, with nobody waiting for its final response.
    package func deliverQueued(_ upload: Upload) throws(SpoolError) {
        if upload.nextAttempt == nil {
            // Its client was told that it is not delivered, and has the time of the queue to come back.
            guard isOver(upload) else { return }
            // Nobody could deliver it, and whoever has no credentials must not fill the hold.
            if upload.lacksCredentials {
                try upload.remove(durably: true)
                return journal.expired(upload)
            }
            return try fail(upload, reason: upload.reason ?? "its client did not come back")
        }
        let responses = ResponseBuilder(dialect: .newest, limits: route.settings.limits)
        _ = try deliverWaiting(
            upload,
            to: ResponseListener(responses, completing: try upload.completion())
        )
    }

    /// Keeps of the completing request what a delivery by the queue needs.
    ///
    /// - Throws: `SpoolError` where the record cannot be written.
    package func keepCompletion(_ upload: Upload, _ fields: HTTPFields?) throws(SpoolError) {
        guard let fields else { return }
        let kept = UpstreamFields.keptOfCompletion(
            fields,
            of: upload.creation.head.fields,
            policy: route.settings.fields
        )
        if !kept.isEmpty { try upload.keepCompletion(kept) }
    }

    /// Waits for a slot; nil when none came free in time, or a newer request wants the upload.
    private func waitForSlot(
        _ upload: Upload,
        _ heartbeat: Heartbeat?
    ) throws(SpoolError) -> DeliverySlot? {
        let place = WaitingPlace(deliveries.admission, for: visit)
        let line = deliveries.slots.lineUp(ofRoute: route.name, for: upload.creation.client)
        defer { line.leave() }
        let end = Deadline.after(patience)
        let limit = WaitLimit(.after(min(patience, WaitingPlace.briefWait))) {
            !end.hasPassed && place.take() ? end : nil
        }
        while true {
            let deadline = limit.deadline
            // Whoever asks for the upload must not wait for a slot as well.
            let look = Deadline.after(.milliseconds(100))
            let next = min(deadline, look, heartbeat?.next ?? deadline)
            if let slot = line.take(until: next) { return slot }
            if limit.hasPassed || upload.isReleaseRequested { return nil }
            // One that fails may have cut the content back: then this is no whole upload any more.
            try heartbeat?.beat(upload)
        }
    }

    private func attempt(
        _ upload: Upload,
        _ digests: UploadDigests,
        _ listener: ResponseListener,
        in slot: DeliverySlot?
    ) throws(SpoolError) -> Refusal? {
        let isRepeatable = upload.isRecorded && isRepeatable(upload)
        let relay = FinalResponseRelay(
            upload,
            digests,
            to: listener,
            of: self,
            isRepeatable: isRepeatable,
            in: slot
        )
        let form: UploadForm
        do throws(FormFailure) {
            form = try self.form(of: upload, completing: listener.completing, relay)
        } catch {
            journal.notSent(on: route.counts, of: upload.creation.client, reason: error.reason)
            return try postpone(
                upload,
                reason: error.reason,
                listener,
                telling: error.refusal(isKept: upload.isRecorded)
            )
        }
        let outcome = try send(form, relay, upload, isRepeatable: isRepeatable)
        guard upload.isRecorded else { return end(upload, outcome, form, relay) }
        return try end(upload, outcome, form, relay, listener, isRepeatable: isRepeatable)
    }

    /// What becomes of an upload without a record after its one attempt.
    private func end(
        _ upload: Upload,
        _ outcome: AttemptOutcome,
        _ form: UploadForm,
        _ relay: FinalResponseRelay
    ) -> Refusal? {
        form.end(status: relay.status)
        guard let reason = outcome.reason,
            let refusal = outcome.refusal(isRepeatable: false, isKept: false)
        else {
            journal.delivered(upload, status: relay.status)
            return nil
        }
        if case .unheard = outcome {
            // The upstream has answered; only its client does not hear all of it.
            journal.delivered(upload, status: relay.status)
            let target = upload.creation.head.target
            journal.log.clientGone(route: route.name, target: target, reason: reason)
            relay.breakOff()
            return nil
        }
        if outcome.isUnsent { form.takeBack() }
        journal.failed(upload, reason: reason)
        guard relay.hasBegun else { return refusal }
        relay.breakOff()
        return nil
    }

    /// What becomes of an upload after an attempt; parameters and results are those of `deliver`.
    private func end(
        _ upload: Upload,
        _ outcome: AttemptOutcome,
        _ form: UploadForm,
        _ relay: FinalResponseRelay,
        _ listener: ResponseListener,
        isRepeatable: Bool
    ) throws(SpoolError) -> Refusal? {
        if outcome == .answered { relay.finish() }
        form.end(status: relay.isStored ? relay.status : nil)
        if let error = relay.spoolError {
            // The upstream has taken the upload: its client must hear that, stored or not.
            guard relay.hasBegun else { throw error }
            journal.log.spoolFailed(error, upload: upload.creation.id)
        }
        guard let reason = outcome.reason,
            let refusal = outcome.refusal(isRepeatable: isRepeatable, isKept: true)
        else {
            if relay.fate.tellsResponse {
                noteFinalResponse(of: upload, relay)
                return nil
            }
            return try postpone(
                upload,
                reason: "the upstream answered \(relay.status)",
                listener,
                asked: relay.retryAfter,
                telling: relay.refusal,
                lacksCredentials: relay.fate == .deferredForClient
            )
        }
        // Over the cap the final response was stored before its content was relayed; what the client has of
        // that content is not the whole.
        if relay.isStored || relay.hasBegun {
            noteFinalResponse(of: upload, relay)
            relay.breakOff()
            return nil
        }
        let result: AttemptResult = outcome.isUnsent ? .unsent : .unanswered
        if AttemptFate(after: result, isRepeatable: isRepeatable, .gone) == .deferred {
            return try postpone(
                upload,
                reason: reason,
                listener,
                asked: outcome.retryAfter,
                telling: refusal
            )
        }
        try upload.hold(.indeterminate, reason: reason)
        deliveries.holdSizes.add(upload)
        journal.indeterminate(upload, reason: reason)
        return refusal
    }

    /// The most redirects that one delivery follows.
    private static let mostRedirects = 2

    /// Makes the attempt itself, and one more for each redirect within the upstream; counts the last.
    private func send(
        _ form: UploadForm,
        _ relay: FinalResponseRelay,
        _ upload: Upload,
        isRepeatable: Bool
    ) throws(SpoolError) -> AttemptOutcome {
        let watch = Stopwatch()
        let outcome =
            upload.isRecorded
            ? try sendAttempts(form, relay, upload, isRepeatable: isRepeatable)
            : route.upstream.attempt(form.request, sink: relay)
        journal.attempted(
            on: route.counts,
            outcome,
            of: upload.creation.client,
            status: relay.status,
            isPutOff: !relay.fate.tellsResponse,
            nanoseconds: watch.nanoseconds
        )
        return outcome
    }

    private func sendAttempts(
        _ form: UploadForm,
        _ relay: FinalResponseRelay,
        _ upload: Upload,
        isRepeatable: Bool
    ) throws(SpoolError) -> AttemptOutcome {
        journal.metrics.delivering.add()
        defer { journal.metrics.delivering.add(-1) }
        var request = form.request
        var redirects = 0
        try upload.beginAttempt(isRepeatable: isRepeatable)
        while true {
            journal.delivering(upload)
            // One too many goes to the relay, as one that leads elsewhere.
            request.interceptsRedirects = redirects < Self.mostRedirects
            let outcome = route.upstream.attempt(request, sink: relay)
            guard case .redirected(let target) = outcome else { return outcome }
            request.target = target
            redirects += 1
            try upload.beginNextAttempt()
        }
    }

    private func noteFinalResponse(of upload: Upload, _ relay: FinalResponseRelay) {
        guard let cause = upload.holdCause else {
            return journal.delivered(upload, status: relay.status)
        }
        deliveries.holdSizes.add(upload)
        let reason = upload.reason ?? ""
        if cause == .failed {
            journal.failed(upload, status: relay.status, reason: reason)
        } else {
            journal.indeterminate(upload, reason: reason)
        }
    }

    /// Whether an attempt of unknown outcome may be repeated, by the settings of the creation and by those
    /// in force: a reload may have made a POST of it, or taken its key away.
    private func isRepeatable(_ upload: Upload) -> Bool {
        upload.creation.isRepeatable && route.mayRepeat(upload.creation.head)
    }

    // MARK: Trying again

    /// Keeps the bytes for another attempt: the queue's, unless a client hears now that it may try.
    ///
    /// An upload without a record has failed.
    ///
    /// - Parameters:
    ///   - upload: the upload.
    ///   - reason: why there is no final response.
    ///   - listener: who is told.
    ///   - asked: seconds the upstream asked to wait.
    ///   - refusal: what the listener is told.
    ///   - lacksCredentials: whether it waits for other credentials of its client, so that the queue could do nothing.
    /// - Returns: the refusal, or another one where it is not tried again.
    /// - Throws: where the disk does not take what became of it.
    func postpone(
        _ upload: Upload,
        reason: String,
        _ listener: ResponseListener,
        asked: Int? = nil,
        telling refusal: Refusal,
        lacksCredentials: Bool = false
    ) throws(SpoolError) -> Refusal {
        guard upload.isRecorded else {
            journal.failed(upload, reason: reason)
            return refusal
        }
        let pause = route.settings.queue.pause(
            after: upload.attempts,
            asked: asked,
            random: RandomBits.next()
        )
        let next = WallTime(seconds: deliveries.clock.now.seconds + pause.components.seconds)
        if isOver(upload, in: pause) {
            try fail(upload, reason: reason)
            return .deliveryFailed
        }
        // Who hears that it is not delivered must not find it delivered behind its back.
        let isQueued = !listener.isThere && !lacksCredentials
        if isQueued { try keepCompletion(upload, listener.completing) }
        let end = route.settings.queue.end(from: deliveries.clock.now)
        try upload.postpone(
            reason: reason,
            isQueued ? .queue(next) : .client(end, lacksCredentials: lacksCredentials)
        )
        try upload.sync()
        journal.deferred(upload, reason: reason)
        return refusal
    }

    /// Seconds that a request has to wait before it can have another attempt made; nil: none.
    ///
    /// Each attempt sends all content, and with other credentials each is a guess.
    private func pause(of upload: Upload) -> Int? {
        // The queue has pauses of its own.
        guard visit != nil, upload.state.phase == .deferred else { return nil }
        let pause = route.settings.queue.pauseOfClient(after: upload.attempts)
        let passed = deliveries.clock.now.seconds - upload.lastActivity.seconds
        // A clock that was set back says nothing.
        guard passed >= 0, passed < pause.components.seconds else { return nil }
        return Int(pause.components.seconds - passed)
    }

    /// Whether the upload's time in the queue is over when `pause` is.
    private func isOver(_ upload: Upload, in pause: Duration = .zero) -> Bool {
        let now = deliveries.clock.confirmed
        return route.settings.queue.isOver(
            since: upload.wholeSince ?? now,
            at: WallTime(seconds: now.seconds + pause.components.seconds)
        )
    }

    private func fail(_ upload: Upload, reason: String) throws(SpoolError) {
        let whole = "its time in the queue is over; the last attempt: \(reason)"
        try upload.hold(.failed, reason: whole)
        deliveries.holdSizes.add(upload)
        journal.failed(upload, reason: whole)
    }
}
