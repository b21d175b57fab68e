// The fields that tell the upstream who stands behind the request, as a reverse proxy adds them.

import HTTPTypes

extension HTTPFields {
    /// Adds the client's address and scheme and our own mark (RFC 9110 §7.6.3).
    ///
    /// - Parameters:
    ///   - address: the client's address as the web server said; put behind those already named.
    ///   - scheme: the scheme the client used; nil leaves the field as it is.
    mutating func addForwarding(address: String?, scheme: String?) {
        if let address {
            let before = self[.xForwardedFor].map { "\($0), " } ?? ""
            self[.xForwardedFor] = before + address
        }
        if let scheme { self[.xForwardedProto] = scheme }
        append(HTTPField(name: .via, value: "1.1 spoolgate"))
    }
}

extension HTTPField.Name {
    static let xForwardedFor = known("x-forwarded-for")
    static let xForwardedProto = known("x-forwarded-proto")
    static let idempotencyKey = known("idempotency-key")

    /// A name that is a token.
    static func known(_ text: String) -> HTTPField.Name {
        guard let name = HTTPField.Name(text) else { preconditionFailure("\(text) is no token") }
        return name
    }
}

extension HTTPResponse.Status {
    /// Whether a final response of this status can have content (RFC 9110 §6.4.1).
    var hasContent: Bool { code >= 200 && code != 204 && code != 304 }
}
