// The responses of tus.
//
// Refusals are one line of plain text, because clients show the text in their error messages. Invariant: no response
// makes a client repeat an upload that the upstream has accepted or may have accepted.

import HTTPTypes
import SpoolgateTextFormats

/// Builds the responses of tus.
package struct TusResponseBuilder: ResponseWording {
    package let dialect = Dialect.tus
    package var limits: UploadLimits
    /// Whether the request is a creation, whose response must be 201.
    private let isCreation: Bool
    /// Whether the client wants the upstream's response instead of a 204.
    private let wantsResponse: Bool
    /// The time of the request, in seconds since 1970-01-01 UTC.
    private let now: Int64
    private var creation: HTTPFields = [:]

    /// Creates a builder for one request.
    ///
    /// If `reportsResponse` is true, the upstream's own response is relayed if possible. `now` is the current time in
    /// seconds since 1970-01-01 UTC.
    package init(_ request: RequestHead, limits: UploadLimits, reportsResponse: Bool, now: Int64) {
        self.limits = limits
        self.now = now
        isCreation = request.method == .post
        wantsResponse = reportsResponse || request.fields.prefersRepresentation
    }

    /// Returns a copy for a request on the upload that `creation` created.
    package func on(_ creation: RequestHead) -> TusResponseBuilder {
        var builder = self
        builder.creation = creation.fields
        return builder
    }

    /// Builds a 104 with the upload's URI.
    ///
    /// The response is never sent, because tus has no interim responses.
    package func interimCreated(location: String) -> ResponseHead {
        ResponseHead(status: .uploadResumptionSupported, fields: [.location: location])
    }

    /// Builds a 104 with the offset.
    ///
    /// The response is never sent, because tus has no interim responses.
    package func interimProgress(offset: Int64) -> ResponseHead {
        ResponseHead(status: .uploadResumptionSupported, fields: [.uploadOffset: "\(offset)"])
    }

    /// Builds the response to a creation, a 201.
    package func created(location: String, offset: Int64) -> Response {
        var fields = start
        fields.append(.location, location)
        fields.append(.uploadOffset, String(offset))
        appendExpires(limits.maxAge, to: &fields)
        fields.linkStatus(of: location)
        return Response(ResponseHead(status: .created, fields: fields))
    }

    /// Builds the 204 for an append that leaves the upload incomplete.
    package func appended(offset: Int64) -> Response {
        var fields = start
        fields.append(.uploadOffset, String(offset))
        appendExpires(limits.maxAge, to: &fields)
        return Response(ResponseHead(status: .noContent, fields: fields))
    }

    /// Builds the 200 for an offset retrieval; some clients accept no other status.
    package func offsetReported(
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

    /// Builds the 201 or 204 for an upload that will be delivered later, because tus has no 202.
    package func accepted(id: UploadID, resource: String, length: Int64?) -> Response {
        var fields = start
        if isCreation { fields.append(.location, resource) }
        if let length { fields.append(.uploadOffset, String(length)) }
        fields.linkStatus(of: resource)
        return Response(
            ResponseHead(status: isCreation ? .created : .noContent, fields: fields)
        )
    }

    /// Builds the response to a cancellation, a 204.
    package func cancelled() -> Response {
        Response(ResponseHead(status: .noContent, fields: start))
    }

    /// Builds the head of the final response.
    ///
    /// If the upstream accepted the upload, the status is 201 for a creation and 204 for an append, unless the client
    /// wants the upstream's response. Otherwise the status is the upstream's, or 424 if the upstream's would make a
    /// client upload everything again.
    package func final(
        _ head: ResponseHead,
        isSuccess: Bool,
        offset: Int64,
        location: String?
    ) -> FinalHead {
        var fields = start
        let misleads = head.status.misleads(isSuccess: isSuccess)
        if head.status.code >= 400 || misleads {
            fields.append(contentsOf: head.fields.withoutCaching)
            guard misleads || head.status.mayBeRepeated else {
                return FinalHead(head: ResponseHead(status: head.status, fields: fields))
            }
            fields.reportReceived(head.status)
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
            fields.reportReceived(head.status)
            return FinalHead(head: ResponseHead(status: .created, fields: fields))
        }
        if wantsResponse, head.status.code < 300 {
            fields.append(contentsOf: head.fields.withoutCaching)
            return FinalHead(head: ResponseHead(status: head.status, fields: fields))
        }
        fields.append(contentsOf: head.fields.withoutCaching.withoutContentFields)
        fields.reportReceived(head.status)
        return FinalHead(
            head: ResponseHead(status: .noContent, fields: fields),
            hasContent: false
        )
    }

    /// Builds the response to a refused request.
    ///
    /// The status becomes 424 if the client must not send the upload again, and 503 if a retry may succeed.
    package func refused(_ refusal: Refusal, offset: Int64?) -> Response {
        var status = refusal.status
        if refusal.completeness == .complete, status.mayBeRepeated {
            status = .failedDependency
        } else if [429, 502, 504].contains(status.code) {
            // tus-js-client retries no 4xx except 409 and 423.
            status = .serviceUnavailable
        }
        var fields = start
        fields.append(contentsOf: refusal.fields)
        fields.append(.contentType, "text/plain; charset=utf-8")
        if let retryAfter = refusal.retryAfter { fields.append(.retryAfter, String(retryAfter)) }
        // An offset with 404, 410 or 424 would make a client continue.
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
    fileprivate var withoutContentFields: HTTPFields {
        var fields = self
        fields.removeAll { $0.name.canonicalName.hasPrefix("content-") }
        return fields
    }

    /// The fields without the upstream's cache directives; the gateway forbids caching.
    fileprivate var withoutCaching: HTTPFields {
        var fields = self
        fields.removeAll { $0.name == .cacheControl || $0.name == .expires }
        return fields
    }

    /// Whether the client prefers a representation (RFC 7240 §4.2).
    fileprivate var prefersRepresentation: Bool {
        self[.prefer]?.split(separator: ",").contains {
            $0.split(separator: ";").first?.withoutOuterWhitespace.lowercased()
                == "return=representation"
        } ?? false
    }
}
