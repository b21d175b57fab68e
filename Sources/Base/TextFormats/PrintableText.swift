// Text of others in a line that a person reads, and how characters that have no place there are written
// instead.
//
// What clients and upstreams say ends in log lines, events and lists. Invariant: nothing that is written by
// way of this moves a cursor, turns the direction of text or begins another line.

extension Unicode.Scalar {
    /// Whether it is a control character of either set (C0, U+007F to U+009F), ends a line or turns
    /// the direction of text.
    package var isUnprintable: Bool {
        switch value {
        case 0..<0x20, 0x7f..<0xa0, 0x61c, 0x200e, 0x200f, 0x2028...0x202e, 0x2066...0x2069: true
        default: false
        }
    }

    /// `\u202e`, as JSON has it; for those that are unprintable.
    package var escaped: String {
        let digits = String(value, radix: 16)
        return "\\u" + String(repeating: "0", count: max(0, 4 - digits.utf8.count)) + digits
    }
}

extension String {
    /// Whether a control character of either set is in it (U+0000 to U+001F, U+007F to U+009F).
    package var hasControlCharacters: Bool {
        unicodeScalars.contains { $0.properties.generalCategory == .control }
    }

    /// Whether it is an absolute path that can be told in one line.
    package var isAbsolutePath: Bool { hasPrefix("/") && !hasControlCharacters }

    /// The text with U+FFFD in place of every character that is unprintable, for a terminal.
    package var forTerminal: String {
        var text = UnicodeScalarView()
        for scalar in unicodeScalars { text.append(scalar.isUnprintable ? "\u{fffd}" : scalar) }
        return String(text)
    }
}

extension StringProtocol {
    /// This request target for people and other programs.
    ///
    /// - Parameter withQuery: false: `?…` stands for a query, if there is one.
    /// - Returns: the path as it is, and what is shown of the query.
    package func shownTarget(withQuery: Bool) -> String {
        guard !withQuery, let mark = utf8.firstIndex(of: UInt8(ascii: "?")) else {
            return String(self)
        }
        return "\(self[..<mark])?\u{2026}"
    }
}
