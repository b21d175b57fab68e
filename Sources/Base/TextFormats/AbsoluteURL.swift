// Origins and paths of URLs, compared as in RFC 3986 §6.2.3.

/// A parsed absolute http or https URL.
package struct AbsoluteURL {
    /// The scheme, host and port in lower case, with a default port made explicit.
    ///
    /// All spellings of an origin give equal values. A user name stays in the host, so that the URL matches no origin.
    package let origin: [String]
    /// The path with the query, beginning with a slash.
    package let path: String

    /// Parses a URL; returns nil if the URL has another scheme, no host, a fragment, or bytes that are invalid in URLs.
    package init?(_ url: some StringProtocol) {
        let bytes = Array(url.utf8)
        guard bytes.allSatisfy({ (0x21...0x7e).contains($0) && $0 != 0x23 }),
            let colon = bytes.firstIndex(of: UInt8(ascii: ":")),
            bytes[colon...].starts(with: "://".utf8)
        else { return nil }
        let scheme = String(decoding: bytes[..<colon], as: UTF8.self).lowercased()
        let rest = bytes[colon...].dropFirst(3)
        let authority = rest.prefix { !"/?".utf8.contains($0) }
        guard scheme == "https" || scheme == "http", !authority.isEmpty else { return nil }
        let parts = authority.hostAndPort
        let host = String(decoding: parts.host, as: UTF8.self)
        let stated = String(decoding: parts.port ?? [], as: UTF8.self)
        let port = stated.isEmpty ? (scheme == "https" ? "443" : "80") : stated
        origin = [scheme, host.lowercased(), port]
        let path = String(decoding: rest[authority.endIndex...], as: UTF8.self)
        self.path = path.hasPrefix("/") ? path : "/" + path
    }
}

extension String {
    /// Returns the path and query, beginning with a slash, if this text is an absolute URL with the origin of `origin`.
    ///
    /// Otherwise, returns nil. `origin` is also a URL, or nil if the origin is unknown.
    package func path(below origin: String?) -> String? {
        guard let origin, let url = AbsoluteURL(self), url.origin == AbsoluteURL(origin)?.origin
        else { return nil }
        return url.path
    }
}
