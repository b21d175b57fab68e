// One request and its answer, counted: whatever answers it, one place sees the status, the interim responses and
// the bytes of content.
//
// Invariant: what goes through here is not changed.

import Exchange
import HTTPTypes
import Journal
import Posix
import UploadProtocol

/// An exchange that counts.
///
/// Used by one thread, as the one it passes on.
final class CountedExchange: Exchange {
    private let exchange: any Exchange
    private let method: RouteMetrics.MethodName
    private let metrics: Metrics
    private let counts: RouteMetrics
    /// The final status; 0: none was sent.
    private var status = 0
    /// Bytes that the web server has written by itself.
    private var laneCount: Int64 = 0

    /// Counts as of a route with these counts, by this method.
    init(
        _ exchange: any Exchange,
        _ method: HTTPRequest.Method,
        _ metrics: Metrics,
        _ counts: RouteMetrics
    ) {
        self.exchange = exchange
        self.method = RouteMetrics.MethodName(method)
        self.metrics = metrics
        self.counts = counts
    }

    /// Counts the request, which is over.
    func end() { counts.add(method, status: status) }

    var head: Result<RequestHead, Refusal> { exchange.head }
    var context: ExchangeContext { exchange.context }
    var interrupt: @Sendable () -> Void { exchange.interrupt }
    var isPeerGone: Bool { exchange.isPeerGone }

    func receive(into buffer: ContentBuffer) throws(ContentError) -> Bool {
        let before = buffer.count
        // Also of what comes together with its early end.
        defer { counts.received.add(buffer.count - before) }
        return try exchange.receive(into: buffer)
    }

    func offersLane() throws(ContentError) -> Bool { try exchange.offersLane() }

    func grant(_ file: consuming Descriptor, at offset: Int64, _ limit: LaneLimit)
        throws(ContentError)
    {
        try exchange.grant(file, at: offset, limit)
    }

    func widen(_ limit: LaneLimit) throws(ContentError) { try exchange.widen(limit) }

    func stopLane() { exchange.stopLane() }

    func receiveReport() throws(ContentError) -> LaneReport {
        let report = try exchange.receiveReport()
        let written = Int(report.count - laneCount)
        counts.received.add(written)
        counts.receivedByLane.add(written)
        laneCount = report.count
        return report
    }

    func send(interim head: ResponseHead) -> Bool {
        let isSent = exchange.send(interim: head)
        if isSent { metrics.addInterim(head.status.code) }
        return isSent
    }

    func send(head: ResponseHead, contentLength: Int64?) throws(ClientGone) {
        status = head.status.code
        try exchange.send(head: head, contentLength: contentLength)
    }

    func send(content: RawSpan) throws(ClientGone) { try exchange.send(content: content) }

    func abort() { exchange.abort() }
}
