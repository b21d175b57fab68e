// The content of one request, and 100 (Continue) for a client that waits for it before it sends any (RFC 9110
// §10.1.1), where the web server leaves that to us.
//
// Invariant: whatever reads content, the 100 goes out before the first read; a request that is answered
// unread hears only its final response.

import Exchange
import HTTPTypes
import Posix
import UploadProtocol

/// The one way to a request's content.
///
/// One thread.
final class RequestContent {
    let exchange: any Exchange
    private var isContinueAwaited: Bool
    /// Whether there may be so much of it that another way than through here is worth its beginning.
    private let isLarge: Bool

    /// Bytes of content that the web server sends here at once.
    private static let mostOfSmall: Int64 = 256 << 10

    init(_ exchange: any Exchange, _ head: RequestHead, _ context: ExchangeContext) {
        self.exchange = exchange
        isContinueAwaited =
            context.interimStatuses.contains(100) && head.contentLength != .known(0)
            && head.expectsContinue
        isLarge = head.contentLength.count ?? .max > Self.mostOfSmall
    }

    /// As `Exchange.receive`.
    func receive(into buffer: ContentBuffer) throws(ContentError) -> Bool {
        askForContent()
        return try exchange.receive(into: buffer)
    }

    /// As `Exchange.offersLane`; false for little content, without waiting.
    func offersLane() throws(ContentError) -> Bool {
        guard isLarge else { return false }
        askForContent()
        return try exchange.offersLane()
    }

    private func askForContent() {
        if isContinueAwaited { exchange.send(interim: ResponseHead(status: .continue)) }
        isContinueAwaited = false
    }
}

extension RequestHead {
    /// Whether the client waits for 100 (Continue) before it sends its content.
    var expectsContinue: Bool { fields.value(of: .expect)?.lowercased() == "100-continue" }
}
