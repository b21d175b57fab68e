// The facts about an upload other than its content, for a directory or bucket that stores them.
//
// Pure. They are the client's data, regardless of the fields forwarded to upstreams.

package import HTTPTypes
import SpoolgateUploadProtocol

/// The facts about one upload.
///
/// Immutable; a class, because most requests have none, and requests are passed by value.
package final class UploadFacts: Sendable {
    package let name: ClientFileName
    /// The owner, by the web server or the authorizer; nil: none.
    package let owner: String?
    /// The value of `Content-Encoding`; nil: none, or `identity`.
    package let coding: String?
    package let metadata: [(key: String, value: String)]
    /// The requested digests of the content, in hexadecimal, by the names of their algorithms.
    package let digests: [(key: String, value: String)]

    /// Collects the facts from the head of a creation.
    ///
    /// - Parameters:
    ///   - target: its request target.
    ///   - fields: its fields.
    ///   - owner: the owner of the upload; nil: none.
    ///   - digests: the computed digests, in hexadecimal.
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
    /// The facts about the upload, by default those of the request itself.
    var knownFacts: UploadFacts { facts ?? UploadFacts(target: target, fields: fields) }
}
