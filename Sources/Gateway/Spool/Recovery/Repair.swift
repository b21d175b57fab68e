// What to do with the files of an upload that nobody holds: the state table of spoolgate-spool(5) as
// one pure function.
//
// It decides and changes nothing. Invariant: every combination of files has exactly one answer, and
// content that may not be what a client sent is never kept as if it were.

/// What makes an upload's files legal again.
enum Repair: Equatable {
    /// Nothing: they are.
    case keep
    /// The content is cut back: after a power cut to what is durable, and from content that was to
    /// be verified first and was not.
    case cutBack(to: Int64)
    /// It is received again, from what is left of its content on.
    case receiveAgain(from: Int64)
    /// The process died between an attempt's begin and its final response, and it is repeated.
    case retry
    /// The process died between an attempt's begin and its final response, and it is held.
    case hold
    /// The response is stored; only removing the content is left to do.
    case removeContent
    /// A power cut came before anything was promised, or its parts have it all.
    case forget
    /// The record and the content do not fit each other.
    case setAside(reason: String)

    /// Whether the upload stays in the spool.
    var keepsUpload: Bool {
        switch self {
        case .forget, .setAside: false
        case .keep, .cutBack, .receiveAgain, .retry, .hold, .removeContent: true
        }
    }

    /// Why there is no final response where the process died, for people.
    static let interrupted = "the process ended during the delivery attempt"
    /// The same where repeating is not safe.
    static let outcomeUnknown = interrupted + "; its outcome is unknown"

    /// Decides on an upload.
    ///
    /// - Parameters:
    ///   - state: what its record says.
    ///   - dataSize: the size of its content's file; nil: there is none.
    ///   - responseFault: why a stored response cannot be read that was looked at; nil: it can.
    ///   - isForeign: whether another writer wrote the state, so that only what is durable can be trusted.
    ///   - isSlotDamaged: whether a state is damaged that may have been newer.
    ///   - isConcatenation: whether it is made of other uploads, which have all of its content until it is
    ///     whole.
    init(
        state: RecordState,
        dataSize: Int64?,
        responseFault: UnreadableRecord?,
        isForeign: Bool,
        isSlotDamaged: Bool,
        isConcatenation: Bool = false
    ) {
        let size = dataSize ?? 0
        let durable = state.durable ?? 0
        // The death of a process tears nothing: the disk has lost a state, and nobody knows which.
        if isSlotDamaged, !isForeign {
            self = .setAside(reason: "one of its states has no matching checksum")
            return
        }
        if let responseFault {
            self = state.durable == nil ? .forget : .setAside(reason: responseFault.reason)
            return
        }
        if state.queue == .delivered {
            self = dataSize == nil ? .keep : .removeContent
            return
        }
        if isForeign && state.durable == nil || isConcatenation && state.queue == .incoming {
            self = .forget
            return
        }
        guard size >= durable else {
            let found = dataSize.map { "its content has \($0) bytes" } ?? "its content is missing"
            self = .setAside(reason: "\(found), but \(durable) were made durable")
            return
        }
        let length = state.length ?? .max
        switch state.queue {
        case .incoming:
            let kept = min(isForeign ? durable : size, state.verified ?? .max, length)
            self = kept < size || state.verified != nil ? .cutBack(to: kept) : .keep
        case .hold where isForeign && size > durable:
            self = .cutBack(to: durable)
        case .hold where size == length || size == durable:
            self = .keep
        case .active
        where state.then == .hold && (size == length || size < length && state.durable == nil):
            // Content that was in memory is gone with the process.
            self = .hold
        case .deferred where isForeign && durable < length,
            .active where isForeign && state.then == .deferred && durable < length:
            self = .receiveAgain(from: durable)
        case .active where state.then == .deferred && size < length && state.durable == nil:
            self = .receiveAgain(from: 0)
        case .deferred where size == length: self = .keep
        case .active where state.then == .deferred && size == length: self = .retry
        case .deferred, .active, .hold, .delivered, .corrupt:
            let said = state.length.map { "its length is \($0)" } ?? "its length is unknown"
            self = .setAside(reason: "its content has \(size) bytes, but \(said)")
        }
        // Nobody sends the content of one that is made of others; it is made again.
        if isConcatenation, case .receiveAgain = self { self = .forget }
    }
}
