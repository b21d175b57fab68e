// Redirects of the same request to another place, and the decision to follow them.
//
// The gateway has the whole content, but a client that sent it in parts has only the last one. The gateway
// therefore follows redirects within the upstream. Pure. Invariant: no request is sent to a host other than the
// upstream's.

package import HTTPTypes
import SpoolgateTextFormats

/// Redirects by an upstream (RFC 9110 §15.4), and their targets.
package enum Redirection {
    /// Whether a response requires the client to send the same request, with its content, to another place.
    ///
    /// Status 303 never does. After 301 and 302, clients change a POST to GET, so the response to a POST is the
    /// application's own (RFC 9110 §15.4.2, §15.4.3).
    ///
    /// - Parameters:
    ///   - status: the status of the response.
    ///   - method: the method of the request.
    /// - Returns: true if the method and the content must be the same.
    package static func repeatsRequest(status: Int, method: HTTPRequest.Method) -> Bool {
        switch status {
        case 307, 308: true
        case 301, 302: method == .put || method == .patch
        default: false
        }
    }

    /// The request target to which a redirect within the upstream leads.
    ///
    /// - Parameters:
    ///   - reference: the value of `Location`, a URI reference (RFC 3986 §4.1).
    ///   - target: the target of the redirected request, without the upstream's base path.
    ///   - location: the address of the upstream.
    ///   - host: the `Host` that the upstream received. An application may build URLs from it, with any scheme; such
    ///     URLs name the upstream, and their path is the one at the web server.
    /// - Returns: the target without the base path; nil if the redirect leads outside the upstream, or is not a URI.
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
            // The host is the web server's, and so is the path, which has no base path.
            let isTold = AbsoluteURL("\(url.origin[0])://\(host ?? "")")?.origin == url.origin
            return isTold ? withoutDots(url.path) : nil
        }
        let base = location.basePath + target.prefix { $0 != "?" }
        if rest.isEmpty { return target }
        if rest.hasPrefix("?") { return relative(base + rest, to: location.basePath) }
        if rest.hasPrefix("/") { return relative(String(rest), to: location.basePath) }
        // The first segment of a relative path contains no colon (RFC 3986 §4.2), so this is another scheme.
        guard !rest.prefix(while: { $0 != "/" && $0 != "?" }).contains(":") else { return nil }
        let directory = base.lastIndex(of: "/").map { base[...$0] } ?? "/"
        return relative("\(directory)\(rest)", to: location.basePath)
    }

    /// The path without the base path; nil if the path is not below the base path.
    private static func relative(_ path: String, to base: String) -> String? {
        let path = withoutDots(path)
        guard path.hasPrefix(base) else { return nil }
        let rest = path.dropFirst(base.count)
        if rest.isEmpty || rest.hasPrefix("?") { return "/" + rest }
        return rest.hasPrefix("/") ? String(rest) : nil
    }

    /// The path and its query after dot segments are removed (RFC 3986 §5.2.4).
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
