// Lines at the bottom of the terminal that are redrawn.
//
// The invariant: each drawing begins at the start of the last one, even if the terminal's size has changed.

import Glibc
import SpoolgatePosix

/// Lines on standard error; must be used by only one thread.
final class TerminalLines: @unchecked Sendable {
    /// The width of each drawn line in columns.
    private var drawn: [Int] = []

    /// Replaces the drawn lines; `lines` returns at most `rows` lines.
    func draw(_ lines: (_ size: (columns: Int, rows: Int)) -> [String]) {
        // A background process must not write to the terminal.
        guard Terminal.errors.isInForeground else { return }
        let size = size
        let lines = lines(size)
        let text = lines.joined(separator: "\u{1b}[K\r\n")
        Self.write("\(beginning(size.columns))\(text)\u{1b}[J")
        drawn = lines.map(\.terminalColumns)
    }

    func clear() {
        guard !drawn.isEmpty else { return }
        Self.write("\(beginning(size.columns))\u{1b}[J")
        drawn = []
    }

    /// Removes the drawn lines, and writes a line that stays.
    func say(_ sentence: String) {
        clear()
        Self.write(sentence + "\n")
    }

    static func write(_ text: String) {
        let bytes = Array(text.utf8)
        // A failure to show progress is ignored.
        _ = Glibc.write(STDERR_FILENO, bytes, bytes.count)
    }

    /// The size is read each time, because it may change.
    private var size: (columns: Int, rows: Int) {
        Terminal.errors.size.map { ($0.columns, $0.rows) } ?? (80, 24)
    }

    /// Returns the escape sequence that moves to the first drawn line, even if a narrower terminal has wrapped lines.
    private func beginning(_ columns: Int) -> String {
        let rows = drawn.map { max(1, ($0 + columns - 1) / columns) }
        let above = max(0, rows.reduce(0, +) - 1)
        return (above > 0 ? "\u{1b}[\(above)A" : "") + "\r"
    }
}
