// The state of a listed upload, for the protocol and for people.

package import SpoolgateUploadProtocol

extension UploadSummary {
    /// The upload's state in the protocol; whether its client has received a 202 is not known here.
    package var state: UploadState {
        UploadState(
            offset: offset,
            length: length,
            phase: queue.phase(holdCause),
            finalStatus: status,
            kind: creation?.kind ?? UploadKind()
        )
    }

    /// The upload's state in one word, for clients and operators.
    package var stateWord: String {
        queue == .corrupt ? queue.rawValue : state.word(isInUse: isInUse)
    }

    /// All values of `stateWord`, in the order in which an upload reaches them.
    package static let stateWords = [
        "receiving", "partial", "deferred", "delivering", "delivered", "refused", "indeterminate",
        "failed", "held", Queue.corrupt.rawValue,
    ]

    /// Who takes the next step: `client`, `queue` or `operator`; nil if no step is needed.
    package var awaited: String? {
        switch queue {
        case .incoming: isInUse ? nil : "client"
        case .deferred: nextAttempt == nil ? "client" : "queue"
        case .hold: "operator"
        case .active, .delivered, .corrupt: nil
        }
    }
}
