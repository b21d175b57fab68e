// Makes text from clients and upstreams safe to print on one line.
//
// Invariant: printable text moves no cursor, does not change the text direction and starts no new line.

extension Unicode.Scalar {
    /// Whether the character is a control character (C0, U+007F to U+009F), ends a line or changes the text direction.
    package var isUnprintable: Bool {
        switch value {
        case 0..<0x20, 0x7f..<0xa0, 0x61c, 0x200e, 0x200f, 0x2028...0x202e, 0x2066...0x2069: true
        default: false
        }
    }

    /// An unprintable character's escape sequence as in JSON, such as `\u202e`.
    package var escaped: String {
        let digits = String(value, radix: 16)
        return "\\u" + String(repeating: "0", count: max(0, 4 - digits.utf8.count)) + digits
    }
}

extension String {
    package var hasControlCharacters: Bool {
        unicodeScalars.contains { $0.properties.generalCategory == .control }
    }

    /// Whether the text is an absolute path that fits on one line.
    package var isAbsolutePath: Bool { hasPrefix("/") && !hasControlCharacters }

    /// The text with U+FFFD instead of each unprintable character.
    package var forTerminal: String {
        var text = UnicodeScalarView()
        for scalar in unicodeScalars { text.append(scalar.isUnprintable ? "\u{fffd}" : scalar) }
        return String(text)
    }
}

extension StringProtocol {
    /// Returns this request target for display to people and other programs.
    ///
    /// If `withQuery` is false, `?…` replaces the query.
    package func shownTarget(withQuery: Bool) -> String {
        guard !withQuery, let mark = utf8.firstIndex(of: UInt8(ascii: "?")) else {
            return String(self)
        }
        return "\(self[..<mark])?\u{2026}"
    }
}
