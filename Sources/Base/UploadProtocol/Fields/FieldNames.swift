// The names of the fields that the gateway reads, writes or removes, created once.
//
// Names of swift-http-types are not repeated. Invariant: every name is a valid token.

package import HTTPTypes

extension HTTPField.Name {
    /// `Upload-Draft-Interop-Version`, an Integer (draft-12 Appendix B).
    package static let uploadDraftInteropVersion = made("Upload-Draft-Interop-Version")
    /// `Upload-Complete`, a Boolean (draft-12 §4.1.2).
    package static let uploadComplete = made("Upload-Complete")
    /// `Upload-Incomplete`, a Boolean, the inverse of `Upload-Complete` (draft-01 §3).
    package static let uploadIncomplete = made("Upload-Incomplete")
    /// `Upload-Offset`, an Integer (draft-12 §4.1.1).
    package static let uploadOffset = made("Upload-Offset")
    /// `Upload-Length`, an Integer (draft-12 §4.1.3).
    package static let uploadLength = made("Upload-Length")
    /// `Upload-Limit`, a Dictionary of Integers (draft-12 §4.1.4).
    package static let uploadLimit = made("Upload-Limit")
    /// `Incremental`, a Boolean (RFC 10036 §3).
    package static let incremental = made("Incremental")
    /// `Link` (RFC 8288 §3).
    package static let link = made("Link")
    /// `Accept-Patch` (RFC 5789 §3.1).
    package static let acceptPatch = made("Accept-Patch")
    /// `X-HTTP-Method-Override`, for clients that cannot send PATCH.
    package static let methodOverride = made("X-HTTP-Method-Override")

    /// `Idempotency-Key`, which lets a server recognise a repeated request.
    package static let idempotencyKey = made("idempotency-key")
    /// `Destination`, the target of MOVE and COPY (RFC 4918 §10.3).
    package static let destination = made("Destination")
    /// `Host`, in which a head states the host (RFC 9110 §7.2).
    package static let host = made("Host")

    /// Creates a name from a token; traps if the token is invalid.
    package static func made(_ text: String) -> HTTPField.Name {
        guard let name = HTTPField.Name(text) else {
            preconditionFailure("\(text) is not a field name")
        }
        return name
    }
}
