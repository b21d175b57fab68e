// The table of the protocol core: a line for each phase of an upload, a column for each kind of request on it.
//
// Pure. The rules behind it are in UploadState.swift; ARCHITECTURE.md shows it, and a test makes the page from it.

extension UploadState {
    /// The answers to the requests on an upload in one phase.
    package struct Row {
        /// An append at the offset after which more follows.
        package let more: Answer
        /// An append at the offset that completes the upload.
        package let completing: Answer
        /// An offset retrieval.
        package let retrieval: RetrievalDecision
        /// The same of a client that takes offset == length for success.
        package let eagerRetrieval: RetrievalDecision
        /// A cancellation.
        package let cancellation: CancellationDecision
    }

    /// The line of the table for this state; `dialect` chooses words of refusals alone.
    package func row(_ dialect: Dialect) -> Row {
        switch phase {
        case .receiving:
            Row(
                more: .goOn,
                completing: .deliver,
                retrieval: .tell(.incomplete),
                eagerRetrieval: isWholeByLength ? .deliverFirst : .tell(.incomplete),
                cancellation: .remove
            )
        case .deferred:
            Row(
                more: .goOn,
                completing: .deliver,
                retrieval: .tell(.incomplete),
                eagerRetrieval: isAccepted ? .tell(.incomplete) : .deliverFirst,
                cancellation: .remove
            )
        case .delivering: rowWhileDelivering(dialect)
        case .delivered:
            Row(
                more: .refuse(.alreadyComplete(typed: dialect.namesCompletedUpload)),
                completing: .replay(otherwise: .uploadLost),
                retrieval: .tell(.complete),
                eagerRetrieval: isRefused ? .refuse(.upstreamRefusedGone) : .tell(.complete),
                // A client of tus has heard 423 for an earlier one, and takes 204 for "it never arrived".
                cancellation: dialect.knowsLocked && isTaken
                    ? .refuse(.alreadyDelivered) : .remove
            )
        case .indeterminate:
            Row(
                more: .refuse(.outcomeUnknown),
                completing: .replay(otherwise: .outcomeUnknown),
                retrieval: .refuse(.outcomeUnknownGone),
                eagerRetrieval: .refuse(.outcomeUnknownGone),
                cancellation: .refuse(.keptForOperator)
            )
        case .failed:
            Row(
                more: .refuse(.deliveryFailed),
                completing: .replay(otherwise: .deliveryFailed),
                retrieval: .refuse(.deliveryFailedGone),
                eagerRetrieval: .refuse(isRefused ? .upstreamRefusedGone : .deliveryFailedGone),
                cancellation: .refuse(.keptForOperator)
            )
        case .held:
            Row(
                more: .refuse(.uploadHeld),
                completing: .refuse(.uploadHeld),
                retrieval: .tell(.incomplete),
                eagerRetrieval: .refuse(.finalResponsePending),
                cancellation: .refuse(.keptForOperator)
            )
        }
    }

    private func rowWhileDelivering(_ dialect: Dialect) -> Row {
        Row(
            more: dialect.knowsLocked ? .refuse(.finalResponsePending) : .breakOff,
            completing: isAccepted
                ? .accepted
                : dialect.knowsLocked ? .refuse(.finalResponsePending) : .breakOff,
            retrieval: isAccepted ? .tell(.incomplete) : .breakOff,
            eagerRetrieval: isAccepted ? .tell(.incomplete) : .refuse(.finalResponsePending),
            cancellation: dialect.knowsLocked ? .refuse(.finalResponsePending) : .breakOff
        )
    }

    /// When the upload is over by itself.
    package var lifetime: Lifetime {
        switch phase {
        case .receiving: .sinceActivity
        case .delivered: .sinceResponse
        case .deferred, .delivering, .indeterminate, .failed, .held: .none
        }
    }

    /// Answers to an append, once nothing of its content is left to receive.
    package enum Answer: Sendable, Equatable {
        /// Tell the offset: more is to come.
        case goOn
        /// The representation is whole, its length the offset: deliver it, or accept it for the queue.
        case deliver
        /// Say 202 again.
        case accepted
        /// Answer with the stored final response; with `otherwise` where there is none.
        indirect case replay(otherwise: Refusal)
        /// Refuse; bytes received stay.
        indirect case refuse(Refusal)
        /// Break the connection: there is no answer yet, and one that only says "later" would be taken
        /// for the answer. The client comes back.
        case breakOff
    }

    /// Answers to an offset retrieval; the offset must be durable in each.
    package enum RetrievalDecision: Sendable, Equatable {
        /// Tell the offset, and this completeness.
        case tell(Completeness)
        /// Attempt the delivery, and decide again with `hasTried`.
        case deliverFirst
        /// Refuse; the upload stays as it is.
        indirect case refuse(Refusal)
        /// Break the connection, as `Answer.breakOff`.
        case breakOff
    }

    /// Answers to a cancellation.
    package enum CancellationDecision: Sendable, Equatable {
        /// Remove the upload.
        case remove
        /// Refuse; the upload stays as it is.
        indirect case refuse(Refusal)
        /// Break the connection, as `Answer.breakOff`.
        case breakOff
    }

    /// Limits of the life of an upload that a request finds; one that is over is gone for it (404).
    package enum Lifetime: Sendable, Equatable {
        /// The route's `UploadLimits.maxAge`, since its last activity.
        case sinceActivity
        /// As long as the route keeps final responses.
        case sinceResponse
        /// Nothing that a request decides.
        case none
    }
}
