// The state of a listed upload, for the protocol and for people.

package import SpoolgateUploadProtocol

extension UploadSummary {
    /// The state in the protocol; does not say whether the client has already been sent a 202 response.
    package var state: UploadState {
        UploadState(
            offset: offset,
            length: length,
            phase: queue.phase(holdCause),
            finalStatus: status,
            kind: creation?.kind ?? UploadKind()
        )
    }

    /// The state in one word, for clients and operators.
    package var stateWord: String {
        queue == .corrupt ? queue.rawValue : state.word(isInUse: isInUse)
    }

    /// All values of `stateWord`, in the order in which an upload reaches them.
    package static let stateWords = [
        "receiving", "partial", "deferred", "delivering", "delivered", "refused", "indeterminate",
        "failed", "held", Queue.corrupt.rawValue,
    ]

    /// Who must take the next step: `client`, `queue` or `operator`, or nil if no step is pending.
    package var awaited: String? {
        switch queue {
        case .incoming: isInUse ? nil : "client"
        case .deferred: nextAttempt == nil ? "client" : "queue"
        case .hold: "operator"
        case .active, .delivered, .corrupt: nil
        }
    }
}
