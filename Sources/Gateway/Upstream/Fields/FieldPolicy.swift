// The operator's rules for the fields that are sent to the upstream, as values.
//
// Pure. `UpstreamFields` applies them. Invariant: no rule names a field of a connection, of message framing or of
// an upload protocol, so that no setting can break a request.

package import HTTPTypes

/// The operator's rules for the fields of requests to the upstream.
package struct FieldPolicy: Sendable, Equatable {
    /// The fields that identify the client to the upstream.
    package enum Forwarding: String, Sendable, CaseIterable {
        /// `X-Forwarded-For`, `-Proto` and `-Host`.
        case xForwarded = "x-forwarded"
        /// `Forwarded` (RFC 7239).
        case forwarded
        /// Both.
        case both
        /// None.
        case none
    }

    /// The request whose credentials the upstream receives with an upload.
    package enum Credentials: String, Sendable, CaseIterable {
        /// The request that created the upload; its credentials are kept in the record.
        case creation
        /// The request that completes the upload; its credentials are kept only if the queue delivers the upload.
        case completing
        /// No request.
        case none
    }

    /// The only client fields that are forwarded, in addition to `Host`, credentials and the fields that describe
    /// the content; nil: all.
    package var forward: [HTTPField.Name]?
    /// Client fields that are never forwarded.
    package var strip: [HTTPField.Name] = []
    /// Fields that are set in every request and replace fields of the same name.
    package var set: [HTTPField] = []
    /// The prefix of the fields that carry the client's `Upload-Metadata` to the upstream; nil: it is not sent.
    package var metadataPrefix: String?
    /// The fields that identify the client to the upstream.
    package var forwarding = Forwarding.xForwarded
    /// Whether the client's own forwarding fields are sent to the upstream: set it only if all clients are the
    /// operator's proxies.
    package var trustsForwarded = false
    /// The request whose credentials the upstream receives with an upload.
    package var credentials = Credentials.creation
    /// The fields that are credentials.
    package var credentialFields: [HTTPField.Name] = [.authorization, .cookie]

    /// Creates the default rules.
    package init() {}

    /// Reads the name of a field that may be forwarded, stripped or set.
    ///
    /// - Returns: nil for text that is not a name, and for names of a connection, of message framing and of upload
    ///   protocols.
    package static func name(_ text: String) -> HTTPField.Name? {
        guard let name = HTTPField.Name(text), !UpstreamFields.isReserved(name) else { return nil }
        return name
    }

    /// Whether the record of an upload keeps the credentials of its creation.
    package var keepsCredentials: Bool { credentials == .creation }
}
