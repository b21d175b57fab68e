// The outcome of one delivery attempt: what the upstream may have received, and the refusal for the client.

package import SpoolgateUploadProtocol

/// The outcome of an attempt.
package enum AttemptOutcome: Sendable, Equatable {
    /// A complete final response was received and passed to the sink.
    case answered
    /// The attempt could not begin, because memory is exhausted or a library failed.
    ///
    /// Nothing was sent, and neither the upstream nor the request is at fault. Safe to repeat.
    case notTried(reason: String)
    /// Not one byte of the request was sent: no connection, no TLS, or an unknown name; safe to repeat.
    ///
    /// `timedOut`: the connect timeout expired for every target.
    case notReached(reason: String, timedOut: Bool = false)
    /// The upstream's directory or bucket is full and took nothing; safe to repeat.
    case noRoom(reason: String)
    /// The upstream's store refused the request for a temporary cause or one that its operator can fix; safe to
    /// repeat.
    ///
    /// `retryAfter`: the seconds that it requested to wait.
    case putOff(reason: String, retryAfter: Int? = nil)
    /// The upstream redirected the request to another of its targets and took nothing.
    ///
    /// The caller requested this outcome by `UpstreamRequest.interceptsRedirects` and sends the request there.
    case redirected(to: String)
    /// A proxy responded and did not forward the request (407); safe to repeat.
    case notForwarded(reason: String)
    /// Bytes were sent, but no complete final response was received.
    ///
    /// `timedOut`: a timeout of the upstream expired.
    case indeterminate(reason: String, timedOut: Bool = false)
    /// The request's content threw this error while it was read.
    case abandoned(reason: String)
    /// A final response arrived, but the sink threw this error before it took the whole response.
    case unheard(reason: String)

    /// Why there is no complete response; nil if there is one.
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

    /// Whether a timeout ended the attempt.
    package var timedOut: Bool {
        switch self {
        case .notReached(_, let timedOut), .indeterminate(_, let timedOut): timedOut
        case .answered, .notTried, .noRoom, .putOff, .redirected, .notForwarded, .abandoned,
            .unheard:
            false
        }
    }

    /// The seconds that the upstream requested to wait.
    package var retryAfter: Int? {
        if case .putOff(_, let retryAfter) = self { retryAfter } else { nil }
    }
}

extension AttemptOutcome {
    /// Whether the upstream took nothing, so that repeating the request is safe for every method.
    package var isUnsent: Bool {
        switch self {
        case .notTried, .notReached, .noRoom, .putOff, .redirected, .notForwarded: true
        case .answered, .indeterminate, .abandoned, .unheard: false
        }
    }

    /// The refusal that the client receives.
    ///
    /// Internal hosts and files appear only in the log.
    ///
    /// - Parameters:
    ///   - isRepeatable: whether the request may be sent again.
    ///   - isKept: whether the upload is kept.
    /// - Returns: the refusal; nil if there is a complete response.
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
