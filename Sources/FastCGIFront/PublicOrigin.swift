// The public origin as the web server tells it: read strictly, since parts of it may be a client's words.
//
// Pure. Invariant: what is given back can stand in a URI, in `Host` and in `Forwarded` as it is.

import TextFormats

/// Reads public origins.
enum PublicOrigin {
    /// `scheme://host` or `scheme://host:port` without a port that is the scheme's own; nil for anything
    /// else, user information and a path among it.
    static func normalised(_ bytes: ParameterBytes) -> String? {
        let isSecure = bytes.hasPrefix("https://")
        guard isSecure || bytes.hasPrefix("http://") else { return nil }
        let authority = ParameterBytes(rebasing: bytes[(isSecure ? 8 : 7)...])
        let hostEnd = portStart(in: authority) ?? authority.count
        guard isHost(ParameterBytes(rebasing: authority[..<hostEnd])) else { return nil }
        let port = ParameterBytes(rebasing: authority[hostEnd...].dropFirst())
        let number = UInt16(digits: port) ?? 0
        guard port.isEmpty || port.count <= 5 && number > 0 else { return nil }
        let isUsual = port.isEmpty || number == (isSecure ? 443 : 80)
        return isUsual
            ? String(decoding: bytes.dropLast(authority.count - hostEnd), as: UTF8.self)
            : bytes.text
    }

    /// Where the colon before a port is.
    private static func portStart(in authority: ParameterBytes) -> Int? {
        // An address of IPv6 has colons, and ends in a bracket.
        let isAddress = authority.first == UInt8(ascii: "[")
        let end = isAddress ? authority.index(of: UInt8(ascii: "]"), from: 0) : 0
        return authority.index(of: UInt8(ascii: ":"), from: end ?? 0)
    }

    /// A name or an address of IPv4, or one of IPv6 in brackets (RFC 3986 §3.2.2, of which only the bytes
    /// that names in use have).
    private static func isHost(_ host: ParameterBytes) -> Bool {
        !host.isEmpty && host.allSatisfy(\.isUnreserved) || host.isBracketedAddress
    }
}
