// 100 (Continue) for a client that waits for it before it sends content (RFC 9110 §10.1.1), where the
// web server leaves that to us.
//
// Invariant: whatever reads content, the 100 goes out before the first read; a request that is
// answered unread hears only its final response.

import Exchange
import HTTPTypes
import Posix
import UploadProtocol

/// An exchange whose client waits for 100 (Continue).
final class ContinuingExchange: Exchange {
    private let inner: any Exchange
    private var isAwaited = true

    private init(_ inner: any Exchange) { self.inner = inner }

    /// The exchange to use for a request: the given one unless its client waits and we must answer.
    static func wrapping(_ exchange: any Exchange, _ head: RequestHead) -> any Exchange {
        guard head.expectsContinue, head.contentLength != .known(0),
            exchange.context.interimStatuses.contains(100)
        else { return exchange }
        return ContinuingExchange(exchange)
    }

    var head: Result<RequestHead, Refusal> { inner.head }
    var context: ExchangeContext { inner.context }
    var interrupt: @Sendable () -> Void { inner.interrupt }
    var isPeerGone: Bool { inner.isPeerGone }

    func receive(into buffer: ContentBuffer) throws(ContentError) -> Bool {
        if isAwaited {
            isAwaited = false
            inner.send(interim: ResponseHead(status: .continue))
        }
        return try inner.receive(into: buffer)
    }

    func send(interim head: ResponseHead) { inner.send(interim: head) }

    func send(head: ResponseHead, contentLength: Int64?) throws(ClientGone) {
        try inner.send(head: head, contentLength: contentLength)
    }

    func send(content: RawSpan) throws(ClientGone) { try inner.send(content: content) }

    func abort() { inner.abort() }
}

extension RequestHead {
    /// Whether the client waits for 100 (Continue) before it sends its content.
    var expectsContinue: Bool { fields[.expect]?.lowercased() == "100-continue" }
}
