// The state of one upload as the protocol sees it, and what a request may do to it.
//
// Pure: nothing is changed here and nothing is stored. Invariant: no decision lets content pass
// the length once it is known, and only "complete" completes, never offset == length.

/// What the protocol needs to know of one upload.
package struct UploadState: Sendable, Equatable {
    /// Bytes received so far; never goes down (draft-12 §4.1.1).
    package var offset: Int64
    /// The length of the representation once any message told it.
    package var length: Int64?
    /// How far the upload has come.
    package var phase: Phase

    /// The phases a client can tell apart.
    package enum Phase: Sendable, Equatable {
        /// Content may still be appended.
        case receiving
        /// All content is here; the upstream has not been reached, and a completing append tries
        /// again.
        case deferred
        /// A delivery attempt is under way; its verdict is not in.
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
    package init(offset: Int64, length: Int64? = nil, phase: Phase = .receiving) {
        self.offset = offset
        self.length = length
        self.phase = phase
    }

    /// What to do with an append or a creation before its content is read.
    package enum AppendDecision: Sendable, Equatable {
        /// Receive the content, then ask `decideAtEnd`.
        ///
        /// `ceiling` is the offset it must not pass (`refusalAtCeiling` says why), `length` the
        /// length known from now on. On an upload that is complete the ceiling is its offset:
        /// only content that turns out to be empty is right there.
        case receive(ceiling: Int64, ceilingIsLength: Bool, length: Int64?)
        /// All is here and complete: try the delivery (again).
        case deliver
        /// Answer with the stored final response; with `Refusal.deliveryFailed` where a failed upload
        /// has none.
        case replay
        /// Refuse; the upload stays as it is.
        case refuse(Refusal)
        /// Break the connection: there is no answer yet, and one that only says "later" would be taken
        /// for the answer. The client comes back.
        case breakOff
    }

    /// Decides on a creation that classification has let pass: always `.receive`.
    package static func decide(_ creation: UploadRequest.Creation, limits: UploadLimits)
        -> AppendDecision
    {
        UploadState(offset: 0).receive(length: creation.length, limits: limits)
    }

    /// Decides on an append (draft-12 §4.4.2); nothing is changed.
    package func decide(_ append: UploadRequest.Append, dialect: Dialect, limits: UploadLimits)
        -> AppendDecision
    {
        guard append.offset == offset else {
            return .refuse(.offsetMismatch(expected: offset, provided: append.offset))
        }
        switch phase {
        case .receiving:
            return decideReceiving(append, limits: limits)
        case .deferred:
            return decideComplete(append, complete: .deliver, incomplete: receiveNothing)
        case .delivered:
            let refusal = Refusal.alreadyComplete(typed: dialect.namesCompletedUpload)
            return decideComplete(append, complete: .replay, incomplete: .refuse(refusal))
        case .delivering:
            return decideComplete(append, complete: .breakOff, incomplete: .breakOff)
        case .indeterminate:
            let decision = AppendDecision.refuse(.outcomeUnknown)
            return decideComplete(append, complete: decision, incomplete: decision)
        case .failed:
            return decideComplete(append, complete: .replay, incomplete: .refuse(.deliveryFailed))
        case .held:
            let decision = AppendDecision.refuse(.uploadHeld)
            return decideComplete(append, complete: decision, incomplete: decision)
        }
    }

    /// Why the upload cannot be cancelled (draft-12 §4.5); nil: it can, and is to be removed.
    ///
    /// What waits for a person is not the client's to remove.
    package var cancellationRefusal: Refusal? {
        switch phase {
        case .receiving, .deferred, .delivering, .delivered: nil
        case .indeterminate, .failed, .held: .keptForOperator
        }
    }

    /// What to do once an append's or creation's content has been received to its proper end.
    package enum EndDecision: Sendable, Equatable {
        /// The representation is whole and this is its length: deliver it.
        case complete(length: Int64)
        /// More is to come.
        case partial
        /// It was delivered before: answer with the stored final response.
        case replay
        /// Refuse; bytes received stay.
        case refuse(Refusal)
        /// Break the connection, as `AppendDecision.breakOff`; bytes received stay.
        case breakOff
    }

    /// Decides at the proper end of a message's content; `self.offset` counts that content.
    package func decideAtEnd(_ completeness: Completeness, dialect: Dialect) -> EndDecision {
        switch (phase, completeness) {
        case (.receiving, .incomplete), (.deferred, .incomplete):
            return .partial
        case (.receiving, .complete), (.deferred, .complete):
            guard let length, length != offset else { return .complete(length: offset) }
            return .refuse(
                length > offset
                    ? .lengthNotReached(length: length, offset: offset)
                    : .lengthExceeded(length: length)
            )
        case (.delivered, .complete):
            return .replay
        case (.delivered, .incomplete):
            return .refuse(.alreadyComplete(typed: dialect.namesCompletedUpload))
        case (.delivering, _):
            return .breakOff
        case (.indeterminate, _):
            return .refuse(.outcomeUnknown)
        case (.failed, .complete):
            return .replay
        case (.failed, .incomplete):
            return .refuse(.deliveryFailed)
        case (.held, _):
            return .refuse(.uploadHeld)
        }
    }

    /// The refusal of content that passed the ceiling of `.receive`.
    ///
    /// Where `ceilingIsLength` and `Dialect.deactivatesOnExcess`, the upload is to be removed.
    package static func refusalAtCeiling(
        _ ceiling: Int64,
        ceilingIsLength: Bool,
        limits: UploadLimits
    ) -> Refusal {
        if ceilingIsLength { return .lengthExceeded(length: ceiling) }
        if let maxAppendSize = limits.maxAppendSize, ceiling < limits.maxSize {
            return .appendTooLarge(maxAppendSize: maxAppendSize)
        }
        return .tooLarge(maxSize: limits.maxSize)
    }

    private func decideReceiving(_ append: UploadRequest.Append, limits: UploadLimits)
        -> AppendDecision
    {
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
            guard !sum.overflow else { return .refuse(.tooLarge(maxSize: limits.maxSize)) }
            end = sum.partialValue
            if let length, end > length { return .refuse(.lengthExceeded(length: length)) }
            if append.completeness == .complete {
                if let length, end != length {
                    return .refuse(.lengthNotReached(length: length, offset: end))
                }
                length = end
            }
        }
        // A length that was taken once stays taken, also if the limits were lowered since
        // (draft-12 §4.1.4: they should not tighten during an upload).
        if self.length == nil, max(end, length ?? end) > limits.maxSize {
            return .refuse(.tooLarge(maxSize: limits.maxSize))
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
        return receive(length: length, limits: limits)
    }

    /// Decides on an append to an upload that is complete, whose offset so is its length.
    private func decideComplete(
        _ append: UploadRequest.Append,
        complete: AppendDecision,
        incomplete: AppendDecision
    ) -> AppendDecision {
        if let told = append.length, told != offset {
            return .refuse(.lengthChanged(known: offset, told: told))
        }
        if case .known(let count) = append.contentLength, count > 0 {
            return .refuse(.lengthExceeded(length: offset))
        }
        switch (append.completeness, complete) {
        case (.incomplete, _):
            return incomplete
        case (.complete, .deliver), (.complete, .replay):
            // Content of unknown length must be seen to be empty first.
            return append.contentLength == .unknown ? receiveNothing : complete
        case (.complete, .receive), (.complete, .refuse), (.complete, .breakOff):
            return complete
        }
    }

    private var receiveNothing: AppendDecision {
        // Of one that was cut back the offset is below its length.
        .receive(ceiling: offset, ceilingIsLength: true, length: length)
    }

    private func receive(length: Int64?, limits: UploadLimits) -> AppendDecision {
        // The offset is within the limits unless they were lowered since.
        var ceiling = length ?? max(offset, limits.maxSize)
        if let maxAppendSize = limits.maxAppendSize {
            let (end, overflow) = offset.addingReportingOverflow(maxAppendSize)
            if !overflow { ceiling = min(ceiling, end) }
        }
        return .receive(ceiling: ceiling, ceilingIsLength: ceiling == length, length: length)
    }
}
