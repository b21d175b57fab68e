// The protocol core: the state of one upload, and the decision on every request for it.
//
// UploadRequest classifies a request, the state decides, the gateway carries out the decision, and ResponseBuilder
// builds the response. No other code compares phases to choose a response. `row` (UploadState+Table.swift) has the decisions
// by phase and kind of request. ARCHITECTURE.md shows them, and docs/STATES.md the transitions with other causes; tests
// compare them. Decisions store refusals indirectly, because refusals are rare and large. Pure.
//
// The rules:
//
//  1. An append must start at the offset; otherwise it is refused with the offset (draft-12 §4.4.2, §7.1). This rule
//     precedes all others. The offset never decreases once acknowledged (§4.1.1).
//  2. Offset == length completes nothing; only a message that says "complete" does (§4.1.2, §4.1.3). In tus, and of a
//     client that treats offset == length as success, the message that reaches the length completes the upload, too. A
//     part of another upload is never complete.
//  3. A length never changes once stated, and no content may exceed it (§4.1.3, §4.4.2). Since version 7, excess
//     content deactivates the upload (`Dialect.deactivatesOnExcess`).
//  4. Limits apply to future content; an accepted length remains accepted (§4.1.4).
//  5. A complete upload accepts no content. An empty append that says "complete" starts the delivery, or receives the
//     stored response (§4.4.2).
//  6. During an attempt, the connection is closed, because a client would mistake a refusal that only means "later" for
//     the final response. The client retries. No second attempt starts (RFC 9110 §9.2.2).
//  7. A client that received 202 (RFC 9110 §15.3.3) receives it again, and no request waits.
//  8. "Complete" is reported if the final response is stored (draft-12 §4.1.2), and in refusals if resuming might
//     deliver the upload twice.
//  9. A client that treats offset == length as success (`Dialect.takesOffsetForSuccess`) receives that offset only if
//     the upstream accepted the upload. Therefore, its retrieval first attempts the delivery. Otherwise the client
//     receives 423 or 410.
// 10. A cancellation removes the upload (§4.5), unless it is waiting for an operator.

import HTTPTypes

