// What is said of an upload that was looked at: its state, and who has to do something about it.

package import SpoolgateUploadProtocol

extension UploadSummary {
    /// Its state as the protocol sees it; whether its client was told 202 is not known here.
    package var state: UploadState {
        UploadState(
            offset: offset,
            length: length,
            phase: queue.phase(holdCause),
            finalStatus: status,
            kind: creation?.kind ?? UploadKind()
        )
    }

    /// The upload's state in one word, as clients and operators read it.
    package var stateWord: String {
        queue == .corrupt ? queue.rawValue : state.word(isInUse: isInUse)
    }

    /// Every word that `stateWord` can be, in the order in which an upload comes to them.
    package static let stateWords = [
        "receiving", "partial", "deferred", "delivering", "delivered", "refused", "indeterminate",
        "failed", "held", Queue.corrupt.rawValue,
    ]

    /// Who takes the next step: `client`, `queue` or `operator`; nil: nobody has to.
    package var awaited: String? {
        switch queue {
        case .incoming: isInUse ? nil : "client"
        case .deferred: nextAttempt == nil ? "client" : "queue"
        case .hold: "operator"
        case .active, .delivered, .corrupt: nil
        }
    }
}
