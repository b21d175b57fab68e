// The draft's responses.
//
// The only decisions made here are the dialect's. Invariant: every response to a creation, an append or an offset
// retrieval has the completeness and, for an existing upload, its offset.

package import HTTPTypes
package import SpoolgateTextFormats

/// Builds the responses of "Resumable Uploads for HTTP" for one dialect.
package struct ResponseBuilder: ResponseWording {
    package var dialect: Dialect
    package var limits: UploadLimits
    /// Whether the upload's creation announced that more content would follow in later requests.
    private var isSegmented = false

    /// Creates a builder for one request.
    package init(dialect: Dialect, limits: UploadLimits) {
        self.dialect = dialect
        self.limits = limits
    }

    /// Returns a copy for a request on the upload that `creation` created.
    package func on(_ creation: RequestHead) -> ResponseBuilder {
        var builder = self
        builder.isSegmented = UploadRequest.isSegmented(creation, Dialect(of: creation.fields))
        return builder
    }

    /// Builds the 104 that names a new upload resource (draft-12 §4.2.2).
    package func interimCreated(location: String) -> ResponseHead {
        var fields = start(capacity: 3)
        fields.append(.location, location)
        appendLimits(to: &fields)
        return ResponseHead(status: .uploadResumptionSupported, fields: fields)
    }

    /// Builds a 104 that reports progress; see `ResponseWording`.
    package func interimProgress(offset: Int64) -> ResponseHead {
        var fields = start(capacity: 2)
        fields.append(.uploadOffset, String(offset))
        return ResponseHead(status: .uploadResumptionSupported, fields: fields)
    }

    /// Builds the 201 for a creation, with a link to the upload's status resource (RFC 8631 §4).
    package func created(location: String, offset: Int64) -> Response {
        var fields = start(capacity: 6)
        fields.append(.location, location)
        fields.linkStatus(of: location)
        append(.incomplete, offset: offset, to: &fields)
        appendLimits(to: &fields)
        return Response(ResponseHead(status: .created, fields: fields))
    }

    /// Builds the response to an append that leaves the upload incomplete.
    package func appended(offset: Int64) -> Response {
        var fields = start(capacity: 4)
        append(.incomplete, offset: offset, to: &fields)
        fields.append(.cacheControl, "no-store")
        return Response(ResponseHead(status: dialect.partialAppendStatus, fields: fields))
    }

    /// Builds the response to an offset retrieval, a 204; see `ResponseWording`.
    ///
    /// `response` is not used.
    package func offsetReported(
        _ state: UploadState,
        _ completeness: Completeness,
        remainingAge: Int64,
        response: ResponseHead?
    ) -> Response {
        var fields = start(capacity: 6)
        append(completeness, offset: state.offset, to: &fields)
        if let length = state.length, dialect.reportsLength {
            fields.append(.uploadLength, String(length))
        }
        appendLimits(to: &fields, remainingAge: remainingAge)
        fields.append(.cacheControl, "no-store")
        return Response(ResponseHead(status: .noContent, fields: fields))
    }

    /// Builds a 202 (RFC 9110 §15.3.3) with a JSON description of the upload.
    ///
    /// If `length` is not nil, the fields report the upload as complete.
    package func accepted(id: UploadID, resource: String, length: Int64?) -> Response {
        var fields: HTTPFields = [:]
        if let length {
            fields = start(capacity: 6)
            append(.complete, offset: length, to: &fields)
        }
        fields.linkStatus(of: resource)
        let description = JSON.object([
            ("upload", .string(id.description)), ("state", .string("accepted")),
            ("status-resource", .string(resource + UploadResources.statusSuffix)),
        ])
        return Response(.accepted, fields, json: description)
    }

    /// Builds the response to a cancellation, a 204.
    package func cancelled() -> Response {
        var fields = start(capacity: 2)
        fields.append(.cacheControl, "no-store")
        return Response(ResponseHead(status: .noContent, fields: fields))
    }

    /// Builds the head of the target resource's final response (draft-12 §4.1.2, ?1).
    ///
    /// In versions 3 to 6, `location` is added if the upstream sent no `Location`. A status that would make this client
    /// upload everything again, or follow a redirect that is no success, becomes 424, and `Proxy-Status` contains the
    /// original status (RFC 9209).
    package func final(
        _ head: ResponseHead,
        isSuccess: Bool,
        offset: Int64,
        location: String?
    ) -> FinalHead {
        var fields = head.fields
        fields.reserveCapacity(fields.count + 4)
        if let location, dialect.locatesFinalResponse, !fields.contains(.location) {
            fields.append(.location, location)
        }
        appendVersion(to: &fields)
        append(.complete, offset: offset, to: &fields)
        let misleads =
            isSegmented && dialect.repeatsAfterError && head.status.misleads(isSuccess: isSuccess)
        guard misleads || mustNotRepeat(after: head.status) else {
            return FinalHead(head: ResponseHead(status: head.status, fields: fields))
        }
        fields.reportReceived(head.status)
        return FinalHead(head: ResponseHead(status: .failedDependency, fields: fields))
    }

    /// Builds the problem document for a refused request, without the protocol's fields if `refusal.isOrdinary`.
    package func refused(_ refusal: Refusal, offset: Int64?) -> Response {
        var response = refusal.response
        guard !refusal.isOrdinary else { return response }
        if refusal.completeness == .complete, mustNotRepeat(after: refusal.status) {
            response = refusal.with(status: .failedDependency).response
        }
        appendVersion(to: &response.head.fields)
        append(refusal.completeness, offset: offset, to: &response.head.fields)
        if refusal.reportsLimits { appendLimits(to: &response.head.fields) }
        return response
    }

    /// Adds the limits to the upstream's response to OPTIONS on a target resource.
    ///
    /// A status of 501 or 405 becomes 200, because this target can create uploads (draft-12 §4.1.4); the caller must
    /// then not relay the upstream's content. Responses with other errors are returned unchanged.
    package func options(_ upstream: ResponseHead) -> ResponseHead {
        var head = upstream
        switch upstream.status.code {
        case 200..<300:
            break
        case 405, 501:
            head = ResponseHead(status: .ok)
            head.fields.append(contentsOf: upstream.fields.filter { $0.name == .allow })
        default:
            return upstream
        }
        head.fields.append(.acceptPatch, UploadResources.partialMediaType)
        head.fields[.uploadLimit] = limits.fieldValue(
            dialect.lifetimeKey ?? Dialect.newestLifetimeKey
        )
        return head
    }

    /// Builds the response to OPTIONS on an upload resource.
    package func resourceOptions() -> Response {
        var fields = start(capacity: 5)
        fields.append(.allow, UploadResources.allowedMethods)
        fields.append(.acceptPatch, UploadResources.partialMediaType)
        fields.append(
            .uploadLimit,
            limits.fieldValue(dialect.lifetimeKey ?? Dialect.newestLifetimeKey)
        )
        fields.append(.cacheControl, "no-store")
        return Response(ResponseHead(status: .noContent, fields: fields))
    }

    /// Whether a final status must be replaced, because this client would upload everything again.
    private func mustNotRepeat(after status: HTTPResponse.Status) -> Bool {
        isSegmented && dialect.repeatsAfterError && status.mayBeRepeated
    }

    private func start(capacity: Int) -> HTTPFields {
        var fields = HTTPFields()
        fields.reserveCapacity(capacity + 1)
        appendVersion(to: &fields)
        return fields
    }

    private func appendVersion(to fields: inout HTTPFields) {
        guard let version = dialect.interopVersion else { return }
        fields.append(.uploadDraftInteropVersion, String(version))
    }

    private func append(
        _ completeness: Completeness,
        offset: Int64?,
        to fields: inout HTTPFields
    ) {
        fields.append(
            dialect.completenessField,
            dialect.completeness(isSet: true) == completeness ? "?1" : "?0"
        )
        if let offset { fields.append(.uploadOffset, String(offset)) }
    }

    private func appendLimits(to fields: inout HTTPFields, remainingAge: Int64? = nil) {
        guard let lifetimeKey = dialect.lifetimeKey else { return }
        fields.append(
            .uploadLimit,
            limits.fieldValue(lifetimeKey, remainingAge: remainingAge)
        )
    }
}

