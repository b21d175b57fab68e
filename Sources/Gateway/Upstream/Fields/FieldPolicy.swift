// The operator's rules for request fields.
//
// Invariant: no rule names a field of a connection, of message framing or of an upload protocol, so that no setting can
// break a request.

package import HTTPTypes

/// The operator's rules for the fields of requests to the upstream.
package struct FieldPolicy: Sendable, Equatable {
    /// Which fields identify the client to the upstream.
    package enum Forwarding: String, Sendable, CaseIterable {
        /// `X-Forwarded-For`, `-Proto` and `-Host`.
        case xForwarded = "x-forwarded"
        /// `Forwarded` (RFC 7239).
        case forwarded
        case both
        /// `X-Forwarded-*`, and those that clients send; use it only if all clients are the operator's proxies.
        case trust
        case none
    }

    /// The request whose credentials the upstream receives with an upload.
    package enum Credentials: String, Sendable, CaseIterable {
        /// The creation; its credentials are kept in the record.
        case creation
        /// The completing request; its credentials are kept only if the queue delivers the upload.
        case completing
        case none
    }

    /// The only client fields to forward, in addition to `Host`, credentials and the description of the content.
    ///
    /// Nil forwards all fields.
    package var forward: [HTTPField.Name]?
    package var strip: [HTTPField.Name] = []
    /// The fields to set in every request, which replace others with the same names.
    package var set: [HTTPField] = []
    /// The prefix for fields that carry the client's `Upload-Metadata`; nil if metadata is not sent.
    package var metadataPrefix: String?
    package var forwarding = Forwarding.xForwarded
    package var credentials = Credentials.creation
    package var credentialFields: [HTTPField.Name] = [.authorization, .cookie]

    /// Creates the default rules.
    package init() {}

    /// Reads the name of a field for a rule.
    ///
    /// - Returns: the name; nil if it is invalid or belongs to a connection, message framing or an upload protocol.
    package static func name(_ text: String) -> HTTPField.Name? {
        guard let name = HTTPField.Name(text), !UpstreamFields.isReserved(name) else { return nil }
        return name
    }

    package var keepsCredentials: Bool { credentials == .creation }
}

// MARK: Sets of names

// A set of field names, searched for every message, without hashing.
//
// Pure. Invariant: names are compared whole, in lower case.

struct FieldNameSet: Sendable {
    private let byLength: [[String]]

    /// The names must be in lower case.
    init(_ names: [String]) {
        var byLength: [[String]] = []
        for name in names {
            let length = name.utf8.count
            while byLength.count <= length { byLength.append([]) }
            byLength[length].append(name)
        }
        self.byLength = byLength
    }

    func union(_ other: FieldNameSet) -> FieldNameSet {
        FieldNameSet((byLength + other.byLength).flatMap { $0 })
    }

    func contains(_ name: String) -> Bool {
        let length = name.utf8.count
        return length < byLength.count && byLength[length].contains(name)
    }
}
