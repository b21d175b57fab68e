// One delivery attempt for every kind of upstream, without a queue, backoff or retry.
//
// Invariant: the outcome is `.notReached` only if no byte of the request can have been sent, so that repeating it is
// safe for every method.

package import HTTPTypes
package import SpoolgatePosix
import SpoolgateTextFormats
package import SpoolgateUploadProtocol

/// The content of one request to the upstream.
package enum UpstreamContent {
    case none
    case bytes([UInt8])
    /// A buffer that does not change during the attempt.
    case held(ContentBuffer)
    /// `length` bytes that can be read again. `read` fills a buffer from a position on, and returns the number of
    /// bytes.
    ///
    /// `descriptor` is that of a file that begins with these bytes; nil if unavailable.
    case file(
        descriptor: Int32?,
        length: Int64,
        read: (UnsafeMutableRawBufferPointer, Int64) throws -> Int
    )
    /// The bytes `before`, then `length` bytes of content, then the bytes `after`, as in multipart/form-data (RFC
    /// 7578).
    ///
    /// `read` fills a buffer from a position in the content on.
    case framed(
        before: [UInt8],
        length: Int64,
        read: (UnsafeMutableRawBufferPointer, Int64) throws -> Int,
        after: [UInt8]
    )
    /// Content that can be read only once; `read` returns 0 at the proper end, and `length` is nil if unknown.
    case stream(length: Int64?, read: (UnsafeMutableRawBufferPointer) throws -> Int)
}

extension UpstreamContent {
    var isInMemory: Bool { withBytesInMemory { _ in } != nil }

    /// Returns nil if the content is not in memory.
    func withBytesInMemory<R>(_ body: (UnsafeRawBufferPointer) -> R) -> R? {
        switch self {
        case .bytes(let bytes): bytes.withUnsafeBytes(body)
        case .held(let buffer): buffer.withBytes { $0.withUnsafeBytes(body) }
        case .none, .file, .framed, .stream: nil
        }
    }
}

/// One request to the upstream: a delivery, a pass-through, or one of the gateway's own.
package struct UpstreamRequest {
    package var method: HTTPRequest.Method
    /// The request target as the client sent it.
    package var target: String
    /// The fields made by `UpstreamFields`, including `Host`.
    ///
    /// Message framing is added when the request is sent.
    package var fields: HTTPFields
    package var content: UpstreamContent
    /// The path and optional query of a second resource at the public origin that the request names; nil if the request
    /// names no second resource.
    ///
    /// The upstream receives this path in `Destination`, with the upstream's own scheme and base path.
    package var destination: String?
    /// The upload's ID, used in the names of files and objects.
    ///
    /// If the ID is nil, the request is not an upload, and stores refuse it.
    package var upload: UploadID?
    /// Whether a directory must make the upload durable before it responds.
    package var survivesPowerCut: Bool
    /// Whether a redirect within the upstream ends the attempt with the outcome `.redirected`.
    package var interceptsRedirects = false
    /// Whether the request must not use a kept connection (RFC 9110 §15.5.20).
    package var needsNewConnection = false
    /// The facts for a store; nil means those in the request itself.
    package var facts: UploadFacts?

    /// Whether the request may be sent again after an attempt of unknown outcome.
    var isRepeatable: Bool { method.isRepeatable(with: fields) }

    /// Creates a request.
    package init(
        method: HTTPRequest.Method,
        target: String,
        fields: HTTPFields,
        content: UpstreamContent = .none,
        upload: UploadID? = nil,
        survivesPowerCut: Bool = true
    ) {
        self.survivesPowerCut = survivesPowerCut
        self.method = method
        self.target = target
        self.fields = fields
        self.content = content
        self.upload = upload
    }

    /// The attempted action, with which every reason begins.
    func purpose(at upstream: String) -> String {
        "\(method.rawValue) \(target.shownTarget(withQuery: false).prefix(200)) to \(upstream)"
    }
}

/// The receiver of the upstream's response; an error that a method throws ends the exchange.
package protocol ResponseSink: AnyObject {
    /// Called repeatedly during the attempt: over HTTP, at least once a second after the connection is open.
    ///
    /// May block. The time of the call does not count towards the upstream's timeouts.
    func onProgress()
    /// Receives an interim response other than 100, 101 and 104.
    func receive(interim head: ResponseHead) throws
    /// Receives the final head; called at most once. `contentLength` is nil if unknown.
    func receive(head: ResponseHead, contentLength: Int64?) throws
    /// Receives a part of the content, in order.
    func receive(content: RawSpan) throws
}

extension ResponseSink {
    /// Does nothing by default.
    package func onProgress() {}
}

/// A way to the server or the store that receives requests; thread-safe.
package protocol UpstreamAccess: Sendable {
    /// Sends one request and passes the response to `sink` as it arrives; blocks until the end.
    func attempt(_ request: UpstreamRequest, sink: any ResponseSink) -> AttemptOutcome
}

/// The application or the store that receives requests and uploads.
///
/// Thread-safe. Keeps its connections open and reuses them.
package final class Upstream: Sendable {
    package let settings: UpstreamSettings

    private let access: any UpstreamAccess

    /// Creates an upstream; no connection is opened yet.
    ///
    /// `skipped` is called with the reasons in one sentence each time an attempt reached a target only after others
    /// failed.
    package init(
        _ settings: UpstreamSettings,
        skipped: @escaping @Sendable (String) -> Void = { _ in }
    ) {
        self.settings = settings
        let locations = settings.targets.compactMap { UpstreamLocation($0) }
        precondition(
            settings.targets.count == max(1, locations.count),
            "a store must be the only target"
        )
        access =
            settings.store?.access(settings) ?? HTTPTargets(locations, settings, skipped: skipped)
    }

    /// Sends one request and passes the response to `sink` as it arrives; blocks until the end, in constant memory.
    ///
    /// If a target is not reached, the next one is tried, unless content was read that cannot be read again. The
    /// request is sent to a target a second time only if a kept connection was closed before any response byte, the
    /// content can be read again, and either the method is idempotent (RFC 9110 §9.2.2) or the connection took no byte.
    package func attempt(_ request: UpstreamRequest, sink: any ResponseSink) -> AttemptOutcome {
        access.attempt(request, sink: sink)
    }
}
