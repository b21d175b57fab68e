// Client requests, and their errors and interim responses.

package import HTTPTypes
package import SpoolgateUploadProtocol

/// One request of a client.
package struct ClientRequest {
    /// The requested HTTP version.
    package enum Version: Sendable, Equatable, CaseIterable {
        case http1
        /// HTTP/2 if the server offers it in the TLS handshake, otherwise HTTP/1.1.
        case http2
    }

    /// The method; HEAD has no content.
    package var method: HTTPRequest.Method
    /// The complete `http://` or `https://` URL; sent unchanged.
    package var url: String
    /// The request's fields, to which the transfer adds framing and `Host`.
    ///
    /// `Expect: 100-continue` takes effect over HTTP/1.1.
    package var fields: HTTPFields
    package var version: Version
    package var content: ClientContent?
    /// The maximum time to connect, and then the maximum time without a byte in either direction.
    ///
    /// Time spent waiting for `content` does not count.
    package var timeout = Duration.seconds(30)
    /// The maximum time without a byte after all content has been sent.
    ///
    /// If nil, `timeout` applies.
    package var responseTimeout: Duration?
    /// The maximum number of bytes per second, or 0 for no limit.
    package var rateLimit: Int64 = 0
    /// A file in the format of netrc(5) with the host's user and password, or nil to use none.
    package var netrc: String?
    // `usesProxies` to `socket` are as in `CurlEndpoint`.
    package var usesProxies = false
    package var tls = TLSFiles()
    package var wantsNewestTLS = false
    package var socket: String?
    /// Called for each piece of the final response's content; returns false to end the transfer.
    ///
    /// If nil, `ClientTransfer.content` keeps the start of the content.
    package var sink: ((ResponseHead, UnsafeRawBufferPointer) -> Bool)?
    /// Called for each interim response on arrival; returns false to end the transfer.
    ///
    /// If nil, `ClientTransfer.interim` keeps the interim responses.
    package var received: ((ClientInterim) -> Bool)?
    /// Whether to end the transfer after the connection and TLS are established, without sending a request.
    package var onlyConnects = false

    /// Creates a request.
    package init(
        _ method: HTTPRequest.Method,
        _ url: String,
        fields: HTTPFields = [:],
        version: Version = .http1,
        content: ClientContent? = nil
    ) {
        self.method = method
        self.url = url
        self.fields = fields
        self.version = version
        self.content = content
    }
}

/// Content that a callback produces piece by piece, at its own pace.
package struct ClientContent {
    /// The result of one call for content.
    package enum Step {
        /// The callback wrote this many bytes. 0 means that the content has ended.
        case bytes(Int)
        /// The callback has no bytes yet and must be called again soon.
        case later
        /// The callback asks for the connection to be aborted. A TCP connection is reset.
        case reset
    }

    let length: Int64?
    let next: (UnsafeMutableRawBufferPointer, ClientTransfer) -> Step

    /// Creates content of `length` bytes.
    ///
    /// If `length` is nil, the server is not told the length.
    ///
    /// `next` fills the buffer with the next piece, and may send other requests.
    package init(
        length: Int64?,
        next: @escaping (UnsafeMutableRawBufferPointer, ClientTransfer) -> Step
    ) {
        self.length = length
        self.next = next
    }
}

/// The reason why a request has no complete response.
package struct ClientFault: Error, Sendable, Equatable {
    /// The kind of failure.
    package enum Kind: Sendable, Equatable {
        case noAddress
        /// The connection was refused or timed out.
        case noConnection
        /// The handshake failed, or the certificate is not trusted.
        case noTLS
        /// The connection ended before or during the response.
        case noResponse
        /// No byte was sent or received within `timeout`.
        case silence
        /// This side ended the transfer.
        case stopped
        case notTried
    }

    package var kind: Kind
    /// The reason, in the words of libcurl or the system.
    package var reason: String

    /// Whether a failed TLS handshake may succeed when retried, because the cause may be the connection and not a
    /// certificate.
    package var mayPass: Bool

    /// The cause of a TLS failure, or nil if TLS did not fail.
    package var tls: TLSProblem?

    /// Whether the time to connect ran out.
    package var isLate = false

    /// Creates a fault.
    package init(_ kind: Kind, _ reason: String, mayPass: Bool = false) {
        self.kind = kind
        self.reason = reason
        self.mayPass = mayPass
    }
}

/// An interim response and the time of its arrival.
package struct ClientInterim: Sendable, Equatable {
    package var head: ResponseHead
    /// The time from the start of the request to the arrival.
    package var after: Duration
    /// The number of content bytes handed to libcurl before the arrival.
    package var sent: Int64

    /// Creates an interim response from its parts.
    package init(head: ResponseHead, after: Duration, sent: Int64) {
        (self.head, self.after, self.sent) = (head, after, sent)
    }
}
