// Where an upload goes that is not delivered: deferred, or in `hold` for one of three causes, and back.
//
// Which of them it is, the gateway or an operator decides. Invariant: outside `incoming` a record says
// the length of its content, and nothing in `hold` moves by itself.

package import Posix
import UploadProtocol

extension Upload {
    /// When the queue tries it next; nil: it waits for its client, or for an operator.
    package var nextAttempt: WallTime? { queue == .hold ? nil : files.state.next }
    /// When it was first found whole, or last queued again by an operator; nil before.
    package var wholeSince: WallTime? { files.state.whole }
    /// Delivery attempts begun.
    package var attempts: Int { files.state.attempts }
    /// Why it is in `hold`; nil elsewhere.
    package var holdCause: HoldCause? { queue == .hold ? files.state.cause : nil }
    /// Why the last attempt did not deliver it, or why it is in `hold`.
    package var reason: String? { files.state.reason }

    /// incoming or active -> deferred, or deferred with another time: whole, and no attempt could
    /// begin, or the upstream did not take it; the bytes stay.
    ///
    /// Survives the death of the process on return, a power cut after the next `sync()`.
    ///
    /// - Parameters:
    ///   - reason: why it is not delivered; for people.
    ///   - next: when the queue tries it; nil: it waits for its client.
    /// - Throws: `.disk`; then it is where it was.
    package func postpone(reason: String?, next: WallTime? = nil) throws(SpoolError) {
        try requireData(while: [.incoming, .active, .deferred].contains(queue))
        func change(_ state: inout RecordState) {
            state.decide(reason, next: next)
            state.whole = spool.clock.mended(state.whole)
        }
        if queue == .incoming { try setWhole(change) } else { try files.write(change) }
        if queue != .deferred { try files.move(to: .deferred) }
    }

    /// active or deferred -> hold: nothing takes it from there by itself.
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
        try requireData(while: queue == .active || queue == .deferred)
        func change(_ state: inout RecordState) { state.decide(reason, cause: cause) }
        // In one state, the response with the cause: without it, it would be a delivery.
        if let response {
            knownResponse = try store(response, change)
        } else {
            try files.write(change)
        }
        // A power cut may keep the move, and in `hold` an older state would say another cause.
        if isPromised { try files.syncRecord() }
        try files.move(to: .hold)
        do throws(SpoolError) { try sync() } catch {
            guard state.offset != state.length else { throw error }
            // The content is cut back; that it is held, and why, can be kept all the same.
            try files.write { $0.reason = "its content could not be made durable; \(reason)" }
            try sync()
        }
    }

    /// hold -> deferred, or deferred with another time: the queue is to try it, whatever was known of
    /// earlier attempts; its time in the queue begins anew.
    ///
    /// Durable on return.
    ///
    /// - Parameter next: when the queue tries it.
    /// - Throws: `.disk` also where a part of its content was lost (see `hold`).
    package func requeue(at next: WallTime) throws(SpoolError) {
        let data = try requireData(while: queue == .hold || queue == .deferred)
        guard state.offset == state.length else {
            throw .disk(
                SystemError(call: "requeue of", subject: data.subject, errno: SystemError.lost)
            )
        }
        // The cause stays until the next attempt: in `hold` it must be right whenever the process dies.
        try files.write { state in
            state.decide(state.reason, next: next, cause: state.cause)
            state.whole = spool.clock.now
        }
        knownResponse = nil
        if queue == .hold { try files.move(to: .deferred) }
        // Also where earlier moves may have left a name that a power cut would bring back: it must
        // neither be held again nor be taken for an attempt.
        files.movedFrom = [.incoming, .active, .hold]
        try sync()
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
