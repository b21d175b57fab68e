// The protocol core: the state of one upload, and the answer to every request on it.
//
// Theory of operation. A state is all the protocol knows of an upload: its offset, its length once any
// message told it, its phase, whether its client was told 202, and the status of its final response. A
// request is classified first (UploadRequest), which needs no state; then the state decides, and the gateway
// carries that out; then ResponseBuilder words the answer in the request's dialect. No other code compares
// phases to choose an answer. Two tables hold the decisions: `row` (UploadTable.swift) has a line for each phase and a
// column for each kind of request, `phase(after:in:)` has the steps that move an upload besides. The page
// ARCHITECTURE.md shows both, and a test makes it from them. Refusals are behind a pointer in what is decided:
// hardly any decision is one, and each would be as large. Pure: nothing is changed here, nothing stored.
//
// The rules:
//
//  1. An append begins at the offset, or is refused and told it (draft-12 §4.4.2, §7.1); this comes before
//     all the others. The offset never goes down once it was told (§4.1.1).
//  2. Offset == length completes nothing; only a message that says "complete" does (§4.1.2, §4.1.3). Of tus,
//     the message that reaches the length does, and a part of another upload is never complete.
//  3. A length once told never changes, and no content goes past it (§4.1.3, §4.4.2). Content that does
//     deactivates the upload, from version 7 on (`Dialect.deactivatesOnExcess`).
//  4. Limits hold for what is to come; a length that was taken stays taken (§4.1.4).
//  5. An upload that is whole takes no content. An empty append that says "complete" comes for the final
//     response: it starts the delivery, or hears the stored response again (§4.4.2).
//  6. While an attempt runs there is no answer to give, and one that only says "later" would be taken for
//     it: the connection breaks, and the client comes back. No second attempt begins (RFC 9110 §9.2.2).
//  7. To an upload whose client was told 202 (RFC 9110 §15.3.3) that answer is repeated, and nobody waits.
//  8. "Complete" is told of an upload whose final response is stored (draft-12 §4.1.2), and in refusals
//     where resuming would repeat what may have been taken.
//  9. A client that takes offset == length for success (`Dialect.takesOffsetForSuccess`) hears that offset
//     only of an upload that was taken: its retrieval is an attempt first; 423 or 410 stand for the rest.
// 10. A cancellation removes the upload (§4.5); one that waits for a person is not the client's to remove.

