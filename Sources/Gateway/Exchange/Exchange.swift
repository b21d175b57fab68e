// The interface between the FastCGI listener and the gateway for one request, and the ways its content can end.

package import SpoolgatePosix
package import SpoolgateUploadProtocol

/// The reason why content did not end properly.
///
/// The bytes received before it are valid.
package enum ContentError: Error, Sendable, Equatable {
    /// The connection ended first, or the message was malformed.
    case truncated
    /// No byte arrived within the stall timeout.
    case stalled
    /// Fewer bytes arrived in a minute than the route requires.
    case tooSlow
    /// A newer request, or the daemon's shutdown, asked this request to end.
    case released
}

/// The client is gone, so that no more can be sent to it.
package struct ClientGone: Error, Sendable, CustomStringConvertible {
    /// Creates the error.
    package init() {}

    /// The clause for a log message's reason.
    package var description: String { "the client disconnected" }
}

/// One request, and the means to respond to it.
///
/// Used by one thread, except for `interrupt`.
package protocol Exchange: AnyObject {
    /// The head, validated by the FastCGI listener, or the refusal of an invalid one.
    var head: Result<RequestHead, Refusal> { get }
    var context: ExchangeContext { get }
    /// Asks this request to stop receiving, from any thread; its next read throws `.released`.
    ///
    /// Does nothing after the request has ended.
    var interrupt: @Sendable () -> Void { get }
    /// Whether the web server has closed this request, as far as can be found without reading.
    var isPeerGone: Bool { get }

    /// Appends content to `buffer`: at least one byte, and all bytes available without waiting.
    ///
    /// Appends nothing if the alarm ended the wait.
    ///
    /// - Returns: false at the proper end of the content; then nothing was appended.
    func receive(into buffer: ContentBuffer) throws(ContentError) -> Bool

    /// Sets the alarm that ends waits for content early; nil for none.
    func setAlarm(_ alarm: Alarm?)

    /// The lane, on which the web server writes content into a file; nil if it is not supported.
    var lane: (any ContentLane)? { get }

    /// Sends an interim response if `context.interimStatuses` contains its status.
    ///
    /// - Returns: whether it was sent.
    @discardableResult
    func send(interim head: ResponseHead) -> Bool

    /// Sends the final head; the content must have the length `contentLength`, or any length if that is nil.
    func send(head: ResponseHead, contentLength: Int64?) throws(ClientGone)

    /// Sends content after the head.
    func send(content: RawSpan) throws(ClientGone)

    /// Ends the exchange without a response, so that the client's connection is closed.
    func abort()
}

extension Exchange {
    /// By default, there is no lane.
    package var lane: (any ContentLane)? { nil }

    /// By default, only content ends a wait.
    package func setAlarm(_ alarm: Alarm?) {}

    /// Sends a complete response; ignores that the client is gone.
    package func answer(_ response: Response) {
        do throws(ClientGone) {
            try send(head: response.head, contentLength: Int64(response.content.count))
            if !response.content.isEmpty { try send(content: response.content.span.bytes) }
        } catch {
            // The client is gone.
        }
    }
}
