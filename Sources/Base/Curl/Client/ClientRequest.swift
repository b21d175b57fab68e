// One request as a client sends it, and what became of it: values only.

package import HTTPTypes
package import SpoolgateUploadProtocol

/// One request of a client.
package struct ClientRequest {
    /// The version of HTTP that is asked for.
    package enum Version: Sendable, Equatable, CaseIterable {
        /// HTTP/1.1.
        case http1
        /// HTTP/2 where the server offers it in the TLS handshake, else HTTP/1.1.
        case http2
    }

    /// The method; HEAD has no content.
    package var method: HTTPRequest.Method
    /// The whole URL, `http://` or `https://`; sent as it is.
    package var url: String
    /// The fields; framing and `Host` are added.
    ///
    /// `Expect: 100-continue` is honoured over HTTP/1.1.
    package var fields: HTTPFields
    /// The version of HTTP.
    package var version: Version
    /// The content; nil: none.
    package var content: ClientContent?
    /// Longest time to connect, and then without a byte either way while the content does not wait.
    package var timeout = Duration.seconds(30)
    /// Longest time without a byte once all content was sent; nil: `timeout`.
    package var answerTimeout: Duration?
    /// Most bytes a second; 0: as many as go.
    package var rateLimit: Int64 = 0
    /// A file like netrc(5) with user and password of the host; nil: none.
    package var netrc: String?
    /// Whether the proxies that the environment names are used.
    package var usesProxies = false
    /// PEM file of the authorities to trust instead of the system's.
    package var certificateAuthority: String?
    /// PEM file of the client certificate; nil: none.
    package var clientCertificate: String?
    /// PEM file of its key; nil: in `clientCertificate`.
    package var clientKey: String?
    /// Whether TLS 1.2 is too old.
    package var wantsNewestTLS = false
    /// A unix socket to connect to in place of the URL's host.
    package var socket: String?
    /// Takes the content of the final response in pieces, with its head, and says whether to go on; nil: its
    /// first bytes are kept.
    package var sink: ((ResponseHead, UnsafeRawBufferPointer) -> Bool)?
    /// Told of each interim response as it comes, and says whether to go on; nil: they are kept.
    package var heard: ((ClientInterim) -> Bool)?
    /// Whether it ends once connected, TLS included, and nothing is sent.
    package var onlyConnects = false

    /// Makes a request.
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

/// Content that comes at a pace of its own.
package struct ClientContent {
    /// What the content does next.
    package enum Step {
        /// It put so many bytes into the buffer; 0: it has ended.
        case bytes(Int)
        /// It has nothing yet, and is asked again soon.
        case later
        /// It breaks the connection, over TCP by a reset.
        case reset
    }

    /// Bytes in all; nil: not told.
    let length: Int64?
    let next: (UnsafeMutableRawBufferPointer, ClientTransfer) -> Step

    /// Makes content.
    ///
    /// - Parameters:
    ///   - length: bytes in all; nil: not told.
    ///   - next: called for each piece, with the transfer under way; it may send other requests meanwhile.
    package init(
        length: Int64?,
        next: @escaping (UnsafeMutableRawBufferPointer, ClientTransfer) -> Step
    ) {
        self.length = length
        self.next = next
    }
}

/// Why a request has no whole answer.
package struct ClientFault: Error, Sendable, Equatable {
    /// How far it came.
    package enum Kind: Sendable, Equatable {
        /// The host has no address.
        case noAddress
        /// Nobody takes connections there, or not in time.
        case noConnection
        /// TLS was not agreed on, or the certificate is not trusted.
        case noTLS
        /// The connection ended before an answer, or within it.
        case noAnswer
        /// Nothing came or went for the request's `timeout`.
        case silence
        /// This side ended it.
        case stopped
        /// It could not be tried.
        case notTried
    }

    /// How far it came.
    package var kind: Kind
    /// Why, in libcurl's or the system's words.
    package var reason: String

    /// Whether a handshake that broke may have been a connection's fault, not a certificate's.
    package var mayPass: Bool

    /// The cause of a TLS failure; nil: TLS did not fail.
    package var tls: TLSTrouble?

    /// Whether the time to connect was over.
    package var isLate = false

    /// Makes a fault.
    package init(_ kind: Kind, _ reason: String, mayPass: Bool = false) {
        self.kind = kind
        self.reason = reason
        self.mayPass = mayPass
    }
}

/// An interim response, and when it came.
package struct ClientInterim: Sendable, Equatable {
    /// Its status and fields.
    package var head: ResponseHead
    /// How long after the request was begun.
    package var after: Duration
    /// Bytes of content that had been given by then.
    package var sent: Int64

    /// Makes it of its parts.
    package init(head: ResponseHead, after: Duration, sent: Int64) {
        (self.head, self.after, self.sent) = (head, after, sent)
    }
}
