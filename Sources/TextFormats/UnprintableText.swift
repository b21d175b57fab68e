// Which characters have no place in a line that a person reads, and how they are written instead.
//
// What clients and upstreams say ends in log lines, events and lists. Invariant: nothing that is
// written by way of this moves a cursor, turns the direction of text or begins another line.

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
