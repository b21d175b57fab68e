// The public origin as the web server tells it: read strictly, since parts of it may be a client's words.
//
// Pure. Invariant: what is given back can stand in a URI, in `Host` and in `Forwarded` as it is.

import SpoolgateTextFormats

/// Reads public origins.
enum PublicOrigin {
    /// `scheme://host` or `scheme://host:port` without a port that is the scheme's own; nil for anything
    /// else, user information and a path among it.
    static func normalised(_ bytes: ParameterBytes) -> String? {
        let isSecure = bytes.hasPrefix("https://")
        guard isSecure || bytes.hasPrefix("http://") else { return nil }
        let schemeCount = isSecure ? 8 : 7
        let (host, port) = ParameterBytes(rebasing: bytes[schemeCount...]).hostAndPort
        let isHost = !host.isEmpty && host.allSatisfy { $0.isUnreserved } || host.isBracketedAddress
        let number = port.flatMap { UInt16(digits: $0) } ?? 0
        let isWithout = port?.isEmpty ?? true
        guard isHost, isWithout || number > 0 && port?.count ?? 0 <= 5 else { return nil }
        let isUsual = isWithout || number == (isSecure ? 443 : 80)
        return isUsual
            ? String(decoding: bytes[..<(schemeCount + host.count)], as: UTF8.self) : bytes.text
    }
}
