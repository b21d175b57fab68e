// The end of an exchange: END_REQUEST and a close after which the response still arrives, or an abort.
//
// Invariant: an incomplete response is never followed by END_REQUEST, so that no web server takes the response for
// complete.

import HTTPTypes
import SpoolgatePosix
import SpoolgateUploadProtocol

extension FastCGIExchange {
    /// Closes the connection at once, without END_REQUEST.
    ///
    /// Measured with nginx 1.22: after a head, nginx closes the client's connection (HTTP/2: INTERNAL_ERROR). Before a
    /// head, the client receives nginx's 502, even while it is still sending. With `error_page 502 = @gone; location
    /// @gone { return 444; }`, nginx closes the client's connection in this case too (HTTP/2: PROTOCOL_ERROR).
    ///
    /// If the connection just ended, nginx would take a response without a length as complete. A connection error, or
    /// bytes that are not a FastCGI record, mark the response as incomplete. nginx discards everything that it reads
    /// together with such bytes, even the head, so they are sent only after nginx has read the response. Some clients
    /// send a request again if they receive no response (Chromium).
    package func abort() {
        if case .content = outgoing, !isOver, writer.flush() {
            connection.spoil(within: Self.readingTime)
        }
        outgoing = .aborted
        connection.cut()
    }

    /// How long nginx has to read the part of the response that was sent before an abort.
    private static let readingTime = Duration.seconds(2)

    enum End: Equatable {
        /// A complete response and END_REQUEST were sent.
        case answered
        /// As `answered`, and the connection can be used for the next request.
        case kept
        /// The web server disconnected, or stopped reading, before the end.
        case gone
        case aborted
        /// The handler sent no response, or less content than announced.
        case incomplete
    }

    /// Ends the request; the caller closes the connection.
    ///
    /// The connection can be kept if the web server asked for this and has sent the whole request.
    func end(mayBeKept: Bool, lingerIdle: Duration, lingerTotal: Duration) -> End {
        isOver = true
        let failure: End? =
            switch outgoing {
            case .nothing: .incomplete
            case .content(let remaining): remaining ?? 0 > 0 ? .incomplete : nil
            case .headOnly: nil
            case .gone: .gone
            case .aborted: .aborted
            }
        if let failure { return failure }
        // Checked before the end is sent, because later bytes may belong to the next request.
        let sentAll = isContentOver
        let isKept =
            keepsConnection && mayBeKept && sentAll && reader.isAtEnd() && !connection.isReleased
        guard writer.end(isLast: keepsConnection && !isKept) else { return .gone }
        if isKept { return .kept }
        // If the connection were closed at once, a write of the web server could fail, and nginx would send 502 instead
        // of the response it has.
        if !sentAll, !sentNothingMore { connection.linger(idle: lingerIdle, total: lingerTotal) }
        return .answered
    }
}

extension FastCGIExchange {
    /// Whether no content is expected and no byte is waiting, so that the connection can be closed at once.
    private var sentNothingMore: Bool {
        guard case .success(let head) = head,
            head.contentLength != .unknown || !head.announcesContent
        else { return false }
        return head.contentLength.count ?? 0 == 0 && connection.readableBytes == 0
    }

    /// Whether the record that ends the content has arrived.
    ///
    /// The record usually arrives with the last byte, or with the parameters if there is no content.
    private var isContentOver: Bool {
        switch incoming {
        case .ended(sawEnd: true): return true
        case .failed, .content(remaining: .some): return false
        case .ended(sawEnd: false), .content(remaining: nil):
            let nowhere = UnsafeMutableRawBufferPointer(start: nil, count: 0)
            return reader.receive(into: nowhere, waits: false).end == .proper
        }
    }
}

extension RequestHead {
    /// Whether a request with this method may have content although it states no length.
    fileprivate var announcesContent: Bool {
        ![.get, .head, .delete, .options].contains(method)
    }
}
