// The public origin as the web server tells it: read strictly, since parts of it may be a client's words.
//
// Pure. Invariant: what is given back can stand in a URI, in `Host` and in `Forwarded` as it is.

import TextFormats

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
            port.isEmpty || port.utf8.count <= 5 && UInt16(digits: port).map { $0 > 0 } ?? false
        return (authority[..<colon], isPort ? port : nil)
    }

    /// A name or an address of IPv4, or one of IPv6 in brackets (RFC 3986 §3.2.2, of which only the bytes
    /// that names in use have).
    private static func isHost(_ host: Substring) -> Bool {
        guard host.hasPrefix("[") else {
            return !host.isEmpty && host.utf8.allSatisfy(\.isUnreserved)
        }
        let address = host.dropFirst().dropLast()
        return host.hasSuffix("]") && address.contains(":")
            && address.utf8.allSatisfy(\.isOfAddress)
    }
}
