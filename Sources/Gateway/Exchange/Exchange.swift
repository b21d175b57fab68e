// The interface between the FastCGI listener and the gateway for one request.

package import SpoolgatePosix
package import SpoolgateTextFormats
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
    package func respond(_ response: Response) {
        do throws(ClientGone) {
            try send(head: response.head, contentLength: Int64(response.content.count))
            if !response.content.isEmpty { try send(content: response.content.span.bytes) }
        } catch {
            // The client is gone.
        }
    }
}

// MARK: The context

// The web server's parameters about a request.

/// The parameters that the web server passes with a request, as the operator has configured it.
package struct ExchangeContext: Sendable, Equatable {
    /// The route (`SPOOLGATE_ROUTE`); nil for the default route.
    package var route: String?
    /// The client's identity (`SPOOLGATE_OWNER`); nil if unknown.
    package var owner: ExactText?
    /// The public origin, such as `https://example.org:8443` (`SPOOLGATE_ORIGIN`); if nil, `Location` is only a path.
    package var origin: String?
    /// The value of `SPOOLGATE_ORIGIN` if it is not a valid origin; otherwise nil.
    package var badOrigin: String?
    /// The interim statuses that the web server forwards to clients (`SPOOLGATE_INTERIM`).
    package var interimStatuses: [Int] = []
    /// The client's address (`REMOTE_ADDR`); nil if missing.
    package var remoteAddress: String?
    /// The scheme of the client's request, such as `https` (`REQUEST_SCHEME`); nil if missing.
    package var scheme: String?
    /// The mistakes in the web server's configuration that the parameters reveal.
    ///
    /// If they include `.badOrigin`, the property `badOrigin` is the invalid value.
    package var faults: Set<WebServerFault> = []
}

extension ExchangeContext {
    /// The context of a request without parameters.
    package static let empty = ExchangeContext()
}

/// A kind of mistake in the web server's configuration.
package enum WebServerFault: String, Sendable, CaseIterable {
    /// The web server stored content in a file before passing the content on.
    case buffered
    /// nginx does not say whether it buffers content, because its configuration lacks spoolgate's parameter file.
    case bufferingUnknown = "buffering_unknown"
    case noOrigin = "no_origin"
    case badOrigin = "bad_origin"
    /// `REQUEST_METHOD`, `REQUEST_URI`, `SPOOLGATE_INTERIM` or the FastCGI role is missing or wrong.
    case noMethod = "no_method"
    case unknownRoute = "unknown_route"
}

// MARK: The lane

// The lane: the web server writes a request's content into a file itself.

/// Lets the web server write one request's content into a file by itself.
///
/// Used by the request's thread.
package protocol ContentLane: AnyObject {
    /// Waits until content arrives, and returns whether the web server offers to write the content itself.
    ///
    /// `grant` accepts the offer. The next call of `Exchange.receive(into:)` declines it.
    func isOffered() throws(ContentError) -> Bool

    /// Whether the web server has made an offer, even one that was declined.
    ///
    /// Known only after content has been read.
    var wasOffered: Bool { get }

    /// Accepts the offer.
    ///
    /// The web server then appends content to `file` until it reports the end. Afterwards, `Exchange.receive(into:)`
    /// returns the content that the web server did not write. The file must be open for appending only, and `offset`
    /// must be its current size in bytes. This function closes the file.
    ///
    /// - Throws: `ContentError` if the web server has closed the connection.
    func grant(_ file: consuming Descriptor, at offset: Int64, _ limit: LaneLimit)
        throws(ContentError)

    /// Raises the limit.
    ///
    /// `limit.count` must be the new total, not an increment.
    func widen(_ limit: LaneLimit) throws(ContentError)

    /// Asks the web server to stop writing and to close the file.
    ///
    /// Content that the web server has not written is lost.
    func stop()

    /// Waits for the web server's next report; must not be called after `LaneReport.ended`.
    ///
    /// - Returns: the report, or nil if the alarm ended the wait (`Exchange.setAlarm`).
    /// - Throws: `ContentError`, once all earlier reports have been returned. After `.stalled`, the call can be
    ///   repeated.
    func receiveReport() throws(ContentError) -> LaneReport?
}

/// The limit on the content that a web server may write into a file.
package struct LaneLimit: Sendable, Equatable {
    /// The maximum number of bytes that the web server may write in total.
    package var count: Int64
    /// True if the web server sends content beyond the limit to `receive(into:)`; false if the web server waits for a
    /// higher limit.
    package var restFollows: Bool

    /// Creates a limit.
    package init(count: Int64, restFollows: Bool) {
        (self.count, self.restFollows) = (count, restFollows)
    }
}

/// A report of a web server that writes content into a file.
package enum LaneReport: Sendable, Equatable {
    /// The total number of bytes written so far.
    case written(Int64)
    /// The web server has closed the file after this total number of bytes; `errno` is 0 if no error occurred.
    case ended(Int64, errno: Int32)

    package var count: Int64 {
        switch self {
        case .written(let count), .ended(let count, _): count
        }
    }
}

// MARK: The content's path

// How a message's content reached the spool.

/// The writer of a message's content: the web server (`used`), or the gateway for the reason that the case names.
package enum ContentPath: Int, Sendable, CaseIterable {
    /// The web server wrote content.
    ///
    /// Any other content passed through the gateway.
    case used
    case off
    case shared
    /// The content has a digest, or may be discarded for another reason.
    case digest
    /// The length is unknown, and the client takes the offset of all content for success.
    case length
    case ordinary
    /// The spool has no space for even one byte.
    case full
    /// The web server could not use the file of an earlier upload.
    case unusable
    case notOffered
    case small

    /// Parses a label; returns nil if it is unknown.
    package init?(label: some StringProtocol) {
        guard let path = Self.allCases.first(where: { $0.label == label }) else { return nil }
        self = path
    }

    /// The label in metrics and in the daemon's responses to its commands.
    package var label: String { self == .notOffered ? "not_offered" : "\(self)" }

    /// A text for people that says why the web server did not write the content; nil for `used`.
    package var reason: String? {
        switch self {
        case .used: nil
        case .off: "the route has spool-receive: off"
        case .shared: "the spool is shared"
        case .digest: "the content has a digest"
        case .length: "the length is unknown, and the client takes an offset for success"
        case .ordinary: "the upload has no upload resource"
        case .full: "the spool has no space for nginx to write to"
        case .unusable: "nginx could not use the data file"
        case .notOffered: "nginx did not offer to write the content"
        case .small: "the content is 256 KiB or less"
        }
    }
}
