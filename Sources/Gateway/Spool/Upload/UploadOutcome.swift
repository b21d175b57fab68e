// Moves undelivered uploads to `deferred` or `hold`, and back.
//
// Invariant: the record of a complete upload has the length of its content, and nothing leaves `hold` without an
// operator.

package import SpoolgatePosix
import SpoolgateUploadProtocol

extension Upload {
    /// When the next attempt is due; nil if the upload is waiting for its client or an operator.
    package var nextAttempt: WallTime? { record.state.next }
    /// When the upload was completed or last requeued by an operator; nil if it is incomplete.
    package var completeSince: WallTime? { record.state.whole }
    package var attempts: Int { record.state.attempts }
    package var holdCause: HoldCause? { record.state.cause }
    /// When the client received 202; nil if it did not, and in a record of version 0.1.0.
    package var accepted: WallTime? { record.state.accepted }
    package var reason: String? { record.state.reason }

    /// What a deferred upload is waiting for, and until when.
    package enum Waiting {
        /// The time of the next attempt.
        case queue(WallTime)
        /// The client can continue until this time; if `lacksCredentials` is true, only with other credentials.
        case client(WallTime, lacksCredentials: Bool = false)
    }

    /// Whether the upstream may have processed an earlier attempt, which could be repeated then.
    package var mayBeProcessed: Bool { queue == .deferred && record.state.then == .deferred }

    package var lacksCredentials: Bool { queue == .deferred && record.state.status == 401 }

    /// Moves the upload from `incoming` or `active` to `deferred`, or changes the time of a deferred upload.
    ///
    /// For a complete upload, if no attempt could start or the upstream did not accept the upload. The content is kept.
    /// `reason` explains to people why the upload was not delivered. `mayBeProcessed` is true if the upstream may have
    /// processed the current attempt. On return, the change survives a crash; it
    /// survives a power failure only after the next `sync()`.
    ///
    /// - Throws: `.disk`; the state is then unchanged.
    package func postpone(
        reason: String?,
        _ waiting: Waiting,
        mayBeProcessed: Bool = false
    ) throws(SpoolError) {
        try postpone(
            reason: reason,
            waiting,
            accepted: record.state.accepted,
            mayBeProcessed: mayBeProcessed
        )
    }

    private func postpone(
        reason: String?,
        _ waiting: Waiting,
        accepted: WallTime?,
        mayBeProcessed: Bool = false
    ) throws(SpoolError) {
        try require([.incoming, .active, .deferred].contains(queue))
        try store()
        let mayBeProcessed = mayBeProcessed || self.mayBeProcessed || mayHaveBeenProcessed
        try setWhole(durably: false) { state in
            state.go(to: .deferred, reason)
            state.accepted = accepted
            if mayBeProcessed { state.then = .deferred }
            switch waiting {
            case .queue(let next): state.next = next
            case .client(let until, let lacksCredentials):
                state.until = until
                if lacksCredentials { state.status = 401 }
            }
        }
    }

    /// Queues the upload for an attempt at `time`, because its client receives 202 and does not wait.
    ///
    /// Durability and errors are those of `postpone`.
    package func accept(at time: WallTime) throws(SpoolError) {
        try postpone(reason: reason, .queue(time), accepted: record.state.accepted ?? time)
    }

    /// Moves the upload from `incoming`, `active` or `deferred` to `hold`, where it waits for an operator.
    ///
    /// The change is durable on return. Content that cannot be made durable is lost; `state.offset` is then less than
    /// the length.
    ///
    /// `reason` is an explanation for people. `response` is the upstream's final response if it is the cause, otherwise
    /// nil.
    ///
    /// - Throws: `.disk`; the next lock then completes the change.
    package func hold(
        _ cause: HoldCause,
        reason: String,
        response: StoredResponse? = nil
    ) throws(SpoolError) {
        try require([.incoming, .active, .deferred].contains(queue))
        let size = content.size
        let lost = "the content could not be made durable; \(reason)"
        func change(_ state: inout RecordState) {
            state.go(to: .hold, reason)
            state.cause = cause
            state.length = size
        }
        var isLost = false
        do throws(SpoolError) { try store() } catch {
            isLost = true
            try content.truncate(to: 0)
        }
        // One state has both, because a response without a cause would be that of a delivery.
        if let response {
            knownResponse = try store(response, change)
        } else {
            try record.write(change)
        }
        do throws(SpoolError) { try sync() } catch {
            guard state.offset != state.length else { throw error }
            isLost = true
        }
        guard isLost else { return }
        // The content was cut back, but the state and its reason can still be stored.
        try record.write { $0.reason = lost }
        try sync()
    }

    /// Moves a held upload to `deferred`, or changes the time of a deferred upload.
    ///
    /// The change is durable on return. The lifetime of the upload in the queue starts over, and the daemons check the
    /// queue.
    ///
    /// - Throws: `.disk`, also if a part of the content was lost (see `hold`).
    package func requeue(at next: WallTime) throws(SpoolError) {
        try require(queue == .hold || queue == .deferred)
        guard state.offset == state.length else {
            throw .disk(
                SystemError(call: "requeue of", subject: content.path, errno: SystemError.lost)
            )
        }
        try sync()
        try record.write(durably: creation.promise == .powerCut) { state in
            state.go(to: .deferred, state.reason)
            state.next = next
            state.whole = spool.clock.now
        }
        knownResponse = nil
        try forgetRefusals()
        spool.wake()
    }
}

extension Queue {
    func phase(_ cause: HoldCause?) -> UploadState.Phase {
        switch (self, cause) {
        case (.incoming, _): .receiving
        case (.active, _): .delivering
        case (.deferred, _): .deferred
        case (.hold, .failed): .failed
        case (.hold, .held): .held
        case (.hold, _), (.corrupt, _): .indeterminate
        case (.delivered, _): .delivered
        }
    }
}
