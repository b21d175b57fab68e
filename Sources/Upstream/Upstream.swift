// One delivery attempt, whatever the upstream is: a request in, a response out part by part, and a
// verdict on what the upstream can have seen of it.
//
// Over HTTP it is HTTPAttempt.swift that does the work, for a directory DirectoryDrop.swift. There
// is no queue, no backoff and no repetition here. The invariant: `.notReached` is said only when
// not one byte of the request can have left, so that repeating it is safe whatever it does.

package import HTTPTypes
package import UploadProtocol

/// The content of one request to the upstream.
package enum UpstreamContent {
    /// No content.
    case none
    /// Content held in memory.
    case bytes([UInt8])
    /// `length` bytes of an open file, from its start; `read` fills a buffer from a position on.
    /// `descriptor` is the open file, or nil where there is no file because the length is 0.
    case file(
        descriptor: Int32?,
        length: Int64,
        read: (UnsafeMutableRawBufferPointer, Int64) throws -> Int
    )
    /// Content taken as it comes and readable once; 0 from `read` is its proper end; `length` nil:
    /// unknown.
    case stream(length: Int64?, read: (UnsafeMutableRawBufferPointer) throws -> Int)
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
    /// Whether it is an upload, the only thing a directory takes.
    package var isUpload: Bool
    /// The upload's identity, in a directory's file names; random for one that has none.
    package var id: UploadID

    /// Makes a request from its parts.
    package init(
        method: HTTPRequest.Method,
        target: String,
        fields: HTTPFields,
        content: UpstreamContent,
        isUpload: Bool,
        id: UploadID
    ) {
        self.method = method
        self.target = target
        self.fields = fields
        self.content = content
        self.isUpload = isUpload
        self.id = id
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
    func attemptGoesOn()
    /// An interim response other than 100 and 101, before the head.
    func receive(interim head: ResponseHead) throws
    /// The final head, once. `contentLength` where the upstream told it.
    func receive(head: ResponseHead, contentLength: Int64?) throws
    /// Content, in order, any number of times.
    func receive(content: RawSpan) throws
}

extension ResponseSink {
    /// Does nothing.
    package func attemptGoesOn() {}
}

/// How an attempt ended.
package enum AttemptOutcome: Sendable, Equatable {
    /// A final response was received whole and went to the sink.
    case answered
    /// Not one byte of the request was sent: no connection, no TLS, no name. Safe to repeat.
    case notReached(reason: String)
    /// Nothing was taken, because the upstream's directory has no room. Safe to repeat.
    case noRoom(reason: String)
    /// Bytes were sent and no whole final response came back.
    case indeterminate(reason: String)
    /// Our own side gave up: the request's content or the sink threw this.
    case abandoned(reason: String)
}

/// An upstream.
///
/// Any thread; connections are kept and reused.
package final class Upstream: Sendable {
    /// The settings it was made with.
    package let settings: UpstreamSettings

    private let connections = ConnectionPool()
    private let way: Way

    /// How requests get there, made out once.
    private enum Way {
        case drop(DirectoryDrop)
        case http(UpstreamLocation)
    }

    /// Makes an upstream; connects to nothing yet.
    package init(_ settings: UpstreamSettings) {
        self.settings = settings
        way =
            switch settings.target {
            case .directory(let path): .drop(DirectoryDrop(path: path))
            case .http(let base): .http(UpstreamLocation(base: base))
            case .unix(let path): .http(UpstreamLocation(socket: path))
            }
    }

    /// Sends one request and hands the response to `sink` as it arrives.
    ///
    /// Blocks the thread; constant memory. Nothing is retried, but for a kept connection that
    /// turned out closed before any response byte: once, with content that can be read again, and
    /// only if the method is idempotent (RFC 9110 §9.2.2) or no byte of the request was taken by
    /// the connection.
    package func attempt(_ request: UpstreamRequest, sink: any ResponseSink) -> AttemptOutcome {
        switch way {
        case .drop(let drop): drop.attempt(request, sink: sink)
        case .http(let location): attempt(request, at: location, sink: sink)
        }
    }

    private func attempt(
        _ request: UpstreamRequest,
        at location: UpstreamLocation,
        sink: any ResponseSink
    ) -> AttemptOutcome {
        guard let connection = connections.take() else {
            return .notReached(
                reason: "no memory for a connection to \(location.name)"
            )
        }
        defer { connections.giveBack(connection) }
        let attempt = HTTPAttempt(
            request,
            to: location,
            settings: settings,
            over: connection,
            sink: sink
        )
        return attempt.run()
    }
}
