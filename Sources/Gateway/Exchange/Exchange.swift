// What a front supplies for one request, and how its content can end.

package import SpoolgatePosix
package import SpoolgateUploadProtocol

/// Why content did not come to its proper end.
///
/// Bytes received before it are good.
package enum ContentError: Error, Sendable, Equatable {
    /// The connection ended first, or the message was malformed.
    case truncated
    /// No byte came for the stall limit.
    case stalled
    /// Fewer bytes came for a minute than the route wants.
    case tooSlow
    /// A newer request, or the end of the daemon, asked this one to let go.
    case released
}

/// The client is gone: nothing more can be sent to it.
package struct ClientGone: Error, Sendable, CustomStringConvertible {
    /// Makes the error.
    package init() {}

    /// A clause for a reason.
    package var description: String { "the client disconnected" }
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

    /// Adds content to `buffer`: at least one byte, and as many as are there without waiting; nothing if the wait for
    /// it was ended by the alarm.
    /// - Returns: false at the proper end of the content, with nothing added.
    func receive(into buffer: ContentBuffer) throws(ContentError) -> Bool

    /// Has `alarm` end waits for content early, from here on; nil: nothing does.
    func setAlarm(_ alarm: Alarm?)

    /// The way on which the web server writes content into a file by itself; nil: this front has none.
    var lane: (any ContentLane)? { get }

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

extension Exchange {
    /// A front that does not say otherwise has no lane.
    package var lane: (any ContentLane)? { nil }

    /// A front that does not say otherwise waits until content comes, whatever rings.
    package func setAlarm(_ alarm: Alarm?) {}

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
