// A URL, split into parts to compare with those of a `Location`.

import SpoolgateTextFormats

/// An `http` or `https` URL without user, fragment and spaces.
package struct ProbeURL: Sendable, Equatable {
    package let isSecure: Bool
    /// The host and port as written.
    package let authority: String
    /// The path and query; begins with a slash.
    package let target: String

    /// The host in lower case, without port and brackets.
    package let host: String
    package let port: UInt16

    /// Parses a URL.
    ///
    /// Returns nil if the URL is invalid or its scheme is neither `http` nor `https`.
    package init?(_ text: String) {
        guard let url = AbsoluteURL(text) else { return nil }
        isSecure = url.origin[0] == "https"
        authority = String(text.dropFirst(isSecure ? 8 : 7).prefix { !"/?".contains($0) })
        guard !authority.contains("@") else { return nil }
        target = url.path
        host = url.origin[1].filter { !"[]".contains($0) }
        port = UInt16(url.origin[2]) ?? (isSecure ? 443 : 80)
    }

    package var text: String { origin + target }

    /// The scheme, and the host and port as written.
    package var origin: String { "\(isSecure ? "https" : "http")://\(authority)" }

    package var path: String { String(target.prefix { $0 != "?" }) }

    /// Returns whether scheme, host and port are those of `other`, as browsers compare origins.
    package func hasSameOrigin(as other: ProbeURL) -> Bool {
        isSecure == other.isSecure && host == other.host && port == other.port
    }

    /// Returns the URL of another path on the same origin.
    package func url(of target: String) -> String { origin + target }
}