/// The state of one upload, as the protocol needs it.
package struct UploadState: Sendable, Equatable {
    /// The number of bytes received; never decreases (draft-12 §4.1.1).
    package var offset: Int64
    /// The length of the representation; nil until a message states it.
    package var length: Int64?
    package var phase: Phase
    /// Whether the client received 202, so that the upload is in the queue.
    package var isAccepted = false
    /// The status of the stored final response; nil if unknown.
    package var finalStatus: Int?
    package var kind: UploadKind

    /// The phases that a client can distinguish.
    package enum Phase: String, Sendable, CaseIterable {
        /// Content may still be appended.
        case receiving
        /// All content was received, and the delivery is due later; a completing append starts an attempt at once.
        case deferred
        /// A delivery attempt is running or about to start.
        case delivering
        /// The upstream's final response is stored.
        case delivered
        /// The upstream did not respond to the upload; there will be no further attempt.
        case indeterminate
        /// The delivery failed; there will be no further attempt.
        case failed
        /// An operator holds the complete upload.
        case held
    }

    /// Creates a state from its parts.
    package init(
        offset: Int64,
        length: Int64? = nil,
        phase: Phase = .receiving,
        isAccepted: Bool = false,
        finalStatus: Int? = nil,
        kind: UploadKind = UploadKind()
    ) {
        self.offset = offset
        self.length = length
        self.phase = phase
        self.isAccepted = isAccepted
        self.finalStatus = finalStatus
        self.kind = kind
    }

    /// The state that is reported for an upload that another request keeps locked, the same as during a delivery.
    package static let inUse = UploadState(offset: 0, phase: .delivering)

    /// Returns the state in one word; `isInUse` is true if a request has locked the upload.
    package func word(isInUse: Bool) -> String {
        switch phase {
        case .receiving: isInUse ? "receiving" : "partial"
        case .delivered: isRefused ? "refused" : phase.rawValue
        case .deferred, .delivering, .indeterminate, .failed, .held: phase.rawValue
        }
    }

    /// Whether the stored final response reports that the upload was not accepted.
    package var isRefused: Bool {
        finalStatus.map { !HTTPResponse.Status(code: $0).accepts } ?? false
    }
    /// Whether the upstream accepted the upload.
    var isTaken: Bool { !kind.isPart && finalStatus != nil && !isRefused }
    /// Whether the delivery is due without a message that says "complete".
    func isWholeByLength(_ dialect: Dialect) -> Bool {
        dialect.takesOffsetForSuccess && dialect.family == kind.family && !kind.isPart
            && phase == .receiving && length == offset
    }

    // MARK: Decisions

    /// The limit on the content of a request, as an offset in the representation.
    package struct Ceiling: Sendable, Equatable {
        package var offset: Int64
        /// Whether the ceiling is the length of the representation, not a limit of the gateway.
        package var isLength: Bool
        /// The length of the representation, as known from this request on; nil if unknown.
        package var length: Int64?
    }

    /// The decision on an append before its content is read.
    package enum AppendDecision: Sendable, Equatable {
        /// Receive the content, then call `decideAtEnd`, or `decideExcess` if the content exceeds the ceiling.
        ///
        /// The ceiling of a complete upload is its offset.
        case receive(Ceiling)
        /// Respond without receiving content.
        case respond(AppendReply)

        /// Returns the decision to refuse an append before any content is read.
        package static func refuse(_ refusal: Refusal) -> AppendDecision {
            .respond(.refuse(refusal))
        }
    }

    /// Returns the ceiling for the content of a creation.
    package static func decide(_ creation: UploadRequest.Creation, limits: UploadLimits) -> Ceiling
    {
        guard !creation.mustBeEmpty else {
            return Ceiling(offset: 0, isLength: creation.length == 0, length: creation.length)
        }
        return UploadState(offset: 0).ceiling(length: creation.length, limits: limits)
    }

    /// Decides on an append (draft-12 §4.4.2) without changing the state.
    package func decide(_ append: UploadRequest.Append, dialect: Dialect, limits: UploadLimits)
        -> AppendDecision
    {
        // An append of another protocol could not complete the upload as its creation intended.
        guard dialect.family == kind.family else { return .refuse(.otherFamily) }
        guard !kind.isFinal else { return .refuse(.finalNotAppended) }
        guard append.offset == offset else {
            return .refuse(.offsetMismatch(expected: offset, provided: append.offset))
        }
        guard phase != .receiving else { return decideReceiving(append, dialect, limits) }
        // All content was received, so the offset is the length.
        if let stated = append.length, stated != offset {
            return .refuse(.lengthChanged(known: offset, stated: stated))
        }
        if case .known(let count) = append.contentLength, count > 0 {
            return .refuse(.lengthExceeded(length: offset).with(status: dialect.excessStatus))
        }
        let reply = reply(to: append.completeness, dialect)
        switch reply {
        case .goOn, .deliver, .accepted, .replay:
            guard append.contentLength == .unknown else { return .respond(reply) }
            // The content must first prove to be empty. A repair may have left the offset below the length.
            return .receive(Ceiling(offset: offset, isLength: true, length: length))
        case .refuse, .abort:
            return .respond(reply)
        }
    }

    /// Decides after a message's content ended properly.
    ///
    /// `offset` must include that content.
    package func decideAtEnd(_ completeness: Completeness, dialect: Dialect) -> AppendReply {
        let reply = reply(to: completeness, dialect)
        guard reply == .deliver, let length, length != offset else { return reply }
        return .refuse(
            length > offset
                ? .lengthNotReached(length: length, offset: offset)
                : .lengthExceeded(length: length).with(status: dialect.excessStatus)
        )
    }

    /// Decides on content that exceeded the ceiling.
    ///
    /// - Returns: the refusal, and whether the caller must remove the upload.
    package func decideExcess(_ ceiling: Ceiling, dialect: Dialect, limits: UploadLimits)
        -> (refusal: Refusal, deactivates: Bool)
    {
        // Only a tus creation that must be empty has this ceiling.
        if ceiling.offset == 0, !ceiling.isLength { return (.tusMediaType, true) }
        if ceiling.isLength {
            let deactivates = dialect.deactivatesOnExcess && phase == .receiving
            let refusal = Refusal.lengthExceeded(length: ceiling.offset)
            return (refusal.with(status: dialect.excessStatus), deactivates)
        }
        if let maxAppendSize = limits.maxAppendSize, ceiling.offset < limits.maxSize {
            return (.appendTooLarge(maxAppendSize: maxAppendSize), false)
        }
        return (limits.tooLarge, false)
    }

    /// Decides on an offset retrieval (draft-12 §4.3).
    ///
    /// If `hasTried` is true, a delivery was already attempted for this retrieval, and no client has received the final
    /// response. The decision is then never `deliverFirst`, and "complete" is not reported; a client that wants the
    /// response sends an empty append.
    package func decideRetrieval(_ dialect: Dialect, hasTried: Bool = false) -> RetrievalDecision {
        let row = row(dialect)
        let decision = dialect.takesOffsetForSuccess ? row.eagerRetrieval : row.retrieval
        switch decision {
        case .report where hasTried && phase == .delivered: return .report(.incomplete)
        case .report where hasTried, .deliverFirst where hasTried:
            return .refuse(.finalResponsePending)
        case .report, .deliverFirst, .refuse, .abort: return decision
        }
    }

    private func reply(to completeness: Completeness, _ dialect: Dialect) -> AppendReply {
        let row = row(dialect)
        return switch completeness {
        case .complete: row.completing
        case .incomplete: row.more
        case .atLength:
            phase != .receiving || isWholeByLength(dialect) ? row.completing : row.more
        }
    }

    private func decideReceiving(
        _ append: UploadRequest.Append,
        _ dialect: Dialect,
        _ limits: UploadLimits
    ) -> AppendDecision {
        if let stated = append.length {
            if let length, length != stated {
                return .refuse(.lengthChanged(known: length, stated: stated))
            }
            if stated < offset { return .refuse(.lengthExceeded(length: stated)) }
        }
        var length = self.length ?? append.length
        var end = offset
        if case .known(let count) = append.contentLength {
            let sum = offset.addingReportingOverflow(count)
            guard !sum.overflow else { return .refuse(limits.tooLarge) }
            end = sum.partialValue
            if let length, end > length {
                return .refuse(.lengthExceeded(length: length).with(status: dialect.excessStatus))
            }
            if append.completeness == .complete {
                if let length, end != length {
                    return .refuse(.lengthNotReached(length: length, offset: end))
                }
                length = end
            }
        }
        // An accepted length remains accepted if the limits are lowered (draft-12 §4.1.4).
        if self.length == nil, let refusal = limits.refusal(ofSize: max(end, length ?? end)) {
            return .refuse(refusal)
        }
        if case .known(let count) = append.contentLength,
            let refusal = limits.refusal(ofContent: count)
        {
            return .refuse(refusal)
        }
        return .receive(ceiling(length: length, limits: limits))
    }

    private func ceiling(length: Int64?, limits: UploadLimits) -> Ceiling {
        // The offset is within the limits unless the limits have since been lowered.
        var end = length ?? max(offset, limits.maxSize)
        if let maxAppendSize = limits.maxAppendSize {
            let (last, overflow) = offset.addingReportingOverflow(maxAppendSize)
            if !overflow { end = min(end, last) }
        }
        return Ceiling(offset: end, isLength: end == length, length: length)
    }
}
