// URLs as text: their origin, and the resolution of `Location` (RFC 3986, §5.2; RFC 6454).
//
// Pure. The invariant: a URL is absolute, its scheme is http or https, and it has no user, fragment or control
// character.

import SpoolgateTextFormats

struct URLText: Equatable {
    /// The URL without its fragment.
    let text: String
    /// The origin as `https://host:port`, in lower case and without the default port.
    let origin: String
    private let authorityEnd: String.Index

    var isSecure: Bool { origin.hasPrefix("https:") }

    /// Reads an absolute URL; nil for any other text.
    init?(_ text: String) {
        guard text.utf8.allSatisfy({ $0 > 0x20 && $0 != 0x7f }),
            let separator = text.firstRange(of: "://")
        else { return nil }
        let scheme = Self.lowered(text[..<separator.lowerBound])
        guard scheme == "http" || scheme == "https" else { return nil }
        let rest = text[separator.upperBound...]
        // Searches bytes, because a combining mark would hide the slash.
        let end = rest.utf8.firstIndex { "/?#".utf8.contains($0) } ?? rest.endIndex
        var authority = Self.lowered(rest[..<end])
        guard !authority.isEmpty, !authority.utf8.contains(UInt8(ascii: "@")) else { return nil }
        let ownPort = scheme == "http" ? ":80" : ":443"
        if authority.hasSuffix(ownPort) { authority.removeLast(ownPort.count) }
        origin = "\(scheme)://\(authority)"
        let fragment = text.utf8.firstIndex(of: UInt8(ascii: "#")) ?? text.endIndex
        let whole = String(text[..<fragment])
        let length = text.utf8.distance(from: text.startIndex, to: end)
        authorityEnd = whole.utf8.index(whole.startIndex, offsetBy: length)
        self.text = whole
    }

    /// Lower-cases ASCII letters only, because the Kelvin sign must not become a k.
    private static func lowered(_ text: Substring) -> String {
        String(
            decoding: text.utf8.map { (0x41...0x5a).contains($0) ? $0 | 0x20 : $0 },
            as: UTF8.self
        )
    }

    /// Compares byte for byte.
    static func == (one: URLText, other: URLText) -> Bool {
        one.text.hasSameBytes(as: other.text)
    }

    func hasOrigin(of other: URLText) -> Bool { origin.hasSameBytes(as: other.origin) }

    /// Resolves a `Location`; nil if it is invalid.
    func resolved(_ reference: String) -> URLText? {
        if reference.contains("://") { return URLText(reference) }
        guard !reference.isEmpty else { return nil }
        if reference.beginsWithBytes(of: "//") {
            return URLText((isSecure ? "https:" : "http:") + reference)
        }
        let base = text[..<authorityEnd]
        if reference.beginsWithBytes(of: "/") { return URLText(base + reference) }
        let tail = text[authorityEnd...]
        let path = tail[..<(tail.utf8.firstIndex(of: UInt8(ascii: "?")) ?? tail.endIndex)]
        if reference.beginsWithBytes(of: "?") { return URLText(base + path + reference) }
        let folder =
            path.utf8.lastIndex(of: UInt8(ascii: "/"))
            .map { path[..<path.utf8.index(after: $0)] } ?? "/"
        return URLText(base + folder + reference)
    }
}