/// What the protocol needs to know of one upload.
package struct UploadState: Sendable, Equatable {
    /// Bytes received so far; never goes down (draft-12 §4.1.1).
    package var offset: Int64
    /// The length of the representation once any message told it.
    package var length: Int64?
    /// How far the upload has come.
    package var phase: Phase
    /// Whether its client was told 202, and the queue has it.
    package var isAccepted = false
    /// The status of the stored final response, where that is known.
    package var finalStatus: Int?
    /// What its creation made it.
    package var kind: UploadKind

    /// The phases a client can tell apart.
    package enum Phase: String, Sendable, CaseIterable {
        /// Content may still be appended.
        case receiving
        /// All content is here; the upstream has not been reached, and a completing append tries
        /// again.
        case deferred
        /// A delivery attempt is under way, or about to be; its final response is not in.
        case delivering
        /// The upstream's final response is stored.
        case delivered
        /// The upstream was sent the upload and gave no answer; nothing will be repeated.
        case indeterminate
        /// All content is here, and it could not be delivered; nobody tries again.
        case failed
        /// All content is here, and an operator keeps it from being delivered.
        case held
    }

    /// Makes a state from its parts.
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

    /// An upload that another request uses and does not let go of: to others as one under way.
    package static let inUse = UploadState(offset: 0, phase: .delivering)

    /// The state in one word, for clients and operators; `isInUse`: some request uses the upload.
    package func word(isInUse: Bool) -> String {
        switch phase {
        case .receiving: isInUse ? "receiving" : "partial"
        case .delivered: isRefused ? "refused" : phase.rawValue
        case .deferred, .delivering, .indeterminate, .failed, .held: phase.rawValue
        }
    }

    /// Whether the stored final response refuses the upload.
    var isRefused: Bool { (finalStatus ?? 0) >= 400 }
    /// Whether the stored final response takes the upload.
    var isTaken: Bool { !kind.isPart && (200..<400).contains(finalStatus ?? 0) }
    /// Whether all of it was received and nobody needs to say so: its delivery is due.
    var isWholeByLength: Bool {
        kind.family == .tus && !kind.isPart && phase == .receiving && length == offset
    }

    // MARK: Decisions

    /// How far content may go.
    package struct Ceiling: Sendable, Equatable {
        /// The offset that content must not pass.
        package var offset: Int64
        /// Whether it is the length of the representation, and not a limit of ours.
        package var isLength: Bool
        /// The length known from now on.
        package var length: Int64?
    }

    /// What to do with an append before its content is read.
    package enum AppendDecision: Sendable, Equatable {
        /// Receive the content, then ask `decideAtEnd`, or `decideExcess` where it passes the ceiling.
        ///
        /// On an upload that is complete the ceiling is its offset: only content that turns out to be
        /// empty is right there.
        case receive(Ceiling)
        /// Nothing is to be received.
        case answer(Answer)

        /// Refuses before any content is read.
        package static func refuse(_ refusal: Refusal) -> AppendDecision {
            .answer(.refuse(refusal))
        }
    }

    /// How far the content may go of a creation that classification has let pass.
    package static func decide(_ creation: UploadRequest.Creation, limits: UploadLimits) -> Ceiling
    {
        guard !creation.mustBeEmpty else {
            return Ceiling(offset: 0, isLength: creation.length == 0, length: creation.length)
        }
        return UploadState(offset: 0).ceiling(length: creation.length, limits: limits)
    }

    /// Decides on an append (draft-12 §4.4.2); nothing is changed.
    package func decide(_ append: UploadRequest.Append, dialect: Dialect, limits: UploadLimits)
        -> AppendDecision
    {
        // One of another protocol would never complete it as its creation meant it.
        guard dialect.family == kind.family else { return .refuse(.otherFamily) }
        guard !kind.isFinal else { return .refuse(.finalNotAppended) }
        guard append.offset == offset else {
            return .refuse(.offsetMismatch(expected: offset, provided: append.offset))
        }
        guard phase != .receiving else { return decideReceiving(append, dialect, limits) }
        // Its offset is its length.
        if let told = append.length, told != offset {
            return .refuse(.lengthChanged(known: offset, told: told))
        }
        if case .known(let count) = append.contentLength, count > 0 {
            return .refuse(.lengthExceeded(length: offset).told(as: dialect.excessStatus))
        }
        let answer = answer(to: append.completeness, dialect)
        switch answer {
        case .goOn, .deliver, .accepted, .replay:
            guard append.contentLength == .unknown else { return .answer(answer) }
            // It must be seen to be empty first. Of one that was cut back the offset is below its length.
            return .receive(Ceiling(offset: offset, isLength: true, length: length))
        case .refuse, .breakOff:
            return .answer(answer)
        }
    }

    /// Decides at the proper end of a message's content; `self.offset` counts that content.
    package func decideAtEnd(_ completeness: Completeness, dialect: Dialect) -> Answer {
        let answer = answer(to: completeness, dialect)
        guard answer == .deliver, let length, length != offset else { return answer }
        return .refuse(
            length > offset
                ? .lengthNotReached(length: length, offset: offset)
                : .lengthExceeded(length: length).told(as: dialect.excessStatus)
        )
    }

    /// Decides on content that passed the ceiling.
    ///
    /// - Returns: the refusal, and whether the upload is to be removed; one that is whole already is
    ///   unharmed by a request that has too much.
    package func decideExcess(_ ceiling: Ceiling, dialect: Dialect, limits: UploadLimits)
        -> (refusal: Refusal, deactivates: Bool)
    {
        // Only a creation of tus that must be empty has such a ceiling.
        if ceiling.offset == 0, !ceiling.isLength { return (.tusMediaType, true) }
        if ceiling.isLength {
            let deactivates = dialect.deactivatesOnExcess && phase == .receiving
            let refusal = Refusal.lengthExceeded(length: ceiling.offset)
            return (refusal.told(as: dialect.excessStatus), deactivates)
        }
        if let maxAppendSize = limits.maxAppendSize, ceiling.offset < limits.maxSize {
            return (.appendTooLarge(maxAppendSize: maxAppendSize), false)
        }
        return (limits.tooLarge, false)
    }

    /// Decides on an offset retrieval (draft-12 §4.3).
    ///
    /// - Parameters:
    ///   - dialect: the retrieval's.
    ///   - hasTried: whether this retrieval was an attempt already; nobody has heard the final response
    ///     then, so "incomplete" is told, and a client that wants it comes with an empty append.
    /// - Returns: not `deliverFirst` if `hasTried`.
    package func decideRetrieval(_ dialect: Dialect, hasTried: Bool = false) -> RetrievalDecision {
        let row = row(dialect)
        let decision = dialect.takesOffsetForSuccess ? row.eagerRetrieval : row.retrieval
        switch decision {
        case .tell where hasTried && phase == .delivered: return .tell(.incomplete)
        case .tell where hasTried, .deliverFirst where hasTried:
            return .refuse(.finalResponsePending)
        case .tell, .deliverFirst, .refuse, .breakOff: return decision
        }
    }

    private func answer(to completeness: Completeness, _ dialect: Dialect) -> Answer {
        let row = row(dialect)
        return switch completeness {
        case .complete: row.completing
        case .incomplete: row.more
        case .atLength: phase != .receiving || isWholeByLength ? row.completing : row.more
        }
    }

    private func decideReceiving(
        _ append: UploadRequest.Append,
        _ dialect: Dialect,
        _ limits: UploadLimits
    ) -> AppendDecision {
        if let told = append.length {
            if let length, length != told {
                return .refuse(.lengthChanged(known: length, told: told))
            }
            if told < offset { return .refuse(.lengthExceeded(length: told)) }
        }
        var length = self.length ?? append.length
        var end = offset
        if case .known(let count) = append.contentLength {
            let sum = offset.addingReportingOverflow(count)
            guard !sum.overflow else { return .refuse(limits.tooLarge) }
            end = sum.partialValue
            if let length, end > length {
                return .refuse(.lengthExceeded(length: length).told(as: dialect.excessStatus))
            }
            if append.completeness == .complete {
                if let length, end != length {
                    return .refuse(.lengthNotReached(length: length, offset: end))
                }
                length = end
            }
        }
        // A length that was taken once stays taken, also if the limits were lowered since
        // (draft-12 §4.1.4: they should not tighten during an upload).
        if self.length == nil, let refusal = limits.refusal(ofSize: max(end, length ?? end)) {
            return .refuse(refusal)
        }
        if case .known(let count) = append.contentLength,
            let refusal = limits.refusal(
                ofContent: count,
                append.completeness,
                isCreation: false
            )
        {
            return .refuse(refusal)
        }
        return .receive(ceiling(length: length, limits: limits))
    }

    private func ceiling(length: Int64?, limits: UploadLimits) -> Ceiling {
        // The offset is within the limits unless they were lowered since.
        var end = length ?? max(offset, limits.maxSize)
        if let maxAppendSize = limits.maxAppendSize {
            let (last, overflow) = offset.addingReportingOverflow(maxAppendSize)
            if !overflow { end = min(end, last) }
        }
        return Ceiling(offset: end, isLength: end == length, length: length)
    }

    // MARK: Steps

    /// Events in the life of an upload that no answer decides.
    package enum Step: String, Sendable, CaseIterable {
        /// An attempt begins.
        case attempt
        /// The final response is stored: the upstream's, or that of a check before the attempt.
        case response = "final response"
        /// It is accepted, could not be sent on, or was not taken and may be sent again.
        case postponed
        /// It was sent on, no answer came, and repeating is not safe.
        case silence = "no answer"
        /// The upstream refused it after 202, or its time in the queue is over.
        case failure
        /// An operator holds it.
        case hold
        /// An operator queues it again.
        case requeue
        /// Content that was never durable is lost.
        case loss
    }

    /// The phase after a step; nil: that does not happen in this phase.
    package static func phase(after step: Step, in phase: Phase) -> Phase? {
        switch (phase, step) {
        case (.receiving, .attempt), (.deferred, .attempt): .delivering
        case (.receiving, .response), (.deferred, .response), (.delivering, .response): .delivered
        case (.receiving, .postponed), (.deferred, .postponed), (.delivering, .postponed): .deferred
        case (.delivering, .silence): .indeterminate
        case (.deferred, .failure), (.delivering, .failure): .failed
        case (.deferred, .hold): .held
        case (.deferred, .requeue), (.indeterminate, .requeue), (.failed, .requeue),
            (.held, .requeue):
            .deferred
        case (.deferred, .loss): .receiving
        default: nil
        }
    }
}
