// Terminals and the width of text.

import CSpoolgateLinux
import Glibc

/// An output of the process and the terminal that it may be connected to.
package struct Terminal: Sendable {
    package static let output = Terminal(number: STDOUT_FILENO)
    package static let errors = Terminal(number: STDERR_FILENO)
    private let number: Int32

    /// The size of a terminal.
    package struct Size: Sendable, Equatable {
        /// The number of characters of ordinary width in a line, at least 1.
        package var columns: Int
        package var rows: Int
    }

    package var isThere: Bool { isatty(number) == 1 }

    /// Whether this process is in the foreground process group.
    package var isInForeground: Bool { tcgetpgrp(number) == getpgrp() }

    /// The terminal's size, or nil if the output is not a terminal or the size is unknown.
    package var size: Size? {
        var size = winsize()
        guard isThere, ioctl(number, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0,
            size.ws_row > 0
        else { return nil }
        return Size(columns: Int(size.ws_col), rows: Int(size.ws_row))
    }

    /// Flushes the process's output.
    package static func flush() { fflush(nil) }
}

extension String {
    /// The text's width in columns.
    ///
    /// A combining character takes none, and a wide character two.
    package var terminalColumns: Int {
        if utf8.allSatisfy({ (0x20..<0x7f).contains($0) }) { return utf8.count }
        return unicodeScalars.reduce(0) { $0 + Int(spoolgate_columns($1.value)) }
    }

    /// Pads the text at its end to at least this many columns.
    package func padded(toColumns columns: Int) -> String { self + gap(toColumns: columns) }

    /// Pads the text at its start to at least this many columns.
    package func indented(toColumns columns: Int) -> String { gap(toColumns: columns) + self }

    private func gap(toColumns columns: Int) -> String {
        String(repeating: " ", count: max(0, columns - terminalColumns))
    }

    /// Truncates the text to the given number of columns.
    ///
    /// - Parameter columns: the available columns. If less than 1, the result is empty.
    /// - Returns: the text if the text fits, otherwise the beginning of the text and `…`.
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
