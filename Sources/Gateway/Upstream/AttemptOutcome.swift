// The outcome of one delivery attempt, and the refusal for the client.

package import SpoolgateUploadProtocol

/// How one delivery attempt ended.
package enum AttemptOutcome: Sendable, Equatable {
    /// The sink received a complete final response.
    case answered
    /// Nothing was sent, because memory is exhausted or a library failed; safe to repeat.
    case notTried(reason: String)
    /// No byte of the request was sent: no connection, no TLS, or an unknown host name; safe to repeat.
    ///
    /// `timedOut` is true if the connect timeout expired for every target.
    case notReached(reason: String, timedOut: Bool = false)
    /// The upstream's directory or bucket is full and stored nothing; safe to repeat.
    case noRoom(reason: String)
    /// The store refused the request for a cause that is temporary, or that its operator can fix; safe to repeat.
    ///
    /// `retryAfter` is how long the store asked to wait, in seconds.
    case putOff(reason: String, retryAfter: Int? = nil)
    /// The upstream did not process the request. The caller must send the request to the upstream's target `to`
    /// instead.
    ///
    /// Occurs only if `UpstreamRequest.interceptsRedirects` is true.
    case redirected(to: String)
    /// A proxy responded with 407 and did not forward the request; safe to repeat.
    case notForwarded(reason: String)
    /// Bytes of the request were sent, but no complete final response was received.
    ///
    /// `timedOut` is true if the upstream's stall or response timeout expired.
    case indeterminate(reason: String, timedOut: Bool = false)
    /// Reading the request's content failed with the error in `reason`.
    case abandoned(reason: String)
    /// The sink failed with the error in `reason` before it received the whole final response.
    case unheard(reason: String)

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

    package var timedOut: Bool {
        switch self {
        case .notReached(_, let timedOut), .indeterminate(_, let timedOut): timedOut
        case .answered, .notTried, .noRoom, .putOff, .redirected, .notForwarded, .abandoned,
            .unheard:
            false
        }
    }

    /// How long the upstream asked the gateway to wait, in seconds; nil if unknown.
    package var retryAfter: Int? {
        if case .putOff(_, let retryAfter) = self { retryAfter } else { nil }
    }
}

extension AttemptOutcome {
    /// Whether the upstream did not process the request, so that repeating it is safe for every method.
    package var isUnsent: Bool {
        switch self {
        case .notTried, .notReached, .noRoom, .putOff, .redirected, .notForwarded: true
        case .answered, .indeterminate, .abandoned, .unheard: false
        }
    }

    /// The refusal to send to the client.
    ///
    /// The refusal does not name internal hosts and files, which appear only in the log.
    ///
    /// - Parameters:
    ///   - isRepeatable: true if the request may be sent again.
    ///   - isKept: true if the upload is kept for another attempt.
    /// - Returns: the refusal; nil if there is a complete response to send.
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
