// What happens during a transfer, what it ends with, and why it does not.
//
// Values only. The invariant: an error says what was attempted on what, why it failed and what to do.

public import HTTPTypes

/// What happens during a transfer.
public enum TransferEvent<Token: Sendable & Equatable>: Sendable, Equatable {
    /// The transfer can be resumed with this token; a later one replaces it.
    ///
    /// That of an upload comes again before the last byte leaves, with `mayBeComplete` set.
    case resumable(Token)
    /// How far it is.
    case progress(Progress)
    /// It waits before it tries again: for how long, and why.
    case waiting(Duration, reason: String)
    /// Everything is sent, or comes, again: the upload resource is gone or could not be had, or what is there is
    /// another representation.
    case begunAnew(reason: String)
}

/// What happens during an upload.
public typealias UploadEvent = TransferEvent<ResumeToken>
/// What happens during a download.
public typealias DownloadEvent = TransferEvent<DownloadToken>

/// How far a transfer is; bytes.
public struct Progress: Sendable, Equatable {
    /// What the other side has for sure: acknowledged by the server, or written here.
    public var received: Int64
    /// What was sent, acknowledged or not; of a download: what has come.
    public var sent: Int64
    /// The whole; nil: not known.
    public var total: Int64?

    /// Makes progress of its parts.
    public init(received: Int64, sent: Int64, total: Int64?) {
        self.received = received
        self.sent = sent
        self.total = total
    }
}

/// The final response.
public struct Answer: Sendable, Equatable {
    /// Its status.
    public var status: HTTPResponse.Status
    /// Its fields.
    public var fields: HTTPFields
    /// Its content, as far as `UploadOptions.answerLimit` goes.
    public var content: [UInt8]
    /// Whether its content was longer.
    public var isCut: Bool
    /// Whether the server took the upload and has its answer no more; the status is that of an offset retrieval.
    public var isLost: Bool
    /// The place that a final response of 302 or 303 names, as an absolute URL; nil for any other response.
    public var place: String?

    /// Makes an answer of its parts.
    public init(
        status: HTTPResponse.Status,
        fields: HTTPFields = [:],
        content: [UInt8] = [],
        isCut: Bool = false,
        isLost: Bool = false,
        place: String? = nil
    ) {
        self.place = place
        self.status = status
        self.fields = fields
        self.content = content
        self.isCut = isCut
        self.isLost = isLost
    }
}

/// Why a transfer did not come to its end.
public struct TransferError: Error, Sendable, Equatable, CustomStringConvertible {
    /// What kind of end it is, and so what can be done.
    public enum Kind: Sendable, Equatable {
        /// The URL or an option cannot be used; nothing was sent.
        case invalid
        /// The body could not be read, or what came could not be written.
        case unreadable
        /// The body is another one than the token's, or changed while it was sent; of a download: what is there is
        /// another representation, and what came before was handed over already.
        case changed
        /// What came is not what the server's digest says; of a file nothing was kept.
        case corrupt
        /// TLS was not agreed on, or the certificate is not trusted.
        case untrusted
        /// The server refused for good; `answer` has its words.
        case refused
        /// The server, or a proxy, names another place; redirects are not followed, and nothing shows that the upload
        /// was taken.
        case redirected
        /// The server took the request and does no resumable uploads.
        case unsupported
        /// The upload resource is gone, and the body cannot be read again from its beginning.
        case gone
        /// Everything was sent, and whether the server took it cannot be known; sending it again could have it
        /// taken twice.
        case unknownOutcome
        /// It did not succeed for `retryFor`; resume it with `token`, or begin again.
        case later
        /// `pause` was called; resume it with the token.
        case paused
        /// `cancel` was called.
        case cancelled
    }

    /// What kind of end it is.
    public var kind: Kind
    /// What was attempted on what, why it failed, and what to do: one sentence.
    public var reason: String
    /// What the server said; nil: nothing that counts.
    public var answer: Answer?
    /// What to resume with; nil: the server has nothing.
    public var token: ResumeToken?

    /// Makes an error of its parts.
    public init(_ kind: Kind, _ reason: String, answer: Answer? = nil, token: ResumeToken? = nil) {
        self.kind = kind
        self.reason = reason
        self.answer = answer
        self.token = token
    }

    /// The reason.
    public var description: String { reason }

    /// Whether the same can succeed later, with nothing changed.
    public var mayWorkLater: Bool { kind == .later || kind == .paused }
}
