// The content of a request as it arrives.
//
// Invariants: each byte is counted once, here; if the web server leaves 100 (Continue) to the gateway (RFC 9110
// §10.1.1), a waiting client receives it before its content is read, and never if no content is read.

import HTTPTypes
import SpoolgateExchange
import SpoolgateJournal
import SpoolgatePosix
import SpoolgateUploadProtocol

/// What a request knows of its content apart from the bytes.
struct Arrival {
    /// The maximum size in bytes of content that the web server never offers to write into a file.
    private static let mostOfSmall: Int64 = 256 << 10

    fileprivate var isContinueAwaited: Bool
    /// Whether the web server may offer to write the content into a file, because it may be large.
    fileprivate let isLarge: Bool
    fileprivate var isLaneTaken = false
    /// The upload into which the content is received, set before the content is read; nil if the client does not know
    /// an upload resource.
    var upload: UploadID?
    /// The entry in the list of slow requests while content is received; otherwise nil.
    fileprivate var entry: SlowContent.Entry?

    init(of head: RequestHead, _ context: ExchangeContext) {
        let length = head.contentLength
        isContinueAwaited =
            context.interimStatuses.contains(100) && length != .known(0) && head.expectsContinue
        isLarge = length.count ?? .max > Self.mostOfSmall
    }
}

extension Request {
    /// Waits for content, as `Exchange.receive(into:)`.
    func receive(into buffer: ContentBuffer) throws(ContentError) -> Bool {
        beginContent()
        let before = buffer.count
        // Also counts bytes that arrive together with an early end.
        defer { count.add(buffer.count - before) }
        let hasMore = try exchange.receive(into: buffer)
        if !hasMore { endContent() }
        return hasMore
    }

    /// Waits for content, and returns the lane if the web server offers to write the content into a file.
    ///
    /// Returns nil without waiting if the content is too small for an offer.
    func offeredLane() throws(ContentError) -> (any ContentLane)? {
        guard arrival.isLarge, let lane = exchange.lane else { return nil }
        beginContent()
        return try lane.isOffered() ? lane : nil
    }

    func noteLaneTaken() { arrival.isLaneTaken = true }

    /// Counts bytes written by the web server; `total` is their number so far.
    func noteWritten(_ total: Int64) {
        let new = Int(total) - count.writtenByNginx
        if new > 0 { count.add(new, byNginx: true) }
    }

    /// How the content reached the spool; call it after the content's end.
    ///
    /// `obstacle`, the reason to decline the web server's offer, is returned only after an offer.
    func contentPath(_ obstacle: ContentPath?) -> ContentPath {
        if arrival.isLaneTaken { return .used }
        guard arrival.isLarge else { return .small }
        guard exchange.lane?.wasOffered == true else { return .notOffered }
        return obstacle ?? .full
    }

    private func beginContent() {
        if arrival.isContinueAwaited { exchange.send(interim: ResponseHead(status: .continue)) }
        arrival.isContinueAwaited = false
        guard arrival.entry == nil else { return }
        arrival.entry = gateway.slow.begin(
            client,
            upload: arrival.upload,
            count,
            exchange.interrupt
        )
    }

    /// The request is no longer a slow one that could be asked to end.
    func endContent() {
        if let entry = arrival.entry { gateway.slow.end(entry) }
        arrival.entry = nil
    }
}

extension RequestHead {
    var expectsContinue: Bool { fields.value(of: .expect)?.lowercased() == "100-continue" }
}
