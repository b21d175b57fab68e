// The upstream's redirects: what they mean, and their targets.
//
// A client that sent the content in parts has only the last part, so the gateway, which has all content, follows
// redirects within the upstream. A login page and another host are no answers of the application. Invariant: no request
// is sent to a host other than the upstream's, and none to a login page.

package import HTTPTypes
import SpoolgateTextFormats
package import SpoolgateUploadProtocol

/// A place to which upstreams redirect requests, as in the setting `redirects`.
package struct RedirectPlace: Sendable, Equatable {
    /// The host in lower case, without a port; nil for every host.
    let host: String?
    /// The path, which includes all paths below it; nil for every path.
    let path: String?

    /// Parses `host`, `/path` or `host/path`; returns nil if the text has another form.
    package init?(_ text: String) {
        let isValid = text.utf8.allSatisfy {
            $0 > 0x20 && $0 < 0x7f && !"?#\\@\"".utf8.contains($0)
        }
        guard isValid, !text.isEmpty, !text.contains("://"), !text.hasPrefix("//") else {
            return nil
        }
        let host = text.prefix { $0 != "/" }
        let path = text[host.endIndex...]
        guard host.utf8.hostAndPort.port == nil else { return nil }
        self.host = host.isEmpty ? nil : host.lowercased()
        self.path = path.isEmpty ? nil : String(path)
    }

    /// The place as written in the settings.
    package var text: String { (host ?? "") + (path ?? "") }

    /// Whether the place includes a path on a host; `host` is nil if the redirect names none.
    func includes(host: String?, path: String) -> Bool {
        if let own = self.host, own != host { return false }
        guard let own = self.path else { return true }
        let stem = own.hasSuffix("/") ? String(own.dropLast()) : own
        return path == stem || path.hasPrefix(stem + "/")
    }
}

/// The places whose meaning the operator has decided.
package struct RedirectRules: Sendable, Equatable {
    /// The places to which the application redirects after it has accepted an upload.
    package var success: [RedirectPlace] = []
    /// The login pages; they precede `success`.
    package var login: [RedirectPlace] = []

    /// Creates rules without places.
    package init() {}
}

/// A redirect by an upstream (RFC 9110 §15.4).
package struct Redirection: Sendable, Equatable {
    /// What a redirect says about the request.
    package enum Kind: Sendable, Equatable {
        /// The application has processed the request, or names its own other place for it.
        case response
        /// The application wants other credentials.
        case login
        /// The redirect leaves the application's hosts, so that another party may have sent it.
        case elsewhere
    }

    package let kind: Kind
    /// Whether the operator's rules name the place.
    package let isListed: Bool
    /// The host, if the redirect names one, and the path, for people; nil if `Location` is missing or invalid.
    package let place: String?

    /// Reads a redirect; returns nil for every other response.
    ///
    /// Hosts are compared, not schemes and ports, because applications build URLs from what proxies report.
    ///
    /// - Parameters:
    ///   - head: the response.
    ///   - target: the request target.
    ///   - hosts: values of `Host` and authorities of URLs that name the application; read only for an unlisted host.
    ///   - rules: the operator's rules.
    package init?(
        _ head: ResponseHead,
        from target: String,
        hosts: @autoclosure () -> [String],
        _ rules: RedirectRules
    ) {
        guard [301, 302, 303, 307, 308].contains(head.status.code) else { return nil }
        guard let (host, path) = Self.resolve(head.fields[.location] ?? "", from: target) else {
            (kind, isListed, place) = (.elsewhere, false, nil)
            return
        }
        place = (host ?? "") + path
        let isIncluded = { (places: [RedirectPlace]) in
            places.contains { $0.includes(host: host, path: path) }
        }
        if isIncluded(rules.login) {
            (kind, isListed) = (.login, true)
        } else if isIncluded(rules.success) {
            (kind, isListed) = (.response, true)
        } else {
            let isOwn = host.map { host in hosts().contains { Self.host(of: $0) == host } } ?? true
            (kind, isListed) = (isOwn ? .response : .elsewhere, false)
        }
    }

    private static func host(of authority: String) -> String {
        String(authority.utf8.hostAndPort.host)?.lowercased() ?? ""
    }

    /// The host, nil if `reference` names none, and the path without the query; nil if `reference` is no http URI.
    private static func resolve(_ reference: String, from target: String) -> (String?, String)? {
        let rest = reference.prefix { $0 != "#" }
        guard !rest.isEmpty, rest.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7f && $0 != 0x5c }) else {
            return nil
        }
        func path(_ text: some StringProtocol) -> String {
            withoutDots(String(text.prefix { $0 != "?" }))
        }
        if let url = AbsoluteURL(rest.hasPrefix("//") ? "https:" + rest : rest) {
            return (url.origin[1], path(url.path))
        }
        let base = target.prefix { $0 != "?" }
        if rest.hasPrefix("?") { return (nil, path(base)) }
        if rest.hasPrefix("/") { return rest.hasPrefix("//") ? nil : (nil, path(rest)) }
        // The first segment of a relative path contains no colon (RFC 3986 §4.2), so `rest` begins with another scheme.
        guard !rest.prefix(while: { $0 != "/" && $0 != "?" }).contains(":") else { return nil }
        return (nil, path(base[..<(base.lastIndex(of: "/") ?? base.startIndex)] + "/" + rest))
    }

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
        statedHost host: String?
    ) -> String? {
        let rest = reference.prefix { $0 != "#" }
        guard rest.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7f }) else { return nil }
        let absolute = rest.hasPrefix("//") ? (location.isSecure ? "https:" : "http:") + rest : rest
        if let url = AbsoluteURL(absolute) {
            if url.origin == AbsoluteURL(location.url)?.origin {
                return relative(url.path, to: location.basePath)
            }
            // The path is the web server's, without the base path.
            let isReported = AbsoluteURL("\(url.origin[0])://\(host ?? "")")?.origin == url.origin
            return isReported ? withoutDots(url.path) : nil
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
