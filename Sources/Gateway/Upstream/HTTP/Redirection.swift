// Redirects of the same request to another place.
//
// A client that sent the content in parts has only the last part, so the gateway, which has all content, follows
// redirects within the upstream. Invariant: no request is sent to a host other than the upstream's.

package import HTTPTypes
import SpoolgateTextFormats

/// Redirects by an upstream (RFC 9110 §15.4), and their targets.
package enum Redirection {
    /// Whether a response requires the client to send the same request, with its content, to another place.
    ///
    /// Status 303 never does. After 301 and 302, clients change a POST to GET, so the response to a POST is the
    /// application's own (RFC 9110 §15.4.2, §15.4.3).
    package static func repeatsRequest(status: Int, method: HTTPRequest.Method) -> Bool {
        switch status {
        case 307, 308: true
        case 301, 302: method == .put || method == .patch
        default: false
        }
    }

    /// The target of a redirect within the upstream; nil if `reference` leads outside the upstream or is not a URI.
    ///
    /// `reference` is the value of `Location` (RFC 3986 §4.1). `target` and the result are without the base path.
    /// `host` is the `Host` that the upstream received. An application may build URLs from it with any scheme and the
    /// path at the web server.
    static func target(
        of reference: String,
        from target: String,
        at location: UpstreamLocation,
        toldHost host: String?
    ) -> String? {
        let rest = reference.prefix { $0 != "#" }
        guard rest.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7f }) else { return nil }
        let absolute = rest.hasPrefix("//") ? (location.isSecure ? "https:" : "http:") + rest : rest
        if let url = AbsoluteURL(absolute) {
            if url.origin == AbsoluteURL(location.url)?.origin {
                return relative(url.path, to: location.basePath)
            }
            // The path is the web server's, without the base path.
            let isTold = AbsoluteURL("\(url.origin[0])://\(host ?? "")")?.origin == url.origin
            return isTold ? withoutDots(url.path) : nil
        }
        let base = location.basePath + target.prefix { $0 != "?" }
        if rest.isEmpty { return target }
        if rest.hasPrefix("?") { return relative(base + rest, to: location.basePath) }
        if rest.hasPrefix("/") { return relative(String(rest), to: location.basePath) }
        // The first segment of a relative path contains no colon (RFC 3986 §4.2), so `rest` begins with another scheme.
        guard !rest.prefix(while: { $0 != "/" && $0 != "?" }).contains(":") else { return nil }
        let directory = base.lastIndex(of: "/").map { base[...$0] } ?? "/"
        return relative("\(directory)\(rest)", to: location.basePath)
    }

    /// The path without `base`; nil if the path is not below `base`.
    private static func relative(_ path: String, to base: String) -> String? {
        let path = withoutDots(path)
        guard path.hasPrefix(base) else { return nil }
        let rest = path.dropFirst(base.count)
        if rest.isEmpty || rest.hasPrefix("?") { return "/" + rest }
        return rest.hasPrefix("/") ? String(rest) : nil
    }

    /// Removes dot segments from the path and keeps the query (RFC 3986 §5.2.4).
    private static func withoutDots(_ text: String) -> String {
        let path = text.prefix { $0 != "?" }
        var kept: [Substring] = []
        let segments = path.split(separator: "/", omittingEmptySubsequences: false).dropFirst()
        for segment in segments {
            switch segment {
            case "..": _ = kept.popLast()
            case ".": break
            default: kept.append(segment)
            }
        }
        if let last = segments.last, last == "." || last == ".." { kept.append("") }
        return "/" + kept.joined(separator: "/") + text[path.endIndex...]
    }
}
