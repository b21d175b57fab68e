// The connection to a server and the credentials of the client.
//
// Values only. The invariant: the defaults suit a large file over an unreliable network.

extension Transfer {
    /// The settings of the connection to a server.
    public struct Connection: Sendable {
        /// A version of HTTP.
        @nonexhaustive
        public enum Version: Sendable {
            /// HTTP/1.1.
            case http1
            /// HTTP/2 if the server offers it in the TLS handshake, otherwise HTTP/1.1.
            case http2
        }

        /// The version of HTTP.
        ///
        /// HTTP/1.1 is faster for one upload on one connection. Over HTTP/2 a server limits the content on its way: at
        /// 100 ms, nginx's default of 64 KiB allows 0.65 MB/s and the 1 MiB of spoolgate's location 9 MB/s, while
        /// HTTP/1.1 reaches 124 MB/s.
        public var version = Version.http1
        /// The longest time to connect, including TLS; then the longest time without a byte in either direction.
        public var stall = Duration.seconds(30)
        /// The longest wait for a response after the request was sent.
        public var answerTimeout = Duration.seconds(300)
        /// The time without progress after which retries end; zero disables retries.
        public var retryFor = Duration.seconds(3600)
        /// The first pause before a retry; it doubles up to a minute, and is reset by progress.
        public var firstPause = Duration.seconds(1)
        /// The maximum average rate in bytes per second, with bursts of some MiB; 0 for no limit.
        public var rateLimit: Int64 = 0
        /// The PEM file of the trusted certificate authorities; nil for the system's.
        public var certificateAuthority: String?
        /// The PEM file of the client certificate; nil for none.
        public var clientCertificate: String?
        /// The PEM file of the certificate's key; nil if it is in `clientCertificate`.
        public var clientKey: String?
        /// The credentials of the client.
        public var credentials = Credentials.none
        /// Whether proxies from the environment are used (`https_proxy`, `no_proxy`).
        public var usesProxies = true
        /// A unix socket to connect to instead of the URL's host.
        public var socket: String?

        /// Creates the default settings.
        public init() {}
    }

    /// The credentials of a client; never part of a token.
    @nonexhaustive
    public enum Credentials: Sendable {
        /// No credentials.
        case none
        /// A user and a password (RFC 7617).
        case basic(user: String, password: String)
        /// A bearer token (RFC 6750).
        case bearer(String)
        /// User and password of the host, from a file in the format of netrc(5).
        case netrc(path: String)
    }
}
