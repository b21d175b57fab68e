// Text of a client's for a person's terminal.
//
// Invariant: nothing that is printed by way of this moves a cursor, turns the direction of text or begins
// another line.

import TextFormats
import UploadProtocol

extension String {
    /// The text with U+FFFD in place of every character that is unprintable.
    var forTerminal: String {
        var text = UnicodeScalarView()
        for scalar in unicodeScalars { text.append(scalar.isUnprintable ? "\u{fffd}" : scalar) }
        return String(text)
    }
}
