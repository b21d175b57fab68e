// Errors of transfers.
//
// Values only. The invariant: an error names the failed step, the resource, the reason and the remedy.

/// The reason why a transfer did not complete.
public struct TransferError: Error, Sendable, Equatable, CustomStringConvertible {
    /// The kind of an error, which determines the reaction.
    @nonexhaustive
    public enum Kind: Sendable, Equatable {
        /// The URL or an option cannot be used; no request was sent.
        case invalid
        /// The body could not be read, or received content could not be written.
        case unreadable
        /// The body differs from the token's, or changed while it was sent.
        ///
        /// For a download: the server has another representation, and earlier content was already passed on.
        case changed
        /// The received content does not match the server's digest; no part of a file was kept.
        case corrupt
        /// TLS could not be negotiated, or the certificate is not trusted.
        case untrusted
        /// The server refused permanently; `answer` has its response.
        case refused
        /// The server or a proxy redirects to another URL, which is not followed; the upload is not known to be
        /// accepted.
        case redirected
        /// The upload resource has another origin, which `Upload.Options.allowsOtherOrigin` does not allow.
        case otherOrigin
        /// The server accepted the request but does not support resumable uploads.
        case unsupported
        /// The upload resource is gone, and the body cannot be read again from its beginning.
        case gone
        /// All content was sent, but it is unknown whether the server accepted it; sending it again may duplicate it.
        case unknownOutcome
        /// The transfer made no progress for `retryFor`; resume it with `token`, or start again.
        case later
        /// `pause` was called; resume the transfer with the token.
        case paused
        /// `cancel` was called.
        case cancelled
        /// The body was finished, or the run of its upload has ended with its own error.
        case closed
    }

    /// The kind of the error.
    public var kind: Kind
    /// One sentence with the failed step, the resource, the reason and the remedy.
    public var reason: String
    /// The response of the server; nil if none is relevant.
    public var answer: Transfer.Answer?
    /// The token to resume the upload with; nil if the server has no content.
    public var token: Upload.Token?

    /// Creates an error from its parts.
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

    public var description: String { reason }

    /// Whether the same transfer can succeed later.
    public var mayWorkLater: Bool { kind == .later || kind == .paused }
}
