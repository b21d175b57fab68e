// What a front supplies for one request, and how its content can end.

package import Posix
package import UploadProtocol

/// Why content did not come to its proper end.
///
/// Bytes received before it are good.
package enum ContentError: Error, Sendable, Equatable {
    /// The connection ended first, or the message was malformed.
    case truncated
    /// No byte came for the stall limit.
    case stalled
    /// A newer request, or the end of the daemon, asked this one to let go.
    case released
}

/// The client is gone: nothing more can be sent to it.
package struct ClientGone: Error, Sendable, CustomStringConvertible {
    /// Makes the error.
    package init() {}

    /// A clause for a reason.
    package var description: String { "the client is gone" }
}

/// One request and the way to answer it.
///
/// Used by one thread, but for `interrupt`.
package protocol Exchange: AnyObject {
    /// The request's head, validated by the front, or why it is no request we take.
    var head: Result<RequestHead, Refusal> { get }
    /// What the web server says of it.
    var context: ExchangeContext { get }
    /// Asks this request's thread, from any other, to stop receiving: its next read ends with
    /// `.released`. Harmless when the request is over.
    var interrupt: @Sendable () -> Void { get }
    /// Whether the web server has gone away from this request, as far as can be told without reading.
    var isPeerGone: Bool { get }

    /// Adds content to `buffer`: at least one byte, and as many as are there without waiting.
    /// - Returns: false at the proper end of the content, with nothing added.
    func receive(into buffer: ContentBuffer) throws(ContentError) -> Bool

    /// Whether the web server offers to write the content into a file by itself: the lane. Waits for the
    /// beginning of the content.
    ///
    /// The offer is declined by the next `receive(into:)`, or taken up by `grant`.
    func offersLane() throws(ContentError) -> Bool

    /// Takes the offer up: the web server adds content to the end of `file`, until it has told that it has
    /// ended; what `receive(into:)` gives comes behind that.
    ///
    /// - Parameters:
    ///   - file: open for adding alone; closed here.
    ///   - offset: its size.
    ///   - limit: how much may be written.
    /// - Throws: where the web server is gone.
    func grant(_ file: consuming Descriptor, at offset: Int64, _ limit: LaneLimit)
        throws(ContentError)

    /// Lets the web server write more, `limit.count` bytes in all.
    func widen(_ limit: LaneLimit) throws(ContentError)

    /// Has the web server write no more: it closes the file; what it had not written is lost.
    func stopLane()

    /// Waits for what the web server says of what it writes, until it has ended.
    ///
    /// - Throws: `ContentError`, after all reports that came before it; after `.stalled` it can be asked
    ///   again.
    func receiveReport() throws(ContentError) -> LaneReport

    /// Sends an interim response if `context.interimStatuses` has its status; otherwise nothing.
    /// - Returns: whether it was sent.
    @discardableResult
    func send(interim head: ResponseHead) -> Bool

    /// Sends the final head. With `contentLength` the content that follows must have that length;
    /// nil where it is not known beforehand.
    func send(head: ResponseHead, contentLength: Int64?) throws(ClientGone)

    /// Sends content after the head.
    func send(content: RawSpan) throws(ClientGone)

    /// Ends the exchange without an answer, so that the client sees its connection break.
    func abort()
}

/// How much content a web server may write into a file by itself.
package struct LaneLimit: Sendable, Equatable {
    /// Bytes in all.
    package var count: Int64
    /// Whether what goes on behind them comes by `receive(into:)`; else the web server waits for a higher limit.
    package var restFollows: Bool

    /// Makes a limit.
    package init(count: Int64, restFollows: Bool) {
        (self.count, self.restFollows) = (count, restFollows)
    }
}

/// What a web server says of content that it writes into a file by itself.
package enum LaneReport: Sendable, Equatable {
    /// So many bytes are written.
    case written(Int64)
    /// It has closed the file, with so many bytes written; `errno` is why it could not write more, or 0.
    case ended(Int64, errno: Int32)

    /// Bytes that are written.
    package var count: Int64 {
        switch self {
        case .written(let count), .ended(let count, _): count
        }
    }
}

extension Exchange {
    /// A front that does not say otherwise has no lane.
    package func offersLane() throws(ContentError) -> Bool { false }

    /// Never called without an offer.
    package func grant(
        _ file: consuming Descriptor,
        at offset: Int64,
        _ limit: LaneLimit
    ) throws(ContentError) {
        preconditionFailure("a grant that nobody asked for")
    }

    /// Nothing, without a grant.
    package func widen(_ limit: LaneLimit) throws(ContentError) {}

    /// Nothing, without a grant.
    package func stopLane() {}

    /// Never called without a grant.
    package func receiveReport() throws(ContentError) -> LaneReport {
        preconditionFailure("a report without a grant")
    }

    /// Sends one whole response of the gateway's own; a client that is gone is not an error here.
    package func answer(_ response: Response) {
        do throws(ClientGone) {
            try send(head: response.head, contentLength: Int64(response.content.count))
            if !response.content.isEmpty { try send(content: response.content.span.bytes) }
        } catch {
            // Nobody is left to tell.
        }
    }
}
