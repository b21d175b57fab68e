// Where an upload goes that is not delivered: deferred, or in `hold` for one of three causes, and back.
//
// Which of them it is, the gateway or an operator decides. Invariant: once whole, a record says the length of
// its content, and nothing in `hold` moves by itself.

package import SpoolgatePosix
import SpoolgateUploadProtocol

extension Upload {
    /// When the queue tries it next; nil: it waits for its client, or for an operator.
    package var nextAttempt: WallTime? { record.state.next }
    /// When it was first found whole, or last queued again by an operator; nil before.
    package var wholeSince: WallTime? { record.state.whole }
    /// Delivery attempts begun.
    package var attempts: Int { record.state.attempts }
    /// Why it is in `hold`; nil elsewhere.
    package var holdCause: HoldCause? { record.state.cause }
    /// Why the last attempt did not deliver it, or why it is in `hold`.
    package var reason: String? { record.state.reason }

    /// Until when it waits, and for whom.
    package enum Waiting {
        /// For the queue, which tries it then.
        case queue(WallTime)
        /// For its client, which has the time till then; `lacksCredentials`: with other credentials than before.
        case client(WallTime, lacksCredentials: Bool = false)
    }

    /// Whether it waits for other credentials of its client.
    package var lacksCredentials: Bool { queue == .deferred && record.state.status == 401 }

    /// incoming or active -> deferred, or deferred with another time: whole, and no attempt could
    /// begin, or the upstream did not take it; the bytes stay.
    ///
    /// Survives the death of the process on return, a power cut after the next `sync()`.
    ///
    /// - Parameters:
    ///   - reason: why it is not delivered; for people.
    ///   - waiting: until when it waits, and for whom.
    /// - Throws: `.disk`; then it is where it was.
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

    /// incoming, active or deferred -> hold: nothing takes it from there by itself.
    ///
    /// Durable on return; content that cannot be made durable is lost then, and `state.offset` less
    /// than the length.
    ///
    /// - Parameters:
    ///   - cause: what it waits for.
    ///   - reason: why; for people.
    ///   - response: the upstream's final response, where that is why; stored as by `finish(with:)`.
    /// - Throws: `.disk`; the next lock finishes what was begun.
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
        // In one state, the response with the cause: without it, it would be a delivery.
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
        // The content is cut back; that it is held, and why, can be kept all the same.
        try record.write { $0.reason = lost }
        try sync()
    }

    /// hold -> deferred, or deferred with another time: the queue is to try it, whatever was known of
    /// earlier attempts; its time in the queue begins anew.
    ///
    /// Durable on return, and told to the daemons.
    ///
    /// - Parameter next: when the queue tries it.
    /// - Throws: `.disk` also where a part of its content was lost (see `hold`).
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
    /// What a client can tell of an upload there.
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
