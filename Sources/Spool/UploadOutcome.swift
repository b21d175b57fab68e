// Where an upload goes that is not delivered: deferred, or held for one of three causes, and back.
//
// Which of them it is, the gateway or an operator decides. Invariant: outside `incoming` a record says
// the length of its content, and nothing in `hold` moves by itself.

package import HTTPTypes
package import Posix
import UploadProtocol

extension Upload {
    /// When the queue tries it next; nil: it waits for its client, or for an operator.
    package var nextAttempt: WallTime? { recordState.next }
    /// When it was first found whole; nil before.
    package var wholeSince: WallTime? { recordState.whole }
    /// Delivery attempts begun.
    package var attempts: Int { recordState.attempts }
    /// Why it is in `hold`; nil elsewhere.
    package var holdCause: HoldCause? { queue == .hold ? recordState.cause : nil }
    /// Why the last attempt did not deliver it, or why it is held.
    package var reason: String? { recordState.reason }

    /// incoming or active -> deferred, or deferred with another time: whole, and no attempt could
    /// begin, or the upstream did not take it; the bytes stay.
    ///
    /// Survives the death of the process on return, a power cut after the next `settle()`.
    ///
    /// - Parameters:
    ///   - reason: why it is not delivered; for people.
    ///   - next: when the queue tries it; nil: it waits for its client.
    package func deferred(reason: String?, next: WallTime? = nil) throws(SpoolError) {
        let data = try held(while: queue != .delivered)
        func change(_ state: inout RecordState) {
            state.reason = reason
            state.next = next
            state.cause = nil
        }
        if queue == .incoming { try setWhole(data, change) } else { try write(change) }
        if queue != .deferred { try move(to: .deferred) }
    }

    /// active or deferred -> hold: sent, and no answer came; nothing will repeat it by itself.
    ///
    /// Durable on return.
    package func indeterminate(reason: String) throws(SpoolError) {
        try hold(for: .indeterminate, reason: reason)
    }

    /// active or deferred -> hold: it cannot be delivered. Its content is kept.
    ///
    /// Durable on return.
    ///
    /// - Parameters:
    ///   - reason: why; for people.
    ///   - response: the upstream's final response, where that is the reason.
    package func failed(reason: String, response: StoredResponse? = nil) throws(SpoolError) {
        if let response {
            // A disk that is full takes the state, if not the response.
            try? store(response)
        }
        try hold(for: .failed, reason: reason)
    }

    /// deferred -> hold: an operator holds it.
    ///
    /// Durable on return.
    package func held(reason: String) throws(SpoolError) {
        try hold(for: .held, reason: reason)
    }

    /// hold -> deferred, or deferred with another time: the queue is to try it, whatever was known of
    /// earlier attempts; its time in the queue begins anew.
    ///
    /// Durable on return.
    package func requeue(at next: WallTime) throws(SpoolError) {
        _ = try held(while: queue == .hold || queue == .deferred)
        try write { state in
            state.next = next
            state.whole = .now
            state.cause = nil
            state.response = nil
            state.status = nil
        }
        knownResponse = nil
        if queue == .hold { try move(to: .deferred) }
        try settle()
    }

    private func hold(for cause: HoldCause, reason: String) throws(SpoolError) {
        _ = try held(while: queue != .incoming)
        try write { state in
            state.reason = reason
            state.cause = cause
            state.next = nil
        }
        if queue != .hold { try move(to: .hold) } else { state.phase = queue.phase(cause) }
        try settle()
    }

    // MARK: The completing request

    /// Keeps fields of the request that completed the upload, for attempts after it.
    ///
    /// Survives the death of the process on return, a power cut after the next `settle()`. The record
    /// is readable by its owner only.
    package func keepCompletion(_ fields: HTTPFields) throws(SpoolError) {
        guard !isDetached else { throw .busy(id) }
        let bytes = fields.completionText
        try spool.onDisk { () throws(SystemError) in
            try disk.write(bytes, to: try openRecord(), at: creationEnd)
        }
        try write { $0.completion = creationEnd..<creationEnd + Int64(bytes.count) }
    }

    /// What `keepCompletion` kept; nil where nothing was, or a crash has damaged it.
    package func completion() throws(SpoolError) -> HTTPFields? {
        guard !isDetached, let extent = recordState.completion else { return nil }
        return try spool.onDisk { () throws(SystemError) in
            let record = try openRecord()
            guard extent.upperBound <= (try record.status().size) else { return nil }
            return HTTPFields(
                completionText: try record.bytes(at: extent.lowerBound, count: extent.count)
            )
        }
    }

    // MARK: Content that must be verified

    /// What is appended from here on counts only after `verify()`: the death of the process, or
    /// letting go, takes it back.
    package func beginUnverified() throws(SpoolError) {
        _ = try held(while: queue == .incoming)
        try write { $0.verified = state.offset }
    }

    /// What was appended since `beginUnverified()` counts.
    package func verify() throws(SpoolError) {
        _ = try held(while: queue == .incoming)
        try write { $0.verified = nil }
    }

    /// Takes back what was appended since `beginUnverified()`; nothing where there is nothing.
    package func discardUnverified() throws(SpoolError) {
        guard let verified = recordState.verified else { return }
        let data = try held(while: queue == .incoming)
        try spool.onDisk { () throws(SystemError) in try disk.truncate(data, to: verified) }
        spool.room.giveBack(state.offset - verified)
        state.offset = verified
        try write { $0.verified = nil }
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
