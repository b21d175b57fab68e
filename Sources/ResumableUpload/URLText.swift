// URLs as texts: which origin one has, and what a `Location` means beside another (RFC 3986, §5.2; RFC 6454).
//
// Pure. The invariant: a URL here is absolute, of HTTP, and has no user, no fragment and no control characters.

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
        let scheme = text[..<separator.lowerBound].lowercased()
        guard scheme == "http" || scheme == "https" else { return nil }
        let rest = text[separator.upperBound...]
        let end = rest.firstIndex { "/?#".contains($0) } ?? rest.endIndex
        var authority = rest[..<end].lowercased()
        guard !authority.isEmpty, !authority.contains("@") else { return nil }
        let ownPort = scheme == "http" ? ":80" : ":443"
        if authority.hasSuffix(ownPort) { authority.removeLast(ownPort.count) }
        origin = "\(scheme)://\(authority)"
        let fragment = text.firstIndex(of: "#") ?? text.endIndex
        let whole = String(text[..<fragment])
        let length = text.utf8.distance(from: text.startIndex, to: end)
        authorityEnd = whole.utf8.index(whole.startIndex, offsetBy: length)
        self.text = whole
    }

    /// What a `Location` of a response from this URL leads to; nil for what is none.
    func resolved(_ reference: String) -> URLText? {
        if reference.contains("://") { return URLText(reference) }
        guard !reference.isEmpty else { return nil }
        if reference.hasPrefix("//") {
            return URLText((isSecure ? "https:" : "http:") + reference)
        }
        let base = text[..<authorityEnd]
        if reference.hasPrefix("/") { return URLText(base + reference) }
        let path = text[authorityEnd...].prefix { $0 != "?" }
        if reference.hasPrefix("?") { return URLText(base + path + reference) }
        let folder = path.lastIndex(of: "/").map { path[...$0] } ?? "/"
        return URLText(base + folder + reference)
    }
}
