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
        guard port.isEmpty || port.count <= 5 && (1...65_535).contains(port.number ?? 0) else {
            return nil
        }
        let isUsual = port.isEmpty || port.number == (isSecure ? 443 : 80)
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
        guard host.first == UInt8(ascii: "[") else {
            return !host.isEmpty && host.allSatisfy(\.isOfName)
        }
        let address = host.dropFirst().dropLast()
        return host.hasSuffix("]") && address.contains(UInt8(ascii: ":"))
            && address.allSatisfy(\.isOfAddress)
    }
}

extension UInt8 {
    /// A byte that stands for itself in a URI (unreserved, RFC 3986 §2.3).
    fileprivate var isOfName: Bool {
        switch self {
        case 0x30...0x39, 0x41...0x5A, 0x61...0x7A: true
        case UInt8(ascii: "-"), UInt8(ascii: "."), UInt8(ascii: "_"), UInt8(ascii: "~"): true
        default: false
        }
    }
}
