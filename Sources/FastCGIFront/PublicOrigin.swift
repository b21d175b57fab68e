// The public origin as the web server tells it: read strictly, since parts of it may be a client's words.
//
// Pure. Invariant: what is given back can stand in a URI, in `Host` and in `Forwarded` as it is.

/// Reads public origins.
enum PublicOrigin {
    /// `scheme://host` or `scheme://host:port` without a port that is the scheme's own; nil for anything
    /// else, user information and a path among it.
    static func normalised(_ text: String) -> String? {
        guard let scheme = ["https", "http"].first(where: { text.hasPrefix("\($0)://") }) else {
            return nil
        }
        let authority = text.dropFirst(scheme.count + 3)
        let (host, port) = parts(authority)
        guard let port, isHost(host) else { return nil }
        let isUsual = port.isEmpty || Int(port) == (scheme == "https" ? 443 : 80)
        return "\(scheme)://\(host)" + (isUsual ? "" : ":\(port)")
    }

    /// The host and the port, which is empty where there is none, and nil where it is no port.
    private static func parts(_ authority: Substring) -> (host: Substring, port: Substring?) {
        // An address of IPv6 has colons, and ends in a bracket.
        let end = authority.lastIndex(of: "]").map(authority.index(after:)) ?? authority.startIndex
        guard let colon = authority[end...].firstIndex(of: ":") else { return (authority, "") }
        let port = authority[authority.index(after: colon)...]
        let isPort =
            port.utf8.allSatisfy { (0x30...0x39).contains($0) } && port.utf8.count <= 5
            && (port.isEmpty || (1...65_535).contains(Int(port) ?? 0))
        return (authority[..<colon], isPort ? port : nil)
    }

    /// A name or an address of IPv4, or one of IPv6 in brackets (RFC 3986 §3.2.2, of which only the bytes
    /// that names in use have).
    private static func isHost(_ host: Substring) -> Bool {
        guard host.hasPrefix("[") else {
            return !host.isEmpty && host.utf8.allSatisfy { $0.isOfName }
        }
        let address = host.dropFirst().dropLast()
        return host.hasSuffix("]") && address.contains(":")
            && address.utf8.allSatisfy { $0.isOfAddress }
    }
}

extension UInt8 {
    private var isDigit: Bool { (0x30...0x39).contains(self) }

    fileprivate var isOfName: Bool {
        isDigit || (0x41...0x5A).contains(self) || (0x61...0x7A).contains(self)
            || "-._~".utf8.contains(self)
    }

    fileprivate var isOfAddress: Bool {
        isDigit || (0x41...0x46).contains(self) || (0x61...0x66).contains(self)
            || ":.".utf8.contains(self)
    }
}
