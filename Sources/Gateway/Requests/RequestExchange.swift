// One request's exchange as the gateway uses it: whatever reads content or answers goes through here.
//
// Invariants: one place counts the status, the interim responses and the bytes; no word on other origins gets out but
// the route's (CrossOrigin decides it); a client that waits for 100 (Continue) hears it before its content is read,
// where the web server leaves that to us (RFC 9110 §10.1.1), and only its final response if nothing is read.

import HTTPTypes
import SpoolgateDelivery
import SpoolgateExchange
import SpoolgateJournal
import SpoolgatePosix
import SpoolgateSettings
import SpoolgateUploadProtocol

/// The exchange of a request on a route.
///
/// Used by one thread, as the one it passes on.
final class RequestExchange: Exchange {
    private let exchange: any Exchange
    private let route: Route
    private let metrics: Metrics
    private let method: RouteMetrics.MethodName
    /// The origin of the page that asks, if the route has a word on other origins.
    private let origin: String?
    private var isContinueAwaited: Bool
    /// Whether there may be so much content that the lane is worth its beginning.
    private let isLarge: Bool
    /// The final status; 0: none was sent.
    private var status = 0
    /// Whether the web server was given the file.
    private(set) var isLaneTaken = false
    /// Bytes that the web server has written by itself.
    private var laneCount: Int64 = 0
    /// Whose request it is.
    let client: ClientName
    private let slow: SlowContent
    /// Its content while it is under way; nil: none is.
    private var content: SlowContent.Entry?
    private var minimum: MinimumRate?

    /// Bytes of content that the web server sends here at once.
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
        self.metrics = metrics
        method = RouteMetrics.MethodName(head.method)
        origin = route.settings.crossOrigin.isOn ? head.fields.value(of: .origin) : nil
        let length = head.contentLength
        isContinueAwaited =
            context.interimStatuses.contains(100) && length != .known(0) && head.expectsContinue
        isLarge = length.count ?? .max > Self.mostOfSmall
    }

    /// Answers a preflight request of a page of another origin (Fetch, "CORS-preflight request"), whatever else there
    /// is to do.
    ///
    /// - Returns: whether it is one.
    func answersPreflight(_ head: RequestHead) -> Bool {
        guard let origin, CrossOrigin.isPreflight(head) else { return false }
        let response = route.settings.crossOrigin.preflightAnswer(to: origin)
        status = response.head.status.code
        exchange.answer(response)
        return true
    }

    /// Counts the request, which is over.
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
        guard try receiveCounted(into: buffer) else {
            endContent()
            return false
        }
        try checkRate()
        return true
    }

    private func receiveCounted(into buffer: ContentBuffer) throws(ContentError) -> Bool {
        let before = buffer.count
        // Also of what comes together with its early end.
        defer {
            route.counts.received.add(buffer.count - before)
            content?.received.add(buffer.count - before)
        }
        return try exchange.receive(into: buffer)
    }

    /// Throws where the content has stayed below the route's rate for a minute.
    func checkRate() throws(ContentError) {
        guard let content, minimum?.isMissed(received: Int64(content.received.count)) == true else {
            return
        }
        throw .tooSlow
    }

    func setAlarm(_ alarm: Alarm?) { exchange.setAlarm(alarm) }

    /// The lane, if the web server offers it and there may be much content; waits for its beginning.
    func offeredLane() throws(ContentError) -> (any ContentLane)? {
        guard isLarge, let lane = exchange.lane else { return nil }
        beginContent()
        return try lane.isOffered() ? lane : nil
    }

    /// Notes that the web server has got the file.
    func noteLaneTaken() { isLaneTaken = true }

    /// The path that the content took, once it is over.
    ///
    /// - Parameter obstacle: why the gateway would decline an offer; nil: it would not.
    /// - Returns: the path; the obstacle only if there was an offer.
    func contentPath(_ obstacle: ContentPath?) -> ContentPath {
        if isLaneTaken { return .taken }
        guard isLarge else { return .small }
        guard exchange.lane?.wasOffered == true else { return .notOffered }
        return obstacle ?? .full
    }

    /// Notes bytes of content that the web server has written by itself, in all.
    func noteWritten(_ count: Int64) {
        guard count > laneCount else { return }
        let written = Int(count - laneCount)
        content?.received.add(written)
        route.counts.received.add(written)
        route.counts.receivedByLane.add(written)
        laneCount = count
    }

    private func beginContent() {
        askForContent()
        guard content == nil else { return }
        content = slow.begin(client, exchange.interrupt)
        minimum = MinimumRate(route.settings.minimumRate)
    }

    private func endContent() {
        if let content { slow.end(content) }
        content = nil
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

    func abort() { exchange.abort() }
}

extension RequestHead {
    /// Whether the client waits for 100 (Continue) before it sends its content.
    var expectsContinue: Bool { fields.value(of: .expect)?.lowercased() == "100-continue" }
}
