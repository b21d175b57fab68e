// The CORS rules of a route (Fetch §3.3).
//
// Pure. Invariant: a response contains no bytes of a request, except an origin that the operator has named, and the
// names of fields that a page of it may send.

package import HTTPTypes
import SpoolgateTextFormats

/// The origins whose pages may use a route, and the fields they may send and read.
package struct CrossOrigin: Sendable, Equatable {
    /// The origins as browsers name them (`isOrigin`), or only `*`.
    ///
    /// If the list is empty, the gateway adds no CORS fields and relays the upstream's.
    package var origins: [String] = []
    /// Whether browsers may send credentials such as cookies; must be false if `origins` is `*`.
    package var allowsCredentials = false
    /// Additional response fields that a page may read.
    package var exposedFields: [HTTPField.Name] = []

    package static let anyOrigin = "*"

    /// Creates rules without an origin.
    package init() {}

    package var isOn: Bool { !origins.isEmpty }

    /// Whether a request is a preflight request (Fetch §3.3.2).
    package static func isPreflight(_ head: RequestHead) -> Bool {
        head.method == .options && head.fields.contains(.origin)
            && head.fields.contains(.accessControlRequestMethod)
    }

    /// Returns the response to a preflight request.
    ///
    /// The response is a 200 without content. If `origin` is not allowed, the response grants no permission.
    /// `names` is the request's `Access-Control-Request-Headers`: an allowed origin may send any field.
    package func preflightResponse(to origin: String, requesting names: String? = nil) -> Response {
        var fields: HTTPFields = [
            .vary: "Origin, Access-Control-Request-Method, Access-Control-Request-Headers"
        ]
        if appendOrigin(origin, to: &fields) {
            fields.append(.accessControlAllowMethods, Self.methods)
            fields.append(
                .accessControlAllowHeaders,
                Self.list(Self.alwaysRequestFields, Self.names(in: names ?? ""))
            )
            fields.append(.accessControlMaxAge, "7200")
        }
        return Response(ResponseHead(status: .ok, fields: fields))
    }

    /// Replaces the CORS fields of a final response with those of these rules.
    ///
    /// `origin` is the request's `Origin`, or nil if the request has none. `Vary` is added even if nil, because a cache
    /// must not serve that response to a page of another origin (Fetch §3.3.6).
    package func mark(_ fields: inout HTTPFields, for origin: String?) {
        // Avoids a copy because most responses have no CORS fields.
        if fields.contains(where: Self.isOfCORS) { fields.removeAll(where: Self.isOfCORS) }
        fields.append(.vary, "Origin")
        guard let origin, appendOrigin(origin, to: &fields) else { return }
        fields.append(
            .accessControlExposeHeaders,
            Self.list(Self.alwaysExposedFields, exposedFields)
        )
    }

    /// Appends the fields for an origin; returns false if the origin is not allowed.
    private func appendOrigin(_ origin: String, to fields: inout HTTPFields) -> Bool {
        let allowed = origins == [Self.anyOrigin] ? Self.anyOrigin : origin
        guard origins.contains(where: { $0.hasSameBytes(as: allowed) }) else { return false }
        fields.append(.accessControlAllowOrigin, allowed)
        if allowsCredentials { fields.append(.accessControlAllowCredentials, "true") }
        return true
    }

    /// Returns the names of fields in a list of at most 1 KiB, which the response's head can hold; `*` names no field.
    private static func names(in list: String) -> [HTTPField.Name] {
        guard list.utf8.count <= 1024 else { return [] }
        return list.split { $0 == "," || $0 == " " }.compactMap { HTTPField.Name(String($0)) }
            .filter { $0.rawName != "*" }
    }

    private static func list(_ always: String, _ further: [HTTPField.Name]) -> String {
        further.isEmpty
            ? always : always + ", " + further.map(\.rawName).joined(separator: ", ")
    }

    private static func isOfCORS(_ field: HTTPField) -> Bool {
        let name = field.name.canonicalName
        return name.utf8.first == UInt8(ascii: "a") && name.hasPrefix("access-control-")
    }

    private static let methods = "POST, PUT, PATCH, HEAD, GET, DELETE, OPTIONS"

    /// The fields that clients of the upload protocols send, beyond those of every page.
    private static let alwaysRequestFields = [
        "Authorization, Content-Type, Content-Disposition, Upload-Offset, Upload-Length",
        "X-HTTP-Method-Override, X-Request-ID, X-Requested-With, Idempotency-Key, Prefer",
        "Upload-Complete, Upload-Incomplete, Upload-Draft-Interop-Version, Content-Digest",
        "Repr-Digest, Want-Repr-Digest",
        "Tus-Resumable, Upload-Metadata, Upload-Defer-Length, Upload-Concat, Upload-Checksum",
    ].joined(separator: ", ")

    /// The response fields that clients of the upload protocols read.
    private static let alwaysExposedFields = [
        "Location, Content-Location, Link, Retry-After, Proxy-Status, Repr-Digest, Upload-Offset",
        "Upload-Length, Upload-Complete, Upload-Incomplete, Upload-Limit",
        "Upload-Draft-Interop-Version, Upload-Expires, Upload-Metadata, Upload-Defer-Length",
        "Upload-Concat, Tus-Resumable, Tus-Version, Tus-Extension, Tus-Max-Size",
        "Tus-Checksum-Algorithm",
    ].joined(separator: ", ")
}

extension CrossOrigin {
    /// Whether a text is an origin in the form that browsers send (RFC 6454 §6.2), so that origins can be compared by
    /// bytes.
    ///
    /// An origin has a scheme, a host and, unless the port is the default, a port, all in lower case.
    package static func isOrigin(_ text: String) -> Bool {
        guard let mark = text.firstRange(of: "://"),
            !text.utf8.contains(where: { (0x41...0x5a).contains($0) })
        else { return false }
        let scheme = text[..<mark.lowerBound]
        let (host, port) = text[mark.upperBound...].utf8.hostAndPort
        guard isScheme(scheme.utf8), isHost(host) else { return false }
        return port.map { isPort($0, of: scheme) } ?? true
    }

    private static func isScheme(_ scheme: Substring.UTF8View) -> Bool {
        scheme.first.map { $0.isAlphanumeric && !$0.isDigit } ?? false
            && scheme.allSatisfy { $0.isAlphanumeric || "+-.".utf8.contains($0) }
    }

    private static func isHost(_ host: Substring.UTF8View) -> Bool {
        let isName =
            !host.isEmpty && host.allSatisfy { $0.isAlphanumeric || "-._".utf8.contains($0) }
        return isName || host.isBracketedAddress
    }

    private static func isPort(_ text: Substring.UTF8View, of scheme: Substring) -> Bool {
        guard text.first != UInt8(ascii: "0"), let port = UInt16(digits: text), port > 0 else {
            return false
        }
        switch scheme {
        case "https": return port != 443
        case "http": return port != 80
        default: return true
        }
    }
}
