// One client request and its result, as values.

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
    /// The fields, to which framing and `Host` are added.
    ///
    /// `Expect: 100-continue` takes effect over HTTP/1.1.
    package var fields: HTTPFields
    package var version: Version
    package var content: ClientContent?
    /// The maximum time to connect, and afterwards without a byte in either direction.
    ///
    /// Waiting for the request's own content does not count.
    package var timeout = Duration.seconds(30)
    /// The maximum time without a byte after all content; if nil, `timeout` applies.
    package var answerTimeout: Duration?
    /// The maximum number of bytes per second; 0: unlimited.
    package var rateLimit: Int64 = 0
    /// A file in the format of netrc(5) with the host's user and password, or nil to use none.
    package var netrc: String?
    /// Whether to use proxies from the environment.
    package var usesProxies = false
    /// A PEM file; if nil, the system's authorities are trusted.
    package var certificateAuthority: String?
    /// The PEM file of the client certificate, or nil to send none.
    package var clientCertificate: String?
    /// The PEM file of the client certificate's key, or nil if `clientCertificate` contains the key.
    package var clientKey: String?
    /// Whether TLS 1.3 is required.
    package var wantsNewestTLS = false
    /// The path of a Unix socket to use instead of the URL's host, or nil to use TCP.
    package var socket: String?
    /// Called for each piece of the final response's content; returns false to end the transfer.
    ///
    /// If nil, `ClientTransfer.content` keeps the start.
    package var sink: ((ResponseHead, UnsafeRawBufferPointer) -> Bool)?
    /// Called for each interim response on arrival; returns false to end the transfer.
    ///
    /// If nil, `ClientTransfer.interim` keeps them.
    package var heard: ((ClientInterim) -> Bool)?
    /// Whether to end after connecting, including TLS, and send nothing.
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
        /// The callback wrote this many bytes; 0 if the content has ended.
        case bytes(Int)
        /// The callback is called again soon.
        case later
        /// The callback aborts the connection; over TCP, with a reset.
        case reset
    }

    let length: Int64?
    let next: (UnsafeMutableRawBufferPointer, ClientTransfer) -> Step

    /// Creates content of `length` bytes; if nil, the length is not announced to the server.
    ///
    /// `next` fills the buffer with the next piece; it may send other requests.
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
        case noAnswer
        /// No byte was sent or received within `timeout`.
        case silence
        /// This side ended the transfer.
        case stopped
        case notTried
    }

    package var kind: Kind
    /// The reason, in the words of libcurl or the system.
    package var reason: String

    /// Whether a failed TLS handshake may succeed when retried, because the connection may be at fault, not a
    /// certificate.
    package var mayPass: Bool

    /// The cause of a TLS failure; nil if TLS did not fail.
    package var tls: TLSTrouble?

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
    /// The time since the start of the request.
    package var after: Duration
    /// The number of content bytes handed to libcurl by then.
    package var sent: Int64

    /// Creates an interim response from its parts.
    package init(head: ResponseHead, after: Duration, sent: Int64) {
        (self.head, self.after, self.sent) = (head, after, sent)
    }
}
