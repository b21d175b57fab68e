// The URL that is probed, taken apart far enough to compare it with a Location.

import TextFormats

/// An `http` or `https` URL without user, fragment and spaces.
package struct ProbeURL: Sendable, Equatable {
    /// Whether it is `https`.
    package let isSecure: Bool
    /// Host and port as they were written.
    package let authority: String
    /// Path and query; begins with a slash.
    package let target: String

    /// Reads a URL; nil for what is none, or no `http` or `https` one.
    package init?(_ text: String) {
        guard let mark = text.firstRange(of: "://") else { return nil }
        switch text[..<mark.lowerBound].lowercased() {
        case "http": isSecure = false
        case "https": isSecure = true
        default: return nil
        }
        guard text.utf8.allSatisfy({ (0x21...0x7e).contains($0) }), !text.contains("#") else {
            return nil
        }
        let rest = text[mark.upperBound...]
        let end = rest.firstIndex { $0 == "/" || $0 == "?" } ?? rest.endIndex
        authority = String(rest[..<end])
        guard !authority.isEmpty, !authority.contains("@") else { return nil }
        target = rest[end...].hasPrefix("/") ? String(rest[end...]) : "/" + rest[end...]
    }

    /// The whole URL.
    package var text: String { origin + target }

    /// Scheme, host and port as they were written.
    package var origin: String { "\(isSecure ? "https" : "http")://\(authority)" }

    /// The path, without its query.
    package var path: String { String(target.prefix { $0 != "?" }) }

    /// The host in lower case, without a port and without brackets.
    package var host: String {
        let name = authority.lowercased()
        if name.hasPrefix("["), let end = name.firstIndex(of: "]") {
            return String(name[name.index(after: name.startIndex)..<end])
        }
        return String(name.prefix { $0 != ":" })
    }

    /// The port.
    package var port: UInt16 {
        let afterAddress = authority.lastIndex(of: "]") ?? authority.startIndex
        guard let colon = authority[afterAddress...].lastIndex(of: ":") else {
            return isSecure ? 443 : 80
        }
        return UInt16(authority[authority.index(after: colon)...]) ?? (isSecure ? 443 : 80)
    }

    /// Whether both are the same for a browser: scheme, host and port.
    package func hasSameOrigin(as other: ProbeURL) -> Bool {
        isSecure == other.isSecure && host == other.host && port == other.port
    }

    /// The URL of another path on the same origin.
    package func url(of target: String) -> String { origin + target }
}
