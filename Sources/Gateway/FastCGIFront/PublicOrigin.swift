// Parses the public origin from the web server strictly, since parts of it may come from a client.
//
// Pure. Invariant: a result can be used unchanged in a URI, in `Host` and in `Forwarded`.

import SpoolgateTextFormats

enum PublicOrigin {
    /// Returns `scheme://host[:port]`, without a default port.
    ///
    /// Returns nil for any other text, such as an origin with a path.
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
