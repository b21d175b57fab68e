// How an exchange ends: END_REQUEST and a close that loses nothing of the answer, or a break.
//
// Invariant: a response that is not whole gets no END_REQUEST, so that nobody takes it for whole.

import HTTPTypes
import SpoolgatePosix
import SpoolgateUploadProtocol

extension FastCGIExchange {
    /// Closes the connection without END_REQUEST, at once.
    ///
    /// What nginx makes of it (1.22, measured): after a head the client's connection breaks (HTTP/2:
    /// INTERNAL_ERROR); before one the client gets nginx's 502, also while it is still sending. With
    /// `error_page 502 = @gone; location @gone { return 444; }` its connection breaks then too
    /// (HTTP/2: PROTOCOL_ERROR), and other answers of ours pass as they are.
    ///
    /// A response without a length looks whole to nginx when its connection just ends: then the
    /// break is made one by bytes that are no FastCGI record.
    package func abort() {
        if case .content = outgoing, !isOver, writer.flush() { connection.spoil() }
        outgoing = .aborted
        connection.cut()
    }

    /// How an exchange ended.
    enum End: Equatable {
        /// With a whole response, and END_REQUEST after it.
        case answered
        /// The same, and the web server may send its next request: the connection is as it was.
        case kept
        /// The web server left, or stopped reading, before it had the response.
        case gone
        /// On purpose, by `abort`.
        case aborted
        /// The answer is not whole: none was given, or less content than was announced.
        case incomplete
    }

    /// Ends the request, and closes the connection within the limits of `linger` unless it is kept.
    ///
    /// It is kept where the web server asked for that, and nothing of this request is still to come.
    ///
    /// A response that is not whole gets no END_REQUEST, so that nobody takes it for whole.
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
        // Looked at before the end is sent: what is read after that may be the next request.
        let sentAll = isContentOver
        let isKept =
            keepsConnection && mayBeKept && sentAll && reader.isAtEnd() && !connection.isReleased
        guard writer.end(isLast: keepsConnection && !isKept) else { return .gone }
        if isKept { return .kept }
        // The web server may still be sending. Closed at once, its write would fail, and nginx then says
        // 502 instead of the answer it has.
        if !sentAll, !sentNothingMore { connection.linger(idle: lingerIdle, total: lingerTotal) }
        return .answered
    }
}

extension FastCGIExchange {
    /// Whether the web server seems to have nothing left to send, so that closing cannot break its writing:
    /// the request is of a kind that has no content and nothing waits to be read.
    private var sentNothingMore: Bool {
        guard case .success(let head) = head,
            head.contentLength != .unknown || !head.announcesContent
        else { return false }
        return head.contentLength.count ?? 0 == 0 && connection.readableBytes == 0
    }

    /// Whether the record that ends the content has arrived; it usually comes with the last byte, or with
    /// the parameters where there is no content.
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
    /// Whether a request without a length may have content all the same.
    fileprivate var announcesContent: Bool {
        ![.get, .head, .delete, .options].contains(method)
    }
}
