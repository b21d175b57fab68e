// Why a transfer did not come to its end.
//
// Values only. The invariant: an error says what was attempted on what, why it failed and what to do.

/// Why a transfer did not come to its end.
public struct TransferError: Error, Sendable, Equatable, CustomStringConvertible {
    /// What kind of end it is, and so what can be done.
    @nonexhaustive
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
        /// The server keeps the upload at another origin, which `Upload.Options.allowsOtherOrigin` does not allow.
        case otherOrigin
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
        /// What is written has no upload to go to: its run has ended, and says why.
        case closed
    }

    /// What kind of end it is.
    public var kind: Kind
    /// What was attempted on what, why it failed, and what to do: one sentence.
    public var reason: String
    /// What the server said; nil: nothing that counts.
    public var answer: Transfer.Answer?
    /// What to resume with; nil: the server has nothing.
    public var token: Upload.Token?

    /// Makes an error of its parts.
    public init(
        _ kind: Kind,
        _ reason: String,
        answer: Transfer.Answer? = nil,
        token: Upload.Token? = nil
    ) {
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
