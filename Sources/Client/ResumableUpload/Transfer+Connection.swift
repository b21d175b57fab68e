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
        /// HTTP/1.1 is faster for one upload, because an HTTP/2 server limits the content in flight. With a round-trip
        /// time of 100 ms, nginx's default of 64 KiB allows 0.65 MB/s and the 1 MiB of spoolgate's location 9 MB/s,
        /// while HTTP/1.1 reaches 124 MB/s.
        public var version = Version.http1
        /// The maximum time to connect, including TLS, and later the maximum time without a byte in either direction.
        public var stall = Duration.seconds(30)
        /// The maximum time to wait for a response after the request was sent.
        public var responseTimeout = Duration.seconds(300)
        /// The time without progress after which retries end; zero disables retries.
        public var retryFor = Duration.seconds(3600)
        /// The pause before the first retry; each further pause is twice as long, up to a minute, until there is
        /// progress.
        public var firstPause = Duration.seconds(1)
        /// The maximum average rate in bytes per second; 0 means no limit.
        ///
        /// Bursts of a few MiB may be faster.
        public var rateLimit: Int64 = 0
        /// The PEM file of the trusted certificate authorities; nil to use the system's.
        public var certificateAuthority: String?
        /// The PEM file of the client certificate; nil for none.
        public var clientCertificate: String?
        /// The PEM file of the client's key; nil if `clientCertificate` contains it.
        public var clientKey: String?
        /// The credentials of the client.
        public var credentials = Credentials.none
        /// Whether to use the proxies that environment variables name (`https_proxy`, `no_proxy`).
        public var usesProxies = true
        /// The path of a Unix socket to connect to instead of the URL's host; nil for TCP.
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
        /// The host's user and password, read from a file in the format of netrc(5).
        case netrc(path: String)
    }
}
