// The decision table: a row for each phase of an upload, a column for each kind of request on it.
//
// Pure. The rules are in UploadState.swift. ARCHITECTURE.md shows the table; a test compares it with this code.

extension UploadState {
    /// The decisions for requests on an upload in one phase.
    package struct Row {
        /// The decision on an append that starts at the offset and does not complete the upload.
        package let more: AppendReply
        /// The decision on an append that starts at the offset and completes the upload.
        package let completing: AppendReply
        package let retrieval: RetrievalDecision
        /// The decision on an offset retrieval by a client that treats offset == length as success.
        package let eagerRetrieval: RetrievalDecision
        package let cancellation: CancellationDecision
    }

    /// Returns the row for this state.
    ///
    /// `dialect` decides how a request is refused, and whether a delivered upload can be cancelled.
    package func row(_ dialect: Dialect) -> Row {
        switch phase {
        case .receiving:
            Row(
                more: .goOn,
                completing: .deliver,
                retrieval: .report(.incomplete),
                eagerRetrieval: isWholeByLength(dialect) ? .deliverFirst : .report(.incomplete),
                cancellation: .remove
            )
        case .deferred:
            Row(
                more: .goOn,
                completing: .deliver,
                retrieval: .report(.incomplete),
                eagerRetrieval: isAccepted ? .report(.incomplete) : .deliverFirst,
                cancellation: .remove
            )
        case .delivering: rowWhileDelivering(dialect)
        case .delivered:
            Row(
                more: .refuse(.alreadyComplete(typed: dialect.namesCompletedUpload)),
                completing: .replay(otherwise: .uploadLost),
                retrieval: .report(.complete),
                eagerRetrieval: isRefused ? .refuse(.upstreamRefusedGone) : .report(.complete),
                // A tus client has received 423 for an earlier cancellation, and would read 204 as "not delivered".
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
                // Only a client without 202 returns for the stored response.
                retrieval: isRefused && !isAccepted
                    ? .report(.complete) : .refuse(.deliveryFailedGone),
                eagerRetrieval: .refuse(isRefused ? .upstreamRefusedGone : .deliveryFailedGone),
                cancellation: .refuse(.keptForOperator)
            )
        case .held:
            Row(
                more: .refuse(.uploadHeld),
                completing: .refuse(.uploadHeld),
                retrieval: .report(.incomplete),
                eagerRetrieval: .refuse(.finalResponsePending),
                cancellation: .refuse(.keptForOperator)
            )
        }
    }

    private func rowWhileDelivering(_ dialect: Dialect) -> Row {
        Row(
            more: dialect.knowsLocked ? .refuse(.finalResponsePending) : .abort,
            completing: isAccepted
                ? .accepted
                : dialect.knowsLocked ? .refuse(.finalResponsePending) : .abort,
            retrieval: isAccepted ? .report(.incomplete) : .abort,
            eagerRetrieval: isAccepted ? .report(.incomplete) : .refuse(.finalResponsePending),
            cancellation: dialect.knowsLocked ? .refuse(.finalResponsePending) : .abort
        )
    }

    package var lifetime: Lifetime {
        switch phase {
        case .receiving: .sinceActivity
        case .delivered: .sinceResponse
        case .deferred, .delivering, .indeterminate, .failed, .held: .none
        }
    }

    /// Decisions on an append that has no content left to receive.
    package enum AppendReply: Sendable, Equatable {
        /// Acknowledge the offset; more content follows.
        case goOn
        /// The representation is complete: deliver it now, or respond with 202 and queue it.
        case deliver
        /// Respond with 202 again.
        case accepted
        /// Respond with the stored final response, or with `otherwise` if none is stored.
        indirect case replay(otherwise: Refusal)
        /// Refuse the request; received bytes are kept.
        indirect case refuse(Refusal)
        /// Close the connection without a response, so that the client retries.
        ///
        /// The client would mistake a refusal that only means "later" for the final response.
        case abort
    }

    /// Decisions on an offset retrieval; the offset must be durable before any decision is carried out.
    package enum RetrievalDecision: Sendable, Equatable {
        /// Report the offset and this completeness.
        case report(Completeness)
        /// Attempt the delivery, then call `decideRetrieval` again with `hasTried` set to true.
        case deliverFirst
        indirect case refuse(Refusal)
        /// Close the connection, as in `Answer.abort`.
        case abort
    }

    /// Decisions on a cancellation.
    package enum CancellationDecision: Sendable, Equatable {
        case remove
        indirect case refuse(Refusal)
        /// Close the connection, as in `Answer.abort`.
        case abort
    }

    /// How long requests can use an upload; requests on an expired upload receive 404.
    package enum Lifetime: Sendable, Equatable {
        /// The route's `UploadLimits.maxAge`, counted from the last activity.
        case sinceActivity
        /// How long the route keeps final responses.
        case sinceResponse
        /// Requests enforce no lifetime.
        case none
    }
}
