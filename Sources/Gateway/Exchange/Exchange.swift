// The interface between the FastCGI listener and the gateway for one request.

package import SpoolgatePosix
package import SpoolgateUploadProtocol

/// The reason why content did not end properly.
///
/// The bytes received before the error are valid. The raw value is the label in metrics.
package enum ContentError: String, Error, Sendable, CustomStringConvertible {
    /// The connection was closed early, or the message was malformed.
    case truncated
    case stalled
    case released

    package var description: String {
        switch self {
        case .truncated: "the connection was closed"
        case .stalled: "no content arrived within timeouts.stall"
        case .released: "a newer request, a shutdown or a lack of threads ended the request"
        }
    }
}

/// The error thrown if the client has disconnected, so that no more can be sent.
package struct ClientGone: Error, Sendable, CustomStringConvertible {
    /// Creates the error.
    package init() {}

    package var description: String { "the client disconnected" }
}

/// One request, and the means to respond to it; used by one thread, except for `interrupt`.
package protocol Exchange: AnyObject {
    /// The request's head, or the refusal to send if it is invalid.
    var head: Result<RequestHead, Refusal> { get }
    var context: ExchangeContext { get }
    /// Asks this request to stop receiving content; its next read throws `.released`.
    ///
    /// May be called on any thread, and has no effect after the request has ended.
    var interrupt: @Sendable () -> Void { get }
    /// Whether the web server is known to have closed this request; reads nothing to find out.
    var isPeerGone: Bool { get }

    /// Called with each head before it is sent; may add fields.
    var beforeHead: ((inout ResponseHead) -> Void)? { get set }

    /// Waits for content, and appends all that is available to `buffer`.
    ///
    /// Appends nothing, and returns true, if the alarm ended the wait.
    ///
    /// - Returns: false if the content has ended properly and nothing was appended; otherwise true.
    func receive(into buffer: ContentBuffer) throws(ContentError) -> Bool

    /// Sets the alarm that ends a wait for content; nil removes the alarm.
    func setAlarm(_ alarm: Alarm?)

    /// The request's lane; nil if the web server cannot write content into a file itself.
    var lane: (any ContentLane)? { get }

    /// Sends an interim response if `context.interimStatuses` contains its status.
    ///
    /// Returns whether the response was sent.
    @discardableResult
    func send(interim head: ResponseHead) -> Bool

    /// Sends the final response's head.
    ///
    /// Exactly `contentLength` bytes of content must follow, or any number if `contentLength` is nil.
    func send(head: ResponseHead, contentLength: Int64?) throws(ClientGone)

    /// Sends a part of the final response's content, after the head.
    func send(content: RawSpan) throws(ClientGone)

    /// Discards the final response if the web server has received no byte of it; then another one can be sent.
    ///
    /// Returns whether a final response can be sent now.
    func withdraw() -> Bool

    /// Ends the exchange without a complete response; the web server then closes the client's connection.
    func abort()
}

extension Exchange {
    package var lane: (any ContentLane)? { nil }

    /// Does nothing by default.
    package func setAlarm(_ alarm: Alarm?) {}

    /// Sends a complete response; does nothing if the client has disconnected.
    package func answer(_ response: Response) {
        do throws(ClientGone) {
            try send(head: response.head, contentLength: Int64(response.content.count))
            if !response.content.isEmpty { try send(content: response.content.span.bytes) }
        } catch {
            // The client is gone.
        }
    }
}
