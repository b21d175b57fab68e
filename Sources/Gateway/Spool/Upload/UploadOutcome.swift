// Moves an upload that is not delivered: to `deferred`, or to `hold` for one of three causes, and back.
//
// The gateway or an operator decides which. Invariant: the record of a complete upload has the length of its content,
// and nothing leaves `hold` without an operator.

package import SpoolgatePosix
import SpoolgateUploadProtocol

extension Upload {
    /// When the next attempt is due; nil: the upload waits for its client or an operator.
    package var nextAttempt: WallTime? { record.state.next }
    /// When it was completed, or last requeued by an operator; nil before.
    package var wholeSince: WallTime? { record.state.whole }
    package var attempts: Int { record.state.attempts }
    package var holdCause: HoldCause? { record.state.cause }
    package var reason: String? { record.state.reason }

    /// The end of a wait.
    package enum Waiting {
        /// When the queue starts the next attempt.
        case queue(WallTime)
        /// Until when the client may continue; `lacksCredentials`: only with other credentials.
        case client(WallTime, lacksCredentials: Bool = false)
    }

    /// Whether it waits for other credentials of its client.
    package var lacksCredentials: Bool { queue == .deferred && record.state.status == 401 }

    /// incoming or active -> deferred, or deferred with another time; the content is kept.
    ///
    /// The upload is complete, but no attempt could start, or the upstream did not accept it. Survives a crash on
    /// return, and a power failure after the next `sync()`.
    ///
    /// - Parameters:
    ///   - reason: why it is not delivered; for people.
    ///   - waiting: the end of the wait for the queue or the client.
    /// - Throws: `.disk`; the state is unchanged then.
    package func postpone(reason: String?, _ waiting: Waiting) throws(SpoolError) {
        try require([.incoming, .active, .deferred].contains(queue))
        try store()
        try setWhole(durably: false) { state in
            state.go(to: .deferred, reason)
            switch waiting {
            case .queue(let next): state.next = next
            case .client(let until, let lacksCredentials):
                state.until = until
                if lacksCredentials { state.status = 401 }
            }
        }
    }

    /// incoming, active or deferred -> hold: only an operator moves it from there.
    ///
    /// Durable on return. Content that cannot be made durable is lost then, and `state.offset` is less than the length.
    ///
    /// - Parameters:
    ///   - cause: the cause.
    ///   - reason: why; for people.
    ///   - response: the upstream's final response, if that is the cause.
    /// - Throws: `.disk`; the next lock finishes the change.
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
        // One state has both: a response without a cause would be that of a delivery.
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

    /// hold -> deferred, or deferred with another time: schedules an attempt.
    ///
    /// The time in the queue starts again. Durable on return; wakes the daemons.
    ///
    /// - Parameter next: the time of the attempt.
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
        spool.wake()
    }
}

extension Queue {
    /// Returns the phase that clients see.
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
