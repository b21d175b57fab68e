// An absolute URL's origin and path, compared as RFC 3986 §6.2.3 says.

/// An absolute URL of http or https, taken apart.
package struct AbsoluteURL {
    /// Scheme, host and port in lower case, the scheme's own port written out.
    ///
    /// The same for one origin, however it is spelt. User names are part of the host, so that they are at no origin.
    package let origin: [String]
    /// The path with its query; it begins with a slash.
    package let path: String

    /// Takes a URL apart; nil for another scheme, without a host, with a fragment, or with bytes that no URL has.
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
        let told = String(decoding: parts.port ?? [], as: UTF8.self)
        let port = told.isEmpty ? (scheme == "https" ? "443" : "80") : told
        origin = [scheme, host.lowercased(), port]
        let path = String(decoding: rest[authority.endIndex...], as: UTF8.self)
        self.path = path.hasPrefix("/") ? path : "/" + path
    }
}

extension String {
    /// The path, with its query, of an absolute URL at an origin; nil if it is no such URL, or is somewhere else.
    ///
    /// - Parameter origin: scheme, host and perhaps a port; nil: none is known.
    /// - Returns: a path that begins with a slash.
    package func path(below origin: String?) -> String? {
        guard let origin, let url = AbsoluteURL(self), url.origin == AbsoluteURL(origin)?.origin
        else { return nil }
        return url.path
    }
}
