// What an attempt without a whole answer means for who waits for one.

package import UploadProtocol
package import Upstream

extension AttemptOutcome {
    /// Whether the upstream can have nothing of it, so that sending it again is safe whatever it does.
    package var isUnsent: Bool {
        switch self {
        case .notReached, .noRoom: true
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
        case .notReached: .notReached(timedOut: timedOut, isKept: isKept)
        case .noRoom: .destinationFull(isKept: isKept)
        case .indeterminate, .abandoned, .unheard:
            isRepeatable
                ? .upstreamBrokeOff(reason: cause, timedOut: timedOut)
                : .upstreamSilent(reason: cause, timedOut: timedOut)
        }
    }

    private var cause: String {
        if timedOut { return "its time ran out" }
        if case .abandoned = self { return "the upload could not be read to its end" }
        return "the connection ended"
    }
}

extension Refusal {
    /// The upstream was not reached; `timedOut`: a deadline ended it.
    static func notReached(timedOut: Bool, isKept: Bool) -> Refusal {
        .upstreamNotReached(
            reason: timedOut ? "its time ran out" : "no connection could be made",
            timedOut: timedOut,
            isKept: isKept
        )
    }
}
