// The delivery of one upload: one regular request to the upstream, the final response stored, then relayed.
//
// A request that completed the upload drives it, or the queue; here they are the same. Invariant: an
// upload is in `active` exactly while its attempt runs.

package import HTTPTypes
import SpoolgateCrypto
package import SpoolgateExchange
package import SpoolgateJournal
import SpoolgatePosix
import SpoolgateSettings
package import SpoolgateSpool
package import SpoolgateUploadProtocol
import SpoolgateUpstream

/// Delivers whole uploads of one route.
package struct Delivery {
    /// What all deliveries share.
    let deliveries: Deliveries
    let route: Route
    let journal: Journal
    /// How long to wait for a free place among the deliveries.
    let patience: Duration
    /// The request that drives it; nil: the queue does.
    let ticket: AdmissionTicket?

    /// Makes the delivery of uploads of one route.
    ///
    /// - Parameters:
    ///   - deliveries: what all deliveries share.
    ///   - route: the route.
    ///   - journal: the journal, correlated with the upload.
    ///   - patience: how long to wait for a free place among the deliveries.
    ///   - ticket: the request that drives it; nil: the queue does.
    package init(
        _ deliveries: Deliveries,
        route: Route,
        journal: Journal,
        patience: Duration,
        ticket: AdmissionTicket? = nil
    ) {
        self.deliveries = deliveries
        self.route = route
        self.journal = journal
        self.patience = patience
        self.ticket = ticket
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
            return try DeliveryAttempt(upload, digests, to: listener, by: self, in: nil).run()
        }
        guard let slot = try waitForSlot(upload, listener.heartbeat) else {
            return try postpone(
                upload,
                reason: "too many concurrent deliveries",
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
        case .success(let digests):
            return try DeliveryAttempt(upload, digests, to: listener, by: self, in: slot).run()
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
                reason: "one of the parts is in use",
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
            return try fail(upload, reason: upload.reason ?? "the client did not return")
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
        let place = WaitingPlace(deliveries.admission, for: ticket)
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

    /// Whether an attempt of unknown outcome may be repeated, by the settings of the creation and by those
    /// in force: a reload may have made a POST of it, or taken its key away.
    func isRepeatable(_ upload: Upload) -> Bool {
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
        guard ticket != nil, upload.isRecorded, upload.state.phase == .deferred else { return nil }
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
        let whole = "queue.lifetime expired; last attempt: \(reason)"
        try upload.hold(.failed, reason: whole)
        deliveries.holdSizes.add(upload)
        journal.failed(upload, reason: whole)
    }
}
