// What is known of an upload beside its content, for a store that writes it down.
//
// Pure. It is what the client said, whatever fields the operator lets through to upstreams.

package import HTTPTypes
import SpoolgateUploadProtocol

/// What is known of one upload.
///
/// Never changes; a reference, since most requests have none and all are passed on by their value.
package final class UploadFacts: Sendable {
    /// The client's name of the file.
    package let name: ClientFileName
    /// Whose it is, by the web server or the authorizer; nil: nobody's.
    package let owner: String?
    /// `Content-Encoding`; nil: none, or `identity`.
    package let coding: String?
    /// The pairs of `Upload-Metadata`.
    package let metadata: [(key: String, value: String)]
    /// Digests of the content, in hexadecimal, by the names of their algorithms; those that somebody asked for.
    package let digests: [(key: String, value: String)]

    /// Gathers what the head of a creation says.
    ///
    /// - Parameters:
    ///   - target: its request target.
    ///   - fields: its fields.
    ///   - owner: whose it is; nil: nobody's.
    ///   - digests: those that were computed, in hexadecimal.
    package init(
        target: String,
        fields: HTTPFields,
        owner: String? = nil,
        digests: [(key: String, value: String)] = []
    ) {
        name = ClientFileName(target: target, fields: fields)
        self.owner = owner
        coding = fields[.contentEncoding].flatMap { $0.isEmpty || $0 == "identity" ? nil : $0 }
        metadata = UploadMetadata(fields).pairs
        self.digests = digests
    }
}

extension UpstreamRequest {
    /// What is known of the upload: `facts`, or what the request itself says.
    var knownFacts: UploadFacts { facts ?? UploadFacts(target: target, fields: fields) }
}
