// The responses of tus, one function a row.
//
// Refusals are one line of plain text: clients put it into their error messages. Invariant: no answer makes a
// client send everything again that the upstream has, or may have, taken.

import HTTPTypes
import SpoolgateTextFormats

/// Builds the responses of tus.
package struct TusResponseBuilder: ResponseWording {
    package let dialect = Dialect.tus
    package var limits: UploadLimits
    /// Whether the request is a creation, whose answer must be 201.
    private let isCreation: Bool
    /// Whether the client wants the upstream's answer in place of 204.
    private let wantsAnswer: Bool
    /// Seconds since 1970, when the request came.
    private let now: Int64
    /// The creation of the upload that is answered for.
    private var creation: HTTPFields = [:]

    /// Makes a builder for one request.
    ///
    /// - Parameters:
    ///   - request: the request's head.
    ///   - limits: the limits of its route.
    ///   - tellsAnswer: whether its route tells clients the upstream's own answer where it can.
    ///   - now: seconds since 1970.
    package init(_ request: RequestHead, limits: UploadLimits, tellsAnswer: Bool, now: Int64) {
        self.limits = limits
        self.now = now
        isCreation = request.method == .post
        wantsAnswer = tellsAnswer || request.fields.prefersRepresentation
    }

    /// The same for a request on an upload that `creation` made.
    package func on(_ creation: RequestHead) -> TusResponseBuilder {
        var builder = self
        builder.creation = creation.fields
        return builder
    }

    /// 104 with the upload's URI; clients of tus do not know it, and none is sent.
    package func interimCreated(location: String) -> ResponseHead {
        ResponseHead(status: .uploadResumptionSupported, fields: [.location: location])
    }

    /// 104 with the offset; clients of tus do not know it, and none is sent.
    package func interimProgress(offset: Int64) -> ResponseHead {
        ResponseHead(status: .uploadResumptionSupported, fields: [.uploadOffset: "\(offset)"])
    }

    /// 201.
    package func created(location: String, offset: Int64) -> Response {
        var fields = start
        fields.append(.location, location)
        fields.append(.uploadOffset, String(offset))
        appendExpires(limits.maxAge, to: &fields)
        fields.linkStatus(of: location)
        return Response(ResponseHead(status: .created, fields: fields))
    }

    /// 204.
    package func appended(offset: Int64) -> Response {
        var fields = start
        fields.append(.uploadOffset, String(offset))
        appendExpires(limits.maxAge, to: &fields)
        return Response(ResponseHead(status: .noContent, fields: fields))
    }

    /// 200: some clients take no other status.
    package func offsetTold(
        _ state: UploadState,
        _ completeness: Completeness,
        remainingAge: Int64,
        response: ResponseHead?
    ) -> Response {
        var fields = start
        if let response {
            fields.append(contentsOf: response.fields.withoutCaching.withoutContentFields)
        }
        fields.append(.uploadOffset, String(state.offset))
        if let length = state.length {
            fields.append(.uploadLength, String(length))
        } else {
            fields.append(.uploadDeferLength, "1")
        }
        for name in [HTTPField.Name.uploadMetadata, .uploadConcat] {
            if let value = creation[name] { fields.append(name, value) }
        }
        if completeness != .complete { appendExpires(remainingAge, to: &fields) }
        return Response(ResponseHead(status: .ok, fields: fields))
    }

    /// 201 or 204: clients know no 202.
    package func accepted(id: UploadID, resource: String, length: Int64?) -> Response {
        var fields = start
        if isCreation { fields.append(.location, resource) }
        if let length { fields.append(.uploadOffset, String(length)) }
        fields.linkStatus(of: resource)
        return Response(
            ResponseHead(status: isCreation ? .created : .noContent, fields: fields)
        )
    }

    /// 204.
    package func cancelled() -> Response {
        Response(ResponseHead(status: .noContent, fields: start))
    }

    /// 201 to a creation and 204 to an append where the upstream took the upload, its own status where it
    /// refused it, 424 for a status after which a client would send everything again.
    package func final(_ head: ResponseHead, offset: Int64, location: String?) -> FinalHead {
        var fields = start
        if head.status.code >= 400 {
            fields.append(contentsOf: head.fields.withoutCaching)
            guard head.status.asksToRepeat else {
                return FinalHead(head: ResponseHead(status: head.status, fields: fields))
            }
            fields.tellReceived(head.status)
            return FinalHead(head: ResponseHead(status: .failedDependency, fields: fields))
        }
        fields.append(.uploadOffset, String(offset))
        if let location {
            fields.append(.location, location)
            fields.linkStatus(of: location)
            var own = head.fields.withoutCaching
            if let place = own[.location] {
                own[.location] = nil
                own[.contentLocation] = place
            }
            fields.append(contentsOf: own)
            fields.tellReceived(head.status)
            return FinalHead(head: ResponseHead(status: .created, fields: fields))
        }
        if wantsAnswer, head.status.code < 300 {
            fields.append(contentsOf: head.fields.withoutCaching)
            return FinalHead(head: ResponseHead(status: head.status, fields: fields))
        }
        fields.append(contentsOf: head.fields.withoutCaching.withoutContentFields)
        fields.tellReceived(head.status)
        return FinalHead(
            head: ResponseHead(status: .noContent, fields: fields),
            hasContent: false
        )
    }

    /// One line of plain text; 424 where the upload is not to be repeated, 503 where trying again helps.
    package func refused(_ refusal: Refusal, offset: Int64?) -> Response {
        var status = refusal.status
        if refusal.completeness == .complete, status.asksToRepeat {
            status = .failedDependency
        } else if [429, 502, 504].contains(status.code) {
            // tus-js-client gives up after any 4xx but 409 and 423.
            status = .serviceUnavailable
        }
        var fields = start
        fields.append(contentsOf: refusal.fields)
        fields.append(.contentType, "text/plain; charset=utf-8")
        if let retryAfter = refusal.retryAfter { fields.append(.retryAfter, String(retryAfter)) }
        // An offset beside 404, 410 or 424 would have a client go on.
        if let offset, [400, 409, 413, 460].contains(status.code) {
            fields.append(.uploadOffset, String(offset))
        }
        return Response(
            ResponseHead(status: status, fields: fields),
            content: Array((refusal.detail + "\n").utf8)
        )
    }

    private var start: HTTPFields {
        var fields = HTTPFields()
        fields.reserveCapacity(8)
        fields.append(.tusResumable, Tus.version)
        fields.append(.cacheControl, "no-store")
        return fields
    }

    private func appendExpires(_ age: Int64, to fields: inout HTTPFields) {
        fields.append(.uploadExpires, HTTPDate.text(now + max(age, 0)))
    }
}

extension HTTPFields {
    /// The fields that do not describe a content.
    fileprivate var withoutContentFields: HTTPFields {
        var fields = self
        fields.removeAll { $0.name.canonicalName.hasPrefix("content-") }
        return fields
    }

    /// The fields of an upstream but for how long a cache may keep its response: the gateway's own says that none may.
    fileprivate var withoutCaching: HTTPFields {
        var fields = self
        fields.removeAll { $0.name == .cacheControl || $0.name == .expires }
        return fields
    }

    /// Whether the client prefers a representation in the answer (RFC 7240 §4.2).
    fileprivate var prefersRepresentation: Bool {
        self[.prefer]?.split(separator: ",").contains {
            $0.split(separator: ";").first?.withoutOuterWhitespace.lowercased()
                == "return=representation"
        } ?? false
    }
}
