// What to do with the files of an upload that nobody holds: the state table of spoolgate-spool(5) as
// one pure function.
//
// It decides and changes nothing. Invariant: every combination of files has exactly one answer, and
// content that may not be what a client sent is never kept as if it were.

/// What makes an upload's files legal again.
enum Repair: Equatable {
    /// Nothing: they are.
    case keep
    /// The data file is cut back: after a power cut to what is durable, and from content that was to
    /// be verified first and was not.
    case cutBack(to: Int64)
    /// Content that waited could not be made durable and was cut back; only moving the record back to
    /// where it is received again is left to do.
    case receiveAgain
    /// The process died between an attempt's begin and its final response, and repeating is safe.
    case putOff
    /// The process died between an attempt's begin and its final response, and repeating is not safe.
    case hold
    /// It was decided that the queue has it; only moving the record is left to do.
    case finishDeferral
    /// It was decided that it is held, and why; only moving the record is left to do.
    case finishHold
    /// The response is stored; only moving the record or removing the content is left to do.
    case finishDelivery
    /// A power cut came before anything was promised.
    case forget
    /// The record and the content do not fit each other.
    case setAside(reason: String)

    /// Why there is no final response where the process died, for people.
    static let interrupted = "the process ended during the delivery attempt"
    /// The same where repeating is not safe.
    static let outcomeUnknown = interrupted + "; its outcome is unknown"

    /// Decides on an upload.
    ///
    /// - Parameters:
    ///   - queue: where its record is.
    ///   - state: what its record says.
    ///   - isRepeatable: whether its creation lets an attempt be repeated.
    ///   - dataSize: the size of its data file; nil: there is none.
    ///   - responseFault: why it has no stored response; nil if it has one.
    ///   - afterPowerCut: whether the kernel was started since the spool was last used.
    init(
        queue: Queue,
        state: RecordState,
        isRepeatable: Bool,
        dataSize: Int64?,
        responseFault: UnreadableRecord?,
        afterPowerCut: Bool
    ) {
        let durable = state.durable
        let isUnpromised = afterPowerCut && durable == nil
        let isAnswered = responseFault == nil && !state.isToBeHeld
        switch (queue, responseFault) {
        case (.corrupt, _):
            self = .keep
        case (.delivered, nil):
            self = dataSize == nil ? .keep : .finishDelivery
        case (.incoming, _) where isAnswered, (.active, _) where isAnswered,
            (.deferred, _) where isAnswered:
            self = .finishDelivery
        case (_, _) where isUnpromised:
            self = .forget
        case (.delivered, .some(let fault)):
            self = .setAside(reason: fault.reason)
        case (.incoming, _), (.active, _), (.deferred, _), (.hold, _):
            self = Repair(
                queue: queue,
                state: state,
                isRepeatable: isRepeatable,
                dataSize: dataSize,
                afterPowerCut: afterPowerCut
            )
        }
    }

    private init(
        queue: Queue,
        state: RecordState,
        isRepeatable: Bool,
        dataSize: Int64?,
        afterPowerCut: Bool
    ) {
        let durable = state.durable ?? 0
        guard let dataSize else {
            self = .setAside(reason: "its data file is gone")
            return
        }
        guard dataSize >= durable else {
            self = .setAside(
                reason: "its data file has \(dataSize) bytes, \(durable) were made durable"
            )
            return
        }
        if queue == .incoming {
            let verified = state.verified
            let kept = min(afterPowerCut ? durable : dataSize, verified ?? dataSize)
            if state.isToBeDeferred, kept == dataSize, dataSize == state.length {
                self = .finishDeferral
                return
            }
            self = kept < dataSize || verified != nil ? .cutBack(to: kept) : .keep
            return
        }
        let isCutBack = dataSize == durable && dataSize < state.length ?? 0
        if isCutBack, queue == .deferred || queue == .hold {
            self = queue == .hold ? .keep : .receiveAgain
            return
        }
        guard dataSize == state.length else {
            let length = state.length.map { String($0) } ?? "no"
            self = .setAside(
                reason: "its data file has \(dataSize) bytes, \(length) are its length"
            )
            return
        }
        guard queue != .hold, !state.isToBeHeld else {
            self = queue == .hold ? .keep : .finishHold
            return
        }
        guard queue == .active else {
            self = .keep
            return
        }
        self = isRepeatable ? .putOff : .hold
    }
}
