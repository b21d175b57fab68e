// How a server is reached and who the client is.
//
// Values only. The invariant: the defaults are right for a large file over a bad network.

extension Transfer {
    /// How a server is reached, how it is trusted and how long is tried.
    public struct Connection: Sendable {
        /// The version of HTTP.
        @nonexhaustive
        public enum Version: Sendable {
            /// HTTP/1.1.
            case http1
            /// HTTP/2 where the server offers it in the TLS handshake, else HTTP/1.1.
            case http2
        }

        /// The version of HTTP.
        ///
        /// One upload on one connection is faster over HTTP/1.1: with HTTP/2 each server lets so many bytes be under way and
        /// no more, nginx by default 64 KiB of an upload, which is 9 MB/s at 100 ms.
        public var version = Version.http1
        /// Longest time to connect, TLS included, and then without a byte either way.
        public var stall = Duration.seconds(30)
        /// Longest time to wait for an answer once everything was sent.
        public var answerTimeout = Duration.seconds(300)
        /// For how long it is tried again without progress; zero: never.
        public var retryFor = Duration.seconds(3600)
        /// The first pause before it is tried again; it doubles up to a minute, and begins anew after progress.
        public var firstPause = Duration.seconds(1)
        /// Most bytes a second on average, in bursts of some MiB; 0: as many as go.
        public var rateLimit: Int64 = 0
        /// PEM file of the authorities to trust instead of the system's.
        public var certificateAuthority: String?
        /// PEM file of the client certificate; nil: none.
        public var clientCertificate: String?
        /// PEM file of its key; nil: in `clientCertificate`.
        public var clientKey: String?
        /// Who this client is.
        public var credentials = Credentials.none
        /// Whether the proxies that the environment names are used (`https_proxy`, `no_proxy`).
        public var usesProxies = true
        /// A unix socket to connect to in place of the URL's host.
        public var socket: String?

        /// The defaults.
        public init() {}
    }

    /// Who a client is; never part of a token.
    @nonexhaustive
    public enum Credentials: Sendable {
        /// Nobody in particular.
        case none
        /// A user and a password (RFC 7617).
        case basic(user: String, password: String)
        /// A bearer token (RFC 6750).
        case bearer(String)
        /// User and password of the host in a file like netrc(5).
        case netrc(path: String)
    }
}
