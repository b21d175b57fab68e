// The answers to one request on a route that pages of other origins may use (setting `cors`): each final head
// says what its page may read.
//
// What is said is CrossOrigin's to decide. Invariant: whoever answers (an upload, the upstream, a refusal,
// the authorizer), no other word on other origins gets out.

import Delivery
import Exchange
import HTTPTypes
import Posix
import Settings
import UploadProtocol

/// An exchange whose final head gets the route's fields for other origins.
final class CrossOriginExchange: Exchange {
    private let exchange: any Exchange
    private let route: Route
    private let origin: String?

    init(_ exchange: any Exchange, _ route: Route, origin: String?) {
        self.exchange = exchange
        self.route = route
        self.origin = origin
    }

    var head: Result<RequestHead, Refusal> { exchange.head }
    var context: ExchangeContext { exchange.context }
    var interrupt: @Sendable () -> Void { exchange.interrupt }
    var isPeerGone: Bool { exchange.isPeerGone }

    func receive(into buffer: ContentBuffer) throws(ContentError) -> Bool {
        try exchange.receive(into: buffer)
    }

    func offersLane() throws(ContentError) -> Bool { try exchange.offersLane() }

    func grant(_ file: consuming Descriptor, at offset: Int64, _ limit: LaneLimit)
        throws(ContentError)
    {
        try exchange.grant(file, at: offset, limit)
    }

    func widen(_ limit: LaneLimit) throws(ContentError) { try exchange.widen(limit) }

    func stopLane() { exchange.stopLane() }

    func receiveReport() throws(ContentError) -> LaneReport { try exchange.receiveReport() }

    func send(interim head: ResponseHead) -> Bool { exchange.send(interim: head) }

    func send(head: ResponseHead, contentLength: Int64?) throws(ClientGone) {
        var head = head
        route.settings.crossOrigin.mark(&head.fields, for: origin)
        try exchange.send(head: head, contentLength: contentLength)
    }

    func send(content: RawSpan) throws(ClientGone) { try exchange.send(content: content) }

    func abort() { exchange.abort() }
}

extension Gateway {
    /// The exchange by which a request of a route is answered; nil: it is a preflight request, which is
    /// answered here, whatever else there is to do.
    func crossing(
        _ exchange: any Exchange,
        _ head: RequestHead,
        on route: Route
    ) -> (any Exchange)? {
        guard route.settings.crossOrigin.isOn else { return exchange }
        let origin = head.fields.value(of: .origin)
        if let origin, CrossOrigin.isPreflight(head) {
            exchange.answer(route.settings.crossOrigin.preflightAnswer(to: origin))
            return nil
        }
        return CrossOriginExchange(exchange, route, origin: origin)
    }
}
