// What an operator decides of the fields that go to the upstream, as values.
//
// Pure. UpstreamFields carries it out. Invariant: no name in it is one of a connection's, of message
// framing's or of an upload protocol's, so that no setting can break a request.

package import HTTPTypes

/// The operator's rules for the fields of requests to the upstream.
package struct FieldPolicy: Sendable, Equatable {
    /// How the upstream is told who stands behind a request.
    package enum Forwarding: String, Sendable, CaseIterable {
        /// `X-Forwarded-For`, `-Proto` and `-Host`.
        case xForwarded = "x-forwarded"
        /// `Forwarded` (RFC 7239).
        case forwarded
        /// Both.
        case both
        /// Not at all.
        case none
    }

    /// Whose credentials the upstream gets with an upload.
    package enum Credentials: String, Sendable, CaseIterable {
        /// Those of the request that created the upload, kept in its record.
        case creation
        /// Those of the request that completes it, kept only for an upload that the queue delivers.
        case completing
        /// Nobody's.
        case none
    }

    /// The only fields of a client's that go with an upload, beside `Host`, credentials and those that
    /// describe the content; nil: all.
    package var forward: [HTTPField.Name]?
    /// Fields of a client's that never go to the upstream.
    package var strip: [HTTPField.Name] = []
    /// Fields that the upstream gets with every request, in place of any of the name.
    package var set: [HTTPField] = []
    /// What the names of the fields begin with by which the upstream is told the client's
    /// `Upload-Metadata`; nil: it is not told.
    package var metadataPrefix: String?
    /// How the upstream is told who stands behind a request.
    package var forwarding = Forwarding.xForwarded
    /// Whether what a client says of who is behind its request goes to the upstream too: true where all
    /// clients are proxies of the operator's.
    package var trustsForwarded = false
    /// Whose credentials the upstream gets with an upload.
    package var credentials = Credentials.creation
    /// The fields that are credentials.
    package var credentialFields: [HTTPField.Name] = [.authorization, .cookie]

    /// The product's defaults.
    package init() {}

    /// Reads the name of a field that may be forwarded, stripped or set.
    ///
    /// - Returns: nil for what is no name, and for names of a connection, of message framing and of
    ///   upload protocols.
    package static func name(_ text: String) -> HTTPField.Name? {
        guard let name = HTTPField.Name(text), !UpstreamFields.isReserved(name) else { return nil }
        return name
    }

    /// Whether an upload's record keeps its creation's credentials.
    package var keepsCredentials: Bool { credentials == .creation }
}
