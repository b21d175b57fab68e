// Text of a client's for a person's terminal.
//
// Invariant: nothing that is printed by way of this moves a cursor, turns the direction of text or begins
// another line.

extension String {
    /// The text with U+FFFD in place of every control character, those of the second set (U+0080 to
    /// U+009F) and of direction among them.
    var forTerminal: String {
        var text = UnicodeScalarView()
        for scalar in unicodeScalars {
            switch scalar.value {
            case 0..<0x20, 0x7f..<0xa0, 0x2028...0x202e, 0x2066...0x2069: text.append("\u{fffd}")
            default: text.append(scalar)
            }
        }
        return String(text)
    }
}
