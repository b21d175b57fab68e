// The repair of an upload's files after a crash: the state table of spoolgate-spool(5) as one pure function.
//
// Invariant: every combination of files has exactly one result, and content that the client may not have sent is never
// kept as valid.

/// The repair that an upload's files need after a crash.
enum Repair: Equatable {
    case keep
    /// Truncate the content to the durable offset after a power failure, otherwise to the end of the verified content.
    case cutBack(to: Int64)
    /// Truncate the content to this offset and receive the rest again.
    case receiveAgain(from: Int64)
    case retry
    /// Put the upload on hold, because a retry of the interrupted attempt is not safe.
    case hold
    /// Remove the content, because the final response is already stored.
    case removeContent
    /// Remove the upload, because a power failure came before any offset was durable, or its parts still have all of
    /// its content.
    case forget
    /// Move the record to `corrupt`, because it is damaged or does not match the content.
    case setAside(reason: String)

    var keepsUpload: Bool {
        switch self {
        case .forget, .setAside: false
        case .keep, .cutBack, .receiveAgain, .retry, .hold, .removeContent: true
        }
    }

    /// The stored reason if a retry is safe.
    static let interrupted = "spoolgate stopped during the delivery attempt"
    /// The stored reason if a retry is not safe.
    static let outcomeUnknown =
        interrupted + "; check whether the application received the upload"

    /// Decides how to repair an upload.
    ///
    /// `dataSize` is the data file's size in bytes, or nil if the file is missing; `responseFault` is nil if the stored
    /// response is readable or was not checked. If `isForeign` is true, another writer wrote the state, so that only
    /// durable bytes can be trusted. If `isSlotDamaged` is true, a damaged slot may have contained a newer state. The
    /// parts of a concatenation keep all of its content until the concatenation is complete.
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
        // A crash damages no state, so the disk has lost one, and it is unknown which.
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
            // Content in memory was lost in the crash.
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
        // No client sends the content of a concatenation; it is created again.
        if isConcatenation, case .receiveAgain = self { self = .forget }
    }
}
