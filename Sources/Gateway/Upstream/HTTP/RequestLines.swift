// The field lines of an attempt, and the lines that prevent libcurl from adding its own.
//
// Invariant: libcurl sets the framing fields, and exactly one `Host` is sent.

import HTTPTypes
import SpoolgateCurl
import SpoolgateUploadProtocol

extension FieldLines {
    /// Replaces all lines with those of `request`, and returns whether the request's credentials authenticate the
    /// connection.
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
        let hostField = host ?? HTTPField(name: .host, value: location.authority)
        try add(hostField)
        if let destination = request.destination {
            // Servers refuse a scheme or host that differs from the request's (RFC 4918 §10.3; Apache: 502).
            let origin = "\(location.isSecure ? "https" : "http")://\(hostField.value)"
            try add(
                HTTPField(name: .destination, value: origin + location.basePath + destination)
            )
        }
        if !hasAccept { add("Accept:") }
        switch content {
        case .none:
            // The method allows content, but the request has none (RFC 9110 §8.6).
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
