// The facts about an upload for a directory or bucket that stores them.
//
// The facts are the client's data, regardless of the fields forwarded to upstreams.

package import HTTPTypes
import SpoolgateUploadProtocol

/// The facts that are stored with an upload.
///
/// A class, because most requests have no facts, and requests are passed by value.
package final class UploadFacts: Sendable {
    package let name: ClientFileName
    /// The client's identity, from the web server or the authorizer; nil if unknown.
    package let owner: String?
    /// The value of `Content-Encoding`; nil if the field is missing, empty or `identity`.
    package let coding: String?
    package let metadata: [(key: String, value: String)]
    /// The digests of the content in hexadecimal, each with the algorithm's name as `key`.
    package let digests: [(key: String, value: String)]

    /// Collects the facts from the head of a creation, with the computed `digests` in hexadecimal.
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
    var knownFacts: UploadFacts { facts ?? UploadFacts(target: target, fields: fields) }
}
