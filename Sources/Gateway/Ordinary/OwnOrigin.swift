// Which URLs are at the public origin, compared as RFC 3986 §6.2.3 says.

import TextFormats

extension String {
    /// The path, with its query, of an absolute URL at an origin; nil if it is no such URL, or is somewhere else.
    ///
    /// Scheme and host in any case of letters, the scheme's own port or none. User names and fragments are at no origin.
    ///
    /// - Parameter origin: scheme, host and perhaps a port; nil: none is known.
    /// - Returns: a path that begins with a slash.
    func path(below origin: String?) -> String? {
        guard let origin, utf8.allSatisfy({ (0x21...0x7e).contains($0) && $0 != 0x23 }),
            let own = URLParts(utf8), let ours = URLParts(origin.utf8),
            own.place == ours.place
        else { return nil }
        return own.path.isEmpty ? "/" : own.path.hasPrefix("?") ? "/" + own.path : own.path
    }
}

/// The parts of an absolute URL that tell its origin from others.
private struct URLParts {
    /// Scheme, host and port, in lower case.
    let place: [String]
    /// What follows.
    let path: String

    init?(_ url: String.UTF8View) {
        guard let colon = url.firstIndex(of: UInt8(ascii: ":")),
            url[colon...].starts(with: "://".utf8)
        else { return nil }
        let scheme = String(decoding: url[..<colon], as: UTF8.self).lowercased()
        let rest = url[colon...].dropFirst(3)
        let authority = rest.prefix { !"/?".utf8.contains($0) }
        guard !authority.isEmpty else { return nil }
        // An address of IPv6 has colons, and ends in a bracket.
        let afterAddress = authority.lastIndex(of: UInt8(ascii: "]")) ?? authority.startIndex
        let mark = authority[afterAddress...].firstIndex(of: UInt8(ascii: ":"))
        let host = String(decoding: authority[..<(mark ?? authority.endIndex)], as: UTF8.self)
        let told = mark.map { String(decoding: authority[$0...].dropFirst(), as: UTF8.self) } ?? ""
        let port = told.isEmpty ? (scheme == "https" ? "443" : "80") : told
        place = [scheme, host.lowercased(), port]
        path = String(decoding: rest[authority.endIndex...], as: UTF8.self)
    }
}
