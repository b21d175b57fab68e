// The responses to a request, in its protocol.
//
// UploadRequest and UploadState decide which response is built. ResponseBuilder implements the draft;
// TusResponseBuilder implements tus.

package import HTTPTypes
package import SpoolgateTextFormats

/// Builds the responses to one request.
package protocol ResponseWording: Sendable {
    var dialect: Dialect { get }
    /// The limits that responses announce: the route's, or the upload's own.
    var limits: UploadLimits { get set }

    /// Returns a copy for a request on the upload that `creation` created.
    func on(_ creation: RequestHead) -> Self

    /// Builds the 104 that names a new upload resource (draft-12 §4.2.2); requires `dialect.allowsInterim`.
    func interimCreated(location: String) -> ResponseHead

    /// Builds a 104 that reports a durable offset; requires `dialect.allowsProgress`.
    ///
    /// The response has no `Location` (draft-12 §4.1.1, §4.4.2).
    func interimProgress(offset: Int64) -> ResponseHead

    /// Builds the response to a creation that leaves the upload incomplete.
    func created(location: String, offset: Int64) -> Response

    /// Builds the response to an append that leaves the upload incomplete.
    func appended(offset: Int64) -> Response

    /// Builds the response to an offset retrieval, as decided by `UploadState.decideRetrieval`.
    ///
    /// The offset in `state` must be durable. `remainingAge` is the time until the upload expires, in seconds;
    /// `response` is the head of the stored final response, or nil.
    func offsetTold(
        _ state: UploadState,
        _ completeness: Completeness,
        remainingAge: Int64,
        response: ResponseHead?
    ) -> Response

    /// Builds the response for a durable upload that will be delivered later (RFC 9110 §15.3.3).
    ///
    /// `resource` is the URI of the upload resource; the response links its status resource (RFC 8631 §4). `length` is
    /// the length of the whole representation in bytes. Pass nil for an ordinary upload, whose response has none of the
    /// protocol's fields.
    func accepted(id: UploadID, resource: String, length: Int64?) -> Response

    func cancelled() -> Response

    /// Builds the head of the target resource's final response, with the protocol's fields.
    ///
    /// `head` must have been filtered by `UpstreamFields.relayed`, `offset` is the length of the whole representation
    /// in bytes, and `location` is the URI of the upload resource for a creation, otherwise nil. `isSuccess` is true if
    /// the upstream has accepted the upload.
    func final(
        _ head: ResponseHead,
        isSuccess: Bool,
        offset: Int64,
        location: String?
    ) -> FinalHead

    /// Builds the response to a refused request; `offset` must be durable, or nil if the request concerns no upload.
    func refused(_ refusal: Refusal, offset: Int64?) -> Response
}

/// The head of a final response as the client receives it.
package struct FinalHead: Sendable, Equatable {
    package var head: ResponseHead
    /// Whether the upstream's content is sent with the head.
    package var hasContent = true

    /// Returns a head without the protocol's fields, for a client that does not use the protocol.
    package static func ordinary(_ head: ResponseHead) -> FinalHead { FinalHead(head: head) }

    /// Returns the head for a client that has sent only the rest of the content.
    ///
    /// 307 and 308, which ask for the same request elsewhere (RFC 9110 §15.4.8), become 424, because the client would
    /// repeat its request with the rest alone.
    package func toRest() -> FinalHead {
        guard [307, 308].contains(head.status.code) else { return self }
        var final = self
        final.head.fields.tellReceived(head.status)
        final.head.status = .failedDependency
        return final
    }

    /// Returns the whole response, with `content` if `hasContent` is true.
    package func answer(with content: [UInt8]) -> Response {
        Response(head, content: hasContent ? content : [])
    }
}

extension Response {
    /// Creates a response with a small JSON document that caches must not store.
    package init(
        _ status: HTTPResponse.Status,
        _ fields: HTTPFields = [:],
        json description: JSON
    ) {
        var fields = fields
        fields.append(.contentType, "application/json")
        fields.append(.cacheControl, "no-store")
        self.init(
            ResponseHead(status: status, fields: fields),
            content: Array((description.text + "\n").utf8)
        )
    }
}

extension HTTPFields {
    /// Links the status resource of the upload resource `resource` (RFC 8631 §4).
    mutating func linkStatus(of resource: String) {
        append(.link, "<\(resource)\(UploadResources.statusSuffix)>; rel=\"status\"")
    }

    mutating func append(_ name: HTTPField.Name, _ value: String) {
        append(HTTPField(name: name, value: value))
    }
}
