// URLs as texts: which origin one has, and what a `Location` means beside another (RFC 3986, §5.2; RFC 6454).
//
// Pure. The invariant: a URL here is absolute, of HTTP, and has no user, no fragment and no control characters.

import SpoolgateTextFormats

/// An absolute URL of HTTP.
struct URLText: Equatable {
    /// As it is sent.
    let text: String
    /// `https://host:port`, in small letters and without the scheme's own port.
    let origin: String
    private let authorityEnd: String.Index

    /// Whether TLS is spoken.
    var isSecure: Bool { origin.hasPrefix("https:") }

    /// Reads an absolute URL; nil for anything else.
    init?(_ text: String) {
        guard text.utf8.allSatisfy({ $0 > 0x20 && $0 != 0x7f }),
            let separator = text.firstRange(of: "://")
        else { return nil }
        let scheme = Self.lowered(text[..<separator.lowerBound])
        guard scheme == "http" || scheme == "https" else { return nil }
        let rest = text[separator.upperBound...]
        // Bytes, not characters: a combining mark would hide the slash.
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

    /// The text with ASCII's letters alone in small: the Kelvin sign is no k.
    private static func lowered(_ text: Substring) -> String {
        String(
            decoding: text.utf8.map { (0x41...0x5a).contains($0) ? $0 | 0x20 : $0 },
            as: UTF8.self
        )
    }

    /// Whether they are the same byte for byte.
    static func == (one: URLText, other: URLText) -> Bool {
        one.text.hasSameBytes(as: other.text)
    }

    /// Whether both have one origin.
    func hasOrigin(of other: URLText) -> Bool { origin.hasSameBytes(as: other.origin) }

    /// What a `Location` of a response from this URL leads to; nil for what is none.
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
