// One delivery attempt, whatever the upstream is: a request in, a response out part by part, and a
// verdict on what the upstream can have seen of it.
//
// Over HTTP it is HTTPTargets.swift that does the work, for a directory DirectoryDrop.swift, for a bucket
// Bucket.swift. There is no queue, no backoff and no repetition here. The invariant: `.notReached` is said
// only when not one byte of the request can have left, so that repeating it is safe whatever it does.

package import HTTPTypes
package import SpoolgatePosix
import SpoolgateTextFormats
package import SpoolgateUploadProtocol

/// The content of one request to the upstream.
package enum UpstreamContent {
    /// No content.
    case none
    /// Content held in memory.
    case bytes([UInt8])
    /// The content of a buffer that nobody changes until the attempt is over.
    case held(ContentBuffer)
    /// `length` bytes of an open file, from its start; `read` fills a buffer from a position on.
    /// `descriptor` is the open file, or nil where the content is in no file.
    case file(
        descriptor: Int32?,
        length: Int64,
        read: (UnsafeMutableRawBufferPointer, Int64) throws -> Int
    )
    /// `before`, then `length` bytes that `read` fills a buffer with from a position on, then
    /// `after`: one content of exactly their sum, as multipart/form-data needs it (RFC 7578).
    case framed(
        before: [UInt8],
        length: Int64,
        read: (UnsafeMutableRawBufferPointer, Int64) throws -> Int,
        after: [UInt8]
    )
    /// Content taken as it comes and readable once; 0 from `read` is its proper end; `length` nil:
    /// unknown.
    case stream(length: Int64?, read: (UnsafeMutableRawBufferPointer) throws -> Int)
}

extension UpstreamContent {
    /// Whether all of it lies in memory.
    var isInMemory: Bool {
        switch self {
        case .bytes, .held: true
        case .none, .file, .framed, .stream: false
        }
    }

    /// Calls `body` with the bytes of content that all lies in memory; nil for any other.
    func withBytesInMemory<R>(_ body: (UnsafeRawBufferPointer) -> R) -> R? {
        switch self {
        case .bytes(let bytes): bytes.withUnsafeBytes(body)
        case .held(let buffer): buffer.withBytes { $0.withUnsafeBytes(body) }
        case .none, .file, .framed, .stream: nil
        }
    }
}

/// One regular request to the upstream.
package struct UpstreamRequest {
    /// The method.
    package var method: HTTPRequest.Method
    /// The request target, bytes as the client sent them.
    package var target: String
    /// The fields, cleaned by `UpstreamFields`; `Host` included.
    ///
    /// Framing is added here.
    package var fields: HTTPFields
    /// The content.
    package var content: UpstreamContent
    /// The path, perhaps with a query, of a place at the public origin that the request names beside its target: sent as
    /// `Destination`, where the upstream is asked by its own scheme and below its own path; nil: it names none.
    package var destination: String?
    /// The upload's identity, in the names of files and objects; nil for what is none, which no directory and
    /// no bucket takes.
    package var upload: UploadID?
    /// Whether a directory has to have it on disk before it answers.
    package var survivesPowerCut: Bool
    /// Whether a redirect within the upstream is not passed on, but named by the outcome (`.redirected`).
    package var interceptsRedirects = false
    /// Whether an earlier attempt may have stored it already, in a bucket perhaps under the name that an earlier build
    /// gave it.
    package var isRepeated = false
    /// What a directory or bucket is told of the upload; nil: what the request itself says.
    package var facts: UploadFacts?

    /// Whether it may be sent again if nobody knows whether it was carried out.
    var isRepeatable: Bool { method.isRepeatable(with: fields) }

    /// Makes a request from its parts.
    package init(
        method: HTTPRequest.Method,
        target: String,
        fields: HTTPFields,
        content: UpstreamContent,
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

    /// What is attempted with it, as the beginning of every reason.
    func purpose(at upstream: String) -> String {
        "\(method.rawValue) \(target.shownTarget(withQuery: false).prefix(200)) to \(upstream)"
    }
}

/// Where the upstream's response goes, part by part.
///
/// Any throw ends the exchange.
package protocol ResponseSink: AnyObject {
    /// The attempt is still under way: at least once a second over HTTP once there is a connection,
    /// and between two parts of content that is copied.
    ///
    /// May block: that time is not counted against the upstream.
    func onProgress()
    /// An interim response other than 100 and 101, before the head.
    func receive(interim head: ResponseHead) throws
    /// The final head, once. `contentLength` where the upstream told it.
    func receive(head: ResponseHead, contentLength: Int64?) throws
    /// Content, in order, any number of times.
    func receive(content: RawSpan) throws
}

extension ResponseSink {
    /// Does nothing.
    package func onProgress() {}
}

/// An upstream.
///
/// Any thread; connections are kept and reused.
package final class Upstream: Sendable {
    /// The settings it was made with.
    package let settings: UpstreamSettings

    private let way: Way

    /// How requests get there, made out once.
    private enum Way {
        case drop(DirectoryDrop)
        case bucket(Bucket)
        case http(HTTPTargets)
    }

    /// Makes an upstream; connects to nothing yet.
    ///
    /// - Parameters:
    ///   - settings: its targets, at least one; a directory or a bucket is the only one.
    ///   - skipped: told why targets were not reached, in one sentence, where another one was.
    package init(
        _ settings: UpstreamSettings,
        skipped: @escaping @Sendable (String) -> Void = { _ in }
    ) {
        self.settings = settings
        var locations: [UpstreamLocation] = []
        for target in settings.targets {
            precondition(
                !target.standsAlone || settings.targets.count == 1,
                "it must be the only target"
            )
            switch target {
            case .directory(let path):
                way = .drop(DirectoryDrop(path: path))
                return
            case .bucket(let address):
                way = .bucket(Bucket(address, settings))
                return
            case .http(let base): locations.append(UpstreamLocation(base: base))
            case .unix(let path):
                locations.append(UpstreamLocation(base: "http://localhost", socket: path))
            }
        }
        way = .http(HTTPTargets(locations, settings, skipped: skipped))
    }

    /// Sends one request and hands the response to `sink` as it arrives.
    ///
    /// Blocks the thread; constant memory. A target that was not reached is followed by the next,
    /// as long as nothing of the content was read that cannot be read again; nothing else is
    /// retried, but for a kept connection that turned out closed before any response byte: once,
    /// with content that can be read again, and only if the method is idempotent (RFC 9110 §9.2.2)
    /// or no byte of the request was taken by the connection.
    package func attempt(_ request: UpstreamRequest, sink: any ResponseSink) -> AttemptOutcome {
        switch way {
        case .drop(let drop): drop.attempt(request, sink: sink)
        case .bucket(let bucket): bucket.attempt(request, sink: sink)
        case .http(let targets): targets.attempt(request, sink: sink)
        }
    }
}
