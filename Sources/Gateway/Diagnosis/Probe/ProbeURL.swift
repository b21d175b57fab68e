// The URL that is probed, taken apart far enough to compare it with a Location.

import SpoolgateTextFormats

/// An `http` or `https` URL without user, fragment and spaces.
package struct ProbeURL: Sendable, Equatable {
    /// Whether it is `https`.
    package let isSecure: Bool
    /// Host and port as they were written.
    package let authority: String
    /// Path and query; begins with a slash.
    package let target: String

    /// The host in lower case, without a port and without brackets.
    package let host: String
    /// The port.
    package let port: UInt16

    /// Reads a URL; nil for what is none, or no `http` or `https` one.
    package init?(_ text: String) {
        guard let url = AbsoluteURL(text) else { return nil }
        isSecure = url.origin[0] == "https"
        authority = String(text.dropFirst(isSecure ? 8 : 7).prefix { !"/?".contains($0) })
        guard !authority.contains("@") else { return nil }
        target = url.path
        host = url.origin[1].filter { !"[]".contains($0) }
        port = UInt16(url.origin[2]) ?? (isSecure ? 443 : 80)
    }

    /// The whole URL.
    package var text: String { origin + target }

    /// Scheme, host and port as they were written.
    package var origin: String { "\(isSecure ? "https" : "http")://\(authority)" }

    /// The path, without its query.
    package var path: String { String(target.prefix { $0 != "?" }) }

    /// Whether both are the same for a browser: scheme, host and port.
    package func hasSameOrigin(as other: ProbeURL) -> Bool {
        isSecure == other.isSecure && host == other.host && port == other.port
    }

    /// The URL of another path on the same origin.
    package func url(of target: String) -> String { origin + target }
}
