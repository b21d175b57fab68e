// Errors of transfers. Values only.

/// The reason why a transfer did not complete.
public struct TransferError: Error, Sendable, Equatable, CustomStringConvertible {
    /// The kind of an error, for programs that decide how to react.
    @nonexhaustive
    public enum Kind: Sendable, Equatable {
        /// The URL or an option cannot be used; no request was sent.
        case invalid
        /// The body of an upload could not be read, or the content of a download could not be written.
        case unreadable
        /// The body of an upload has changed.
        ///
        /// For a download, the content on the server has changed, and earlier content was already passed on.
        case changed
        /// The content of a download does not match the server's digest; no part of a file was kept.
        case corrupt
        /// TLS could not be negotiated, or the certificate is not trusted.
        case untrusted
        /// The server refused the transfer permanently; `response` is its response.
        case refused
        /// The server or a proxy redirects; the redirect is not followed, and the upload was probably not accepted.
        case redirected
        /// The upload resource has another origin than the target, and `Upload.Options.allowsOtherOrigin` is false.
        case otherOrigin
        /// The server accepted the request but does not support resumable uploads.
        case unsupported
        /// The upload resource is gone, and the body cannot be read again from its beginning.
        case gone
        /// All content was sent, but it is unknown whether the server accepted the upload; sending it again may
        /// duplicate it.
        case unknownOutcome
        /// The transfer made no progress for `retryFor`; resume it with `token`, or start again.
        case later
        /// `pause` was called; resume the transfer with its token.
        case paused
        /// `cancel` was called.
        case cancelled
        /// A write came too late, because the body was finished or the run had ended with an error.
        case closed
    }

    /// The kind of the error.
    public var kind: Kind
    /// One sentence with the failed step, the resource, the reason and the remedy.
    public var reason: String
    /// The response that led to the error; nil if there is none.
    public var response: Transfer.Response?
    /// The token to resume the upload with; nil for downloads, and if the server has no content of the upload.
    public var token: Upload.Token?

    /// Creates an error from its parts.
    public init(
        _ kind: Kind,
        _ reason: String,
        response: Transfer.Response? = nil,
        token: Upload.Token? = nil
    ) {
        self.kind = kind
        self.reason = reason
        self.response = response
        self.token = token
    }

    public var description: String { reason }

    /// Whether the same transfer can succeed if it is resumed or started again later.
    public var mayWorkLater: Bool { kind == .later || kind == .paused }
}
