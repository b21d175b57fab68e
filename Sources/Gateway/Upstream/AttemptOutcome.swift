// How one attempt to deliver ended, as far as the upstream can have seen it, and what that means for who waits
// for an answer.

package import SpoolgateUploadProtocol

/// How an attempt ended.
package enum AttemptOutcome: Sendable, Equatable {
    /// A final response was received whole and went to the sink.
    case answered
    /// This process could not begin the attempt: it lacks memory, or its own library fails. Nothing was sent, and neither
    /// the upstream nor the request is at fault. Safe to repeat.
    case notTried(reason: String)
    /// Not one byte of the request was sent: no connection, no TLS, no name. Safe to repeat.
    /// `timedOut`: the connect timeout ended it, with every target.
    case notReached(reason: String, timedOut: Bool = false)
    /// Nothing was taken, because the upstream's directory or bucket has no room. Safe to repeat.
    case noRoom(reason: String)
    /// Nothing was taken: the upstream's store says no, for a cause that passes or that its operator mends.
    /// Safe to repeat. `retryAfter`: seconds that it asked for.
    case putOff(reason: String, retryAfter: Int? = nil)
    /// The upstream asks for the same request at another target of its own (`UpstreamRequest.interceptsRedirects`);
    /// nothing was taken, and whoever asked for this outcome sends it there.
    case redirected(to: String)
    /// Something on the way answered for the upstream and did not pass the request on (407). Safe to repeat.
    case notForwarded(reason: String)
    /// Bytes were sent and no whole final response came back. `timedOut`: one of the upstream's
    /// deadlines ended it.
    case indeterminate(reason: String, timedOut: Bool = false)
    /// Our own side gave up: the request's content threw this.
    case abandoned(reason: String)
    /// A final response came, and the sink, which threw this, did not take all of it.
    case unheard(reason: String)

    /// Why there is no whole answer; nil where there is one.
    package var reason: String? {
        switch self {
        case .answered: nil
        case .redirected(let target): "the upstream redirected the request to \(target)"
        case .notTried(let reason), .notReached(let reason, _), .noRoom(let reason),
            .putOff(let reason, _), .notForwarded(let reason), .indeterminate(let reason, _),
            .abandoned(let reason), .unheard(let reason):
            reason
        }
    }

    /// Whether a deadline of the upstream ended the attempt.
    package var timedOut: Bool {
        switch self {
        case .notReached(_, let timedOut), .indeterminate(_, let timedOut): timedOut
        case .answered, .notTried, .noRoom, .putOff, .redirected, .notForwarded, .abandoned,
            .unheard:
            false
        }
    }

    /// Seconds that the upstream asked to wait, where it did.
    package var retryAfter: Int? {
        if case .putOff(_, let retryAfter) = self { retryAfter } else { nil }
    }
}

extension AttemptOutcome {
    /// Whether the upstream can have nothing of it, so that sending it again is safe whatever it does.
    package var isUnsent: Bool {
        switch self {
        case .notTried, .notReached, .noRoom, .putOff, .redirected, .notForwarded: true
        case .answered, .indeterminate, .abandoned, .unheard: false
        }
    }

    /// What a client is told.
    ///
    /// Hosts and files of the inside are named in the log alone.
    ///
    /// - Parameters:
    ///   - isRepeatable: whether the upstream may be sent the same again.
    ///   - isKept: whether the bytes stay here.
    /// - Returns: the refusal; nil where there is a whole answer.
    package func refusal(isRepeatable: Bool, isKept: Bool) -> Refusal? {
        switch self {
        case .answered: nil
        case .notTried, .notReached, .notForwarded:
            .notReached(timedOut: timedOut, isKept: isKept)
        case .redirected: .upstreamRedirects
        case .noRoom: .destinationFull(isKept: isKept)
        case .putOff: .upstreamBusy(retryAfter: retryAfter, isKept: isKept)
        case .indeterminate, .abandoned, .unheard:
            isRepeatable
                ? .upstreamBrokeOff(reason: cause, timedOut: timedOut)
                : .upstreamSilent(reason: cause, timedOut: timedOut)
        }
    }

    private var cause: String {
        if timedOut { return "the request timed out" }
        if case .abandoned = self { return "the upload could not be read completely" }
        return "the connection was closed"
    }
}
