// One request's exchange: all content is read, and all responses are sent, through it.
//
// Invariants: only this file counts statuses, interim responses and bytes; the only cross-origin fields sent are those
// of `CrossOrigin` for the route; if the web server leaves 100 (Continue) to the gateway (RFC 9110 §10.1.1), a waiting
// client receives it before its content is read, and never if no content is read.

import HTTPTypes
import SpoolgateDelivery
import SpoolgateExchange
import SpoolgateJournal
import SpoolgatePosix
import SpoolgateSettings
import SpoolgateUploadProtocol

/// An exchange whose route is known; used by one thread.
final class RequestExchange: Exchange {
    private let exchange: any Exchange
    private let route: Route
    private let metrics: Metrics
    private let method: RouteMetrics.MethodName
    /// The request's `Origin`; nil if missing or if the route has no cross-origin settings.
    private let origin: String?
    private var isContinueAwaited: Bool
    /// Whether the web server may offer to write the content into a file, because it may be large.
    private let isLarge: Bool
    private var status = 0
    private(set) var isLaneTaken = false
    /// Counts each byte of content once.
    let content: ContentCount
    let client: ClientName
    /// The upload into which the content is received, set before the content is read; nil if the client does not know
    /// an upload resource.
    var upload: UploadID?
    private let slow: SlowContent
    /// The entry in the list of slow requests while content is received; otherwise nil.
    private var entry: SlowContent.Entry?

    /// The maximum size in bytes of content that the web server never offers to write into a file.
    private static let mostOfSmall: Int64 = 256 << 10

    init(
        _ exchange: any Exchange,
        _ head: RequestHead,
        _ context: ExchangeContext,
        on route: Route,
        _ metrics: Metrics,
        _ slow: SlowContent
    ) {
        self.exchange = exchange
        self.slow = slow
        client = ClientName(owner: context.owner, address: context.remoteAddress)
        self.route = route
        content = ContentCount(in: route.counts.content)
        self.metrics = metrics
        method = RouteMetrics.MethodName(head.method)
        origin = route.settings.crossOrigin.isOn ? head.fields.value(of: .origin) : nil
        let length = head.contentLength
        isContinueAwaited =
            context.interimStatuses.contains(100) && length != .known(0) && head.expectsContinue
        isLarge = length.count ?? .max > Self.mostOfSmall
    }

    /// Responds to a CORS preflight request (Fetch, "CORS-preflight request"); returns false for other requests.
    func answersPreflight(_ head: RequestHead) -> Bool {
        guard let origin, CrossOrigin.isPreflight(head) else { return false }
        let response = route.settings.crossOrigin.preflightAnswer(
            to: origin,
            asking: head.fields[.accessControlRequestHeaders]
        )
        status = response.head.status.code
        exchange.answer(response)
        return true
    }

    func end() {
        endContent()
        route.counts.add(method, status: status)
    }

    var head: Result<RequestHead, Refusal> { exchange.head }
    var context: ExchangeContext { exchange.context }
    var interrupt: @Sendable () -> Void { exchange.interrupt }
    var isPeerGone: Bool { exchange.isPeerGone }

    func receive(into buffer: ContentBuffer) throws(ContentError) -> Bool {
        beginContent()
        let before = buffer.count
        // Also counts bytes that arrive together with an early end.
        defer { content.add(buffer.count - before) }
        let hasMore = try exchange.receive(into: buffer)
        if !hasMore { endContent() }
        return hasMore
    }

    func setAlarm(_ alarm: Alarm?) { exchange.setAlarm(alarm) }

    /// Waits for content, and returns the lane if the web server offers to write the content into a file.
    ///
    /// Returns nil without waiting if the content is too small for an offer.
    func offeredLane() throws(ContentError) -> (any ContentLane)? {
        guard isLarge, let lane = exchange.lane else { return nil }
        beginContent()
        return try lane.isOffered() ? lane : nil
    }

    func noteLaneTaken() { isLaneTaken = true }

    /// How the content reached the spool; call it after the content's end.
    ///
    /// `obstacle`, the reason to decline the web server's offer, is returned only after an offer.
    func contentPath(_ obstacle: ContentPath?) -> ContentPath {
        if isLaneTaken { return .used }
        guard isLarge else { return .small }
        guard exchange.lane?.wasOffered == true else { return .notOffered }
        return obstacle ?? .full
    }

    /// Counts bytes written by the web server; `count` is the total so far.
    func noteWritten(_ count: Int64) {
        let new = Int(count) - content.writtenByNginx.count
        if new > 0 { content.add(new, byNginx: true) }
    }

    private func beginContent() {
        askForContent()
        guard entry == nil else { return }
        entry = slow.begin(client, upload: upload, content, exchange.interrupt)
    }

    private func endContent() {
        if let entry { slow.end(entry) }
        entry = nil
    }

    private func askForContent() {
        if isContinueAwaited { send(interim: ResponseHead(status: .continue)) }
        isContinueAwaited = false
    }

    @discardableResult
    func send(interim head: ResponseHead) -> Bool {
        let isSent = exchange.send(interim: head)
        if isSent { metrics.addInterim(head.status.code) }
        return isSent
    }

    func send(head: ResponseHead, contentLength: Int64?) throws(ClientGone) {
        status = head.status.code
        endContent()
        guard route.settings.crossOrigin.isOn else {
            return try exchange.send(head: head, contentLength: contentLength)
        }
        var head = head
        route.settings.crossOrigin.mark(&head.fields, for: origin)
        try exchange.send(head: head, contentLength: contentLength)
    }

    func send(content: RawSpan) throws(ClientGone) { try exchange.send(content: content) }

    func withdraw() -> Bool { exchange.withdraw() }

    func abort() { exchange.abort() }
}

extension RequestHead {
    var expectsContinue: Bool { fields.value(of: .expect)?.lowercased() == "100-continue" }
}
