// The terminal that an output of the process leads to, and how much room text takes on one.
//
// Invariant: what is no terminal has no size.

import CSpoolgateLinux
import Glibc

/// The terminal that an output leads to.
package struct Terminal: Sendable {
    /// Where standard output leads.
    package static let output = Terminal(number: STDOUT_FILENO)
    /// Where standard error leads.
    package static let errors = Terminal(number: STDERR_FILENO)
    private let number: Int32

    /// Columns and rows.
    package struct Size: Sendable, Equatable {
        /// Characters of ordinary width that a line has room for, at least 1.
        package var columns: Int
        /// Lines, at least 1.
        package var rows: Int
    }

    /// Whether it leads to a terminal.
    package var isThere: Bool { isatty(number) == 1 }

    /// Whether this process is in front there, and not in the background of a shell.
    package var isInFront: Bool { tcgetpgrp(number) == getpgrp() }

    /// Its size at this moment; nil where it is none, or does not say.
    package var size: Size? {
        var size = winsize()
        guard isThere, ioctl(number, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0,
            size.ws_row > 0
        else { return nil }
        return Size(columns: Int(size.ws_col), rows: Int(size.ws_row))
    }

    /// Has what was printed so far leave the process.
    package static func flush() { fflush(nil) }
}

extension String {
    /// How many columns of a terminal the text takes: none for what combines, two for what is wide.
    package var terminalColumns: Int {
        if utf8.allSatisfy({ (0x20..<0x7f).contains($0) }) { return utf8.count }
        return unicodeScalars.reduce(0) { $0 + Int(spoolgate_columns($1.value)) }
    }

    /// The text with spaces behind it, where it takes fewer columns.
    package func padded(toColumns columns: Int) -> String { self + gap(toColumns: columns) }

    /// The text with spaces before it, where it takes fewer columns.
    package func indented(toColumns columns: Int) -> String { gap(toColumns: columns) + self }

    private func gap(toColumns columns: Int) -> String {
        String(repeating: " ", count: max(0, columns - terminalColumns))
    }

    /// Cuts the text to a line's room.
    ///
    /// - Parameter columns: the room there is; below 1, nothing fits.
    /// - Returns: the text, or what fits of it with `…` at its end.
    package func cut(toColumns columns: Int) -> String {
        guard terminalColumns > columns else { return self }
        var text = ""
        var left = columns - 1
        guard left >= 0 else { return text }
        for character in self {
            left -= String(character).terminalColumns
            guard left >= 0 else { break }
            text.append(character)
        }
        return text + "\u{2026}"
    }
}
