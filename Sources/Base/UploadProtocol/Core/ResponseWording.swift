// What a request's client is told, in the words of the protocol it speaks.
//
// What is told was decided before, by UploadRequest and UploadState. One adopter a family: ResponseBuilder has
// the draft's words, TusResponseBuilder those of tus.

package import HTTPTypes
package import SpoolgateTextFormats

/// Words the answers to one request.
package protocol ResponseWording: Sendable {
    /// The dialect of the request that is answered.
    var dialect: Dialect { get }
    /// The limits of the upload's route, or its own.
    var limits: UploadLimits { get set }

    /// The same for a request on an upload that `creation` made.
    func on(_ creation: RequestHead) -> Self

    /// 104 for a new upload resource (draft-12 §4.2.2); only where `dialect.allowsInterim`.
    func interimCreated(location: String) -> ResponseHead

    /// 104 that tells progress; only where `dialect.allowsProgress`.
    ///
    /// `offset` must be durable; there is no `Location` (draft-12 §4.1.1, §4.4.2).
    func interimProgress(offset: Int64) -> ResponseHead

    /// Answer to a creation whose content ended but not the upload.
    func created(location: String, offset: Int64) -> Response

    /// Answer to an append whose content ended but not the upload.
    func appended(offset: Int64) -> Response

    /// Answer to an offset retrieval, as `UploadState.decideRetrieval` decided.
    ///
    /// - Parameters:
    ///   - state: the upload; its offset must be durable.
    ///   - completeness: what is told of it.
    ///   - remainingAge: seconds the upload will still be kept.
    ///   - response: the head of the stored final response, as far as it is known.
    /// - Returns: 204, or what the protocol has for it.
    func offsetTold(
        _ state: UploadState,
        _ completeness: Completeness,
        remainingAge: Int64,
        response: ResponseHead?
    ) -> Response

    /// Answer to a request whose upload is durable and will be delivered (RFC 9110 §15.3.3).
    ///
    /// - Parameters:
    ///   - id: the upload.
    ///   - resource: the URI of its upload resource; that of its status resource is linked by the relation
    ///     of RFC 8631 §4.
    ///   - length: the length of the whole representation; nil for an ordinary upload, whose client asked
    ///     for no field of the protocol.
    /// - Returns: 202, or what the protocol has for it.
    func accepted(id: UploadID, resource: String, length: Int64?) -> Response

    /// Answer to a cancellation.
    func cancelled() -> Response

    /// The head of the target resource's final response with the protocol's fields.
    ///
    /// - Parameters:
    ///   - head: the upstream's head, already cleaned by `UpstreamFields.relayed`.
    ///   - offset: the length of the whole representation.
    ///   - location: the upload resource if the request is the creation, else nil.
    /// - Returns: the head, and whether the upstream's content goes with it.
    func final(_ head: ResponseHead, offset: Int64, location: String?) -> FinalHead

    /// A refusal of any request of this route; `offset` is the upload's durable one where there is an upload
    /// to speak of.
    func refused(_ refusal: Refusal, offset: Int64?) -> Response
}

/// The head of a final response as its client hears it.
package struct FinalHead: Sendable, Equatable {
    /// The head.
    package var head: ResponseHead
    /// Whether the upstream's content goes with it.
    package var hasContent = true

    /// One without the protocol's fields, for a client that did not ask for them.
    package static func ordinary(_ head: ResponseHead) -> FinalHead { FinalHead(head: head) }

    /// The whole response, with that content where it goes along.
    package func answer(with content: [UInt8]) -> Response {
        Response(head, content: hasContent ? content : [])
    }
}

extension Response {
    /// A small JSON document; never stored by a cache.
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
    /// Links an upload's status resource (RFC 8631 §4).
    mutating func linkStatus(of resource: String) {
        append(.link, "<\(resource)\(UploadResources.statusSuffix)>; rel=\"status\"")
    }

    mutating func append(_ name: HTTPField.Name, _ value: String) {
        append(HTTPField(name: name, value: value))
    }
}
