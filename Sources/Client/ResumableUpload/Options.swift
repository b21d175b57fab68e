// What is asked of an upload or a download besides its body and its URL.
//
// Values only. The invariant: the defaults are right for a large file over a bad network.

public import HTTPTypes

/// How a server is reached, how it is trusted and how long is tried.
public struct ConnectionOptions: Sendable {
    /// The version of HTTP.
    public enum Version: Sendable {
        /// HTTP/1.1.
        case http1
        /// HTTP/2 where the server offers it in the TLS handshake, else HTTP/1.1.
        case http2
    }

    /// The version of HTTP.
    public var version = Version.http2
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

/// What is asked of an upload besides its body and its URL.
public struct UploadOptions: Sendable {
    /// How an upload begins.
    public enum Creation: Sendable {
        /// An empty request makes the upload resource, then the body is sent to it. Works through any proxy.
        case careful
        /// The body is sent at once, and the server names the upload resource in a 104 response meanwhile. One
        /// round trip less; without the 104 a cut means beginning again.
        case optimistic
        /// One ordinary request. For servers that know nothing of resumable uploads.
        case plain
    }

    /// The method of the request that creates the upload.
    public var method = HTTPRequest.Method.post
    /// Its fields; those about content and representation are sent with it alone, the others with each request.
    public var fields = HTTPFields()
    /// How the upload begins.
    public var creation = Creation.careful
    /// The interop version that is named, 3 to 10; nil: none, as the RFC will have it, and no 104 is sent.
    public var interopVersion: Int? = 10
    /// A body known to be smaller is sent by one ordinary request; bytes.
    public var plainBelow: Int64 = 1 << 20
    /// Most bytes of a stream in memory: those that the server has not acknowledged; at least 64 KiB.
    ///
    /// An append has half of them, and waits for its answer.
    public var window = 32 << 20
    /// Most bytes kept of the answer's content.
    public var answerLimit = 64 << 10
    /// Whether the upload resource may be of another origin, which then sees fields and credentials.
    public var allowsOtherOrigin = false
    /// How the server is reached.
    public var connection = ConnectionOptions()

    /// The defaults.
    public init() {}
}

/// What is asked of a download besides its URL.
public struct DownloadOptions: Sendable {
    /// The request's fields; `Range` and `If-Range` are added.
    public var fields = HTTPFields()
    /// Whether what comes has to be what the server's `Repr-Digest` says (RFC 9530; sha-256, sha-512).
    ///
    /// Where the server tells none, the download is refused. A file that is not right comes once more before it is
    /// given up, and never gets its name; pieces have been handed over by then.
    public var verifiesDigest = false
    /// How the server is reached.
    public var connection = ConnectionOptions()

    /// The defaults.
    public init() {}
}
