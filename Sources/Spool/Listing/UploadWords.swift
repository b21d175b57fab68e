// What is said of an upload that was looked at: its state, and who has to do something about it.

extension UploadSummary {
    /// The upload's state in one word, as clients and operators read it.
    package var stateWord: String {
        switch (queue, holdCause) {
        case (.incoming, _): isInUse ? "receiving" : "partial"
        case (.active, _): "delivering"
        case (.deferred, _): "deferred"
        case (.hold, .some(let cause)): cause.rawValue
        case (.hold, nil): HoldCause.indeterminate.rawValue
        case (.delivered, _): (status ?? 0) < 400 ? "delivered" : "refused"
        case (.corrupt, _): "corrupt"
        }
    }

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
