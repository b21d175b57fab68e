// The field lines of an attempt, and what libcurl is kept from adding to them.
//
// The invariant: framing fields are libcurl's, and one `Host` goes out.

import Curl
import HTTPTypes
import UploadProtocol

extension FieldLines {
    /// Replaces all lines by those of a request.
    ///
    /// - Returns: whether its credentials authenticate the connection.
    mutating func replace(
        by request: UpstreamRequest,
        to location: UpstreamLocation,
        content: HandedContent
    ) throws(CurlOptionError) -> Bool {
        removeAll()
        var authenticates = false
        var host: HTTPField?
        var (hasAccept, hasContentType) = (false, false)
        for field in request.fields {
            let name = field.name.canonicalName
            if ownFields.contains(name) {
                if host == nil, name == "host", !field.value.isEmpty { host = field }
                continue
            }
            if name == "authorization" {
                authenticates = authenticates || field.authenticatesConnection
            }
            hasAccept = hasAccept || name == "accept"
            hasContentType = hasContentType || name == "content-type"
            try add(field)
        }
        try add(host ?? HTTPField(name: .host, value: location.authority))
        if !hasAccept { add("Accept:") }
        switch content {
        case .none:
            // A request without content (RFC 9110 §8.6).
            if [.post, .put, .patch].contains(request.method) {
                add("Content-Length: 0")
            }
        case .whole, .pieces:
            if !hasContentType { add("Content-Type:") }
            add("Expect:")
        }
        return authenticates
    }
}

private let ownFields = FieldNameSet([
    "host", "content-length", "transfer-encoding", "expect", "connection", "upgrade",
    "keep-alive", "te",
])