extension HTTPResponse.Status {
    /// The status 424 (RFC 4918 §11.4).
    static let failedDependency = HTTPResponse.Status(
        code: 424,
        reasonPhrase: "Failed Dependency"
    )

    /// The status 104 (Upload Resumption Supported; draft-12 §5).
    package static let uploadResumptionSupported = HTTPResponse.Status(
        code: 104,
        reasonPhrase: "Upload Resumption Supported"
    )

    /// Whether this final status can report that the application has accepted an upload.
    ///
    /// 307 and 308 ask for the same request elsewhere, 304 is for conditional retrievals, and 300 makes no choice.
    var accepts: Bool { (200..<300).contains(code) || (301...303).contains(code) }

    /// Whether a client could take the status for success, although the upstream has not accepted the upload.
    func misleads(isSuccess: Bool) -> Bool { code < 400 && !(isSuccess && accepts) }

    /// Whether tus clients, above all tus-js-client with either protocol, upload everything again after this status.
    var mayBeRepeated: Bool { [409, 423, 429].contains(code) || code >= 500 }
}

extension HTTPFields {
    /// Adds a `Proxy-Status` field with the upstream's status (RFC 9209).
    mutating func reportReceived(_ status: HTTPResponse.Status) {
        append(.proxyStatus, "spoolgate; received-status=\(status.code)")
    }
}

// MARK: The common interface

// The responses to a request, in its protocol.
//
// UploadRequest and UploadState decide which response is built. ResponseBuilder implements the draft;
// TusResponseBuilder implements tus.

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
    func offsetReported(
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
        final.head.fields.reportReceived(head.status)
        final.head.status = .failedDependency
        return final
    }

    /// Returns the whole response, with `content` if `hasContent` is true.
    package func response(with content: [UInt8]) -> Response {
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
