// How one attempt to deliver ended, as far as the upstream can have seen it.

/// How an attempt ended.
package enum AttemptOutcome: Sendable, Equatable {
    /// A final response was received whole and went to the sink.
    case answered
    /// Not one byte of the request was sent: no connection, no TLS, no name. Safe to repeat.
    /// `timedOut`: the connect timeout ended it, with every target.
    case notReached(reason: String, timedOut: Bool = false)
    /// Nothing was taken, because the upstream's directory has no room. Safe to repeat.
    case noRoom(reason: String)
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
        case .notReached(let reason, _), .noRoom(let reason), .indeterminate(let reason, _),
            .abandoned(let reason), .unheard(let reason):
            reason
        }
    }

    /// Whether a deadline of the upstream ended the attempt.
    package var timedOut: Bool {
        switch self {
        case .notReached(_, let timedOut), .indeterminate(_, let timedOut): timedOut
        case .answered, .noRoom, .abandoned, .unheard: false
        }
    }
}
