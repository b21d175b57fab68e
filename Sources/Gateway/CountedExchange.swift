// One request and its answer, counted: whatever answers it, one place sees the status, the interim responses and
// the bytes of content.
//
// Invariant: what goes through here is not changed.

import Delivery
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
    private let metrics: Metrics
    /// The route, once it is known.
    private var route: Route?
    /// The final status; 0: none was sent.
    private var status = 0

    init(_ exchange: any Exchange, _ metrics: Metrics) {
        self.exchange = exchange
        self.metrics = metrics
    }

    /// Counts what comes as of this route.
    func take(_ route: Route) { self.route = route }

    /// Counts the request, which is over.
    func end() {
        var method = Metrics.MethodName.other
        if case .success(let head) = exchange.head { method = Metrics.MethodName(head.method) }
        metrics.requests[
            Metrics.RequestKey(route: route?.name ?? "-", method: method, status: status)
        ].add()
    }

    var head: Result<RequestHead, Refusal> { exchange.head }
    var context: ExchangeContext { exchange.context }
    var interrupt: @Sendable () -> Void { exchange.interrupt }
    var isPeerGone: Bool { exchange.isPeerGone }

    func receive(into buffer: ContentBuffer) throws(ContentError) -> Bool {
        let before = buffer.count
        // Also of what comes together with its early end.
        defer { route?.received.add(buffer.count - before) }
        return try exchange.receive(into: buffer)
    }

    func send(interim head: ResponseHead) {
        // Others the front does not send.
        if context.interimStatuses.contains(head.status.code) {
            metrics.interims[head.status.code].add()
        }
        exchange.send(interim: head)
    }

    func send(head: ResponseHead, contentLength: Int64?) throws(ClientGone) {
        status = head.status.code
        try exchange.send(head: head, contentLength: contentLength)
    }

    func send(content: RawSpan) throws(ClientGone) { try exchange.send(content: content) }

    func abort() { exchange.abort() }
}
