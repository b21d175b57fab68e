// The delivery of one upload: one regular request to the upstream, whose final response is stored, then relayed.
//
// The completing request or the queue starts the delivery. Invariant: an upload is in `active` exactly while its
// attempt runs.

package import HTTPTypes
import SpoolgateCrypto
package import SpoolgateExchange
package import SpoolgateJournal
import SpoolgatePosix
import SpoolgateSettings
package import SpoolgateSpool
package import SpoolgateUploadProtocol
import SpoolgateUpstream

/// Delivers complete uploads of one route to the upstream.
package struct Delivery {
    let deliveries: Deliveries
    let route: Route
    let journal: Journal
    /// How long a delivery may wait for a slot.
    let patience: Duration
    /// The ticket of the request that started the delivery; nil if the queue started the delivery.
    let ticket: AdmissionTicket?

    /// Creates the delivery of uploads of one route.
    ///
    /// `journal` must be correlated with the upload.
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

    /// Delivers a complete, locked upload.
    ///
    /// An upload without a record takes no slot, is sent only once and is not stored. If `digests` is nil, this
    /// function computes and verifies the digests.
    ///
    /// - Returns: nil if the listener received a final response; otherwise the refusal to send. The upload's offset is
    ///   then durable.
    /// - Throws: `SpoolError` if the spool failed. The upstream has then received nothing.
    package func deliver(
        _ upload: Upload,
        to listener: ResponseListener,
        _ digests: UploadDigests? = nil
    ) throws(SpoolError) -> Refusal? {
        var listener = listener
        if upload.isRecorded, let refusal = try refusalOfCredentials(upload, &listener) {
            return refusal
        }
        if upload.mayBeProcessed, !isRepeatable(upload) {
            let reason =
                "an earlier attempt got no response, and the settings no longer allow another one"
            try holdIndeterminate(upload, listener, reason)
            return .outcomeUnknown
        }
        let grant: Grant?
        switch try check(upload, listener) {
        case .cleared(let renewed): grant = renewed
        case .ended(let refusal): return refusal
        }
        // This client waits only for the upstream, as it would without a gateway.
        if !upload.isRecorded, let digests {
            return try DeliveryAttempt(upload, digests, to: listener, by: self, in: nil).run()
        }
        guard let slot = try waitForSlot(upload, listener.heartbeat) else {
            return try postpone(
                upload,
                // The connection of a resumable client is closed without a response, and the queue retries.
                listener.isResumable ? listener.storingOnly : listener,
                "too many concurrent deliveries (delivery.maximum-concurrent); check why the upstream is slow",
                .deliveryUnderWay
            )
        }
        defer { slot.giveBack() }
        let checked = try checkDigests(
            of: upload,
            for: listener.knowledge(isAccepted: route.hasAccepted(upload)),
            completing: listener.completing,
            reported: route.reportedDigests,
            listener.heartbeat
        )
        switch checked {
        case .success(let digests):
            return try DeliveryAttempt(upload, digests, to: listener, by: self, in: slot, grant)
                .run()
        case .failure(let refusal): return refusal
        }
    }

    /// Chooses the credentials of the attempt.
    ///
    /// - Returns: the refusal to send if they were refused before, or if the last attempt was too recent; otherwise nil.
    private func refusalOfCredentials(
        _ upload: Upload,
        _ listener: inout ResponseListener
    ) throws(SpoolError) -> Refusal? {
        let stored = try upload.completion()
        let refused = RefusedCredentials(stored)
        listener.completing = completing(listener.completing, stored, of: upload)
        if areRefused(listener.completing, refused, of: upload) {
            let refusal = Refusal.credentialsRefused(refused.challenges)
            let reason = "its credentials were refused before"
            if route.hasAccepted(upload) {
                try fail(upload, reason: reason)
            } else if ticket == nil {
                // After a crash, the queue makes the attempt that a client with other credentials has started.
                return try postpone(upload, listener, reason, refusal, lacksCredentials: true)
            } else {
                try upload.sync()
            }
            return refusal
        }
        guard var seconds = pause(of: upload, refused) else { return nil }
        if upload.nextAttempt != nil {
            // The queue must not use older credentials. Storing newer ones restarts the pause.
            try keepCompletion(upload, listener.completing)
            seconds = pause(of: upload, refused) ?? seconds
        }
        try upload.sync()
        return .deliveryPauses(seconds)
    }

    /// Delivers an upload that has been waiting for its delivery, possibly since before a crash.
    ///
    /// The parameters, result and errors are those of `deliver`.
    package func deliverWaiting(_ upload: Upload, to listener: ResponseListener) throws(SpoolError)
        -> Refusal?
    {
        // The process that queued the upload may have crashed before it was durable, and clients learn of the attempt.
        try upload.sync()
        guard try consumeParts(of: upload) else {
            let reason = "one of the uploads that it was joined from is in use"
            return try postpone(upload, listener, reason, .deliveryUnderWay)
        }
        return try deliver(upload, to: listener)
    }

    /// Consumes those parts of a concatenated upload that a crash left unconsumed.
    ///
    /// Returns false if a part is in use.
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

    /// Makes the attempt that is due for an upload in `deferred`, without a waiting client.
    package func deliverQueued(_ upload: Upload) throws(SpoolError) {
        if upload.nextAttempt == nil {
            // The client knows that the upload has not been delivered, and may return until its time in the queue ends.
            guard isExpired(upload) else { return }
            // Clients without credentials must not fill `hold`.
            if upload.lacksCredentials, !route.hasAccepted(upload) {
                try upload.remove(durably: true)
                return journal.expired(upload)
            }
            return try failOver(upload, reason: upload.reason ?? "the client did not retry")
        }
        let responses = ResponseBuilder(dialect: .newest, limits: route.settings.limits)
        _ = try deliverWaiting(upload, to: ResponseListener(responses, completing: nil))
    }

    /// Stores in the record the fields of the completing request that a later attempt by the queue needs.
    ///
    /// - Throws: `SpoolError` if the record cannot be written.
    package func keepCompletion(_ upload: Upload, _ fields: HTTPFields?) throws(SpoolError) {
        let stored = try upload.completion()
        guard let fields = completing(fields, stored, of: upload) else { return }
        let kept = UpstreamFields.keptOfCompletion(
            fields,
            of: upload.creation.head.fields,
            granted: upload.creation.head.granted,
            policy: route.settings.fields
        )
        guard !kept.isEmpty || stored != nil else { return }
        try upload.keepCompletion(kept + RefusedCredentials(stored).fields)
    }

    /// Returns nil if no slot became free in time, or a newer request requested the upload's release.
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
            // A request that waits for this upload must not wait for the slot as well.
            let look = Deadline.after(.milliseconds(100))
            let next = min(deadline, look, heartbeat?.next ?? deadline)
            if let slot = line.take(until: next) { return slot }
            if limit.hasPassed || upload.isReleaseRequested { return nil }
            // A failed heartbeat may have truncated the content.
            try heartbeat?.beat(upload)
        }
    }

    /// Whether the upload may be sent again after an attempt whose outcome is unknown.
    ///
    /// The settings at the creation and the current settings must allow the repetition because a reload may have
    /// changed the method to POST or removed the idempotency key.
    func isRepeatable(_ upload: Upload) -> Bool {
        upload.creation.isRepeatable && route.mayRepeat(upload.creation.head)
    }

    // MARK: Retries

    /// Defers the upload so that the queue or the client retries.
    ///
    /// An upload without a record cannot be deferred, so its delivery has failed. `retryAfter` is the pause that the
    /// upstream asked for, in seconds. `lacksCredentials` is true if only the client can retry, with other credentials.
    ///
    /// - Returns: `refusal`, or another refusal if no retry follows.
    func postpone(
        _ upload: Upload,
        _ listener: ResponseListener,
        _ reason: String,
        _ refusal: Refusal,
        retryAfter: Int? = nil,
        lacksCredentials: Bool = false
    ) throws(SpoolError) -> Refusal {
        guard upload.isRecorded else {
            journal.failed(upload, reason: reason)
            return refusal
        }
        let pause = route.settings.queue.pause(
            after: upload.attempts,
            retryAfter: retryAfter,
            random: RandomBits.next()
        )
        let next = WallTime(seconds: deliveries.clock.now.seconds + pause.components.seconds)
        // Without credentials, no attempt follows after the pause.
        if isExpired(upload, in: lacksCredentials ? .zero : pause) {
            try failOver(upload, reason: reason)
            return .deliveryFailed
        }
        // If a client learns that its upload was not delivered, the queue must not deliver the upload later.
        let isQueued = !listener.isThere && !lacksCredentials
        if lacksCredentials {
            let challenges = refusal.fields[values: .wwwAuthenticate]
            try noteRefused(upload, listener.completing, challenges: challenges)
        } else if isQueued {
            try keepCompletion(upload, listener.completing)
        } else {
            // Only an operator's requeue needs them; a full disk must not prevent the change.
            try? keepCompletion(upload, listener.completing)
        }
        let end = route.settings.queue.end(from: deliveries.clock.now)
        try upload.postpone(
            reason: reason,
            isQueued ? .queue(next) : .client(end, lacksCredentials: lacksCredentials)
        )
        try upload.sync()
        journal.deferred(upload, reason: reason)
        return refusal
    }

    /// The seconds before a request may start another attempt; nil if a request may start one now.
    ///
    /// The pause exists because each attempt sends all content, and may be a guess at credentials. An attempt whose
    /// credentials were refused delays none with other credentials; several delay the next guess.
    private func pause(of upload: Upload, _ refused: RefusedCredentials) -> Int? {
        // The queue has its own pauses.
        guard ticket != nil, upload.isRecorded, upload.state.phase == .deferred else { return nil }
        let isGuess = upload.lacksCredentials && !refused.isEmpty
        let pause = route.settings.queue.pauseOfClient(
            after: isGuess ? refused.digests.count - 1 : upload.attempts
        )
        let passed = deliveries.clock.now.seconds - upload.lastActivity.seconds
        // The elapsed time is unknown if the clock was set back.
        guard passed >= 0, passed < pause.components.seconds else { return nil }
        return Int(pause.components.seconds - passed)
    }

    /// Whether the upload's time in the queue will have ended after `pause`.
    private func isExpired(_ upload: Upload, in pause: Duration = .zero) -> Bool {
        let now = deliveries.clock.confirmed
        return route.settings.queue.isExpired(
            since: upload.completeSince ?? now,
            at: WallTime(seconds: now.seconds + pause.components.seconds)
        )
    }

    private func failOver(_ upload: Upload, reason: String) throws(SpoolError) {
        try fail(upload, reason: "not delivered within queue.lifetime; last attempt: \(reason)")
    }

    /// Moves the upload to `hold` after an attempt, with the credentials of its request for an operator's requeue.
    func hold(
        _ upload: Upload,
        _ listener: ResponseListener,
        _ cause: HoldCause,
        _ reason: String,
        _ response: StoredResponse? = nil
    ) throws(SpoolError) {
        // A full disk must not prevent the change.
        try? keepCompletion(upload, listener.completing)
        try upload.hold(cause, reason: reason, response: response)
    }

    /// Moves the upload to `hold`, because the upstream may have processed it, and reports that.
    func holdIndeterminate(
        _ upload: Upload,
        _ listener: ResponseListener,
        _ reason: String
    ) throws(SpoolError) {
        try hold(upload, listener, .indeterminate, reason)
        deliveries.holdSizes.add(upload)
        journal.indeterminate(upload, reason: reason)
    }

    /// Moves the upload to `hold`, where it waits for an operator.
    func fail(_ upload: Upload, reason: String) throws(SpoolError) {
        try upload.hold(.failed, reason: reason)
        deliveries.holdSizes.add(upload)
        journal.failed(upload, reason: reason)
    }
}
