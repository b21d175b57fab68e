// Lines at the bottom of the terminal that are drawn over and over.
//
// The invariant: whatever the terminal's size becomes, the next drawing begins where the last one began.

import Glibc
import SpoolgatePosix

/// Some lines at the bottom of the terminal that standard error leads to.
///
/// Used by one thread.
final class TerminalLines: @unchecked Sendable {
    /// Columns that each line takes; empty: there is none.
    private var drawn: [Int] = []

    /// Puts lines in the place of those before, at most as many as there are rows.
    func draw(_ lines: (_ size: (columns: Int, rows: Int)) -> [String]) {
        // In the background the terminal is somebody else's.
        guard Terminal.errors.isInFront else { return }
        let size = size
        let lines = lines(size)
        let text = lines.joined(separator: "\u{1b}[K\r\n")
        Self.write("\(beginning(size.columns))\(text)\u{1b}[J")
        drawn = lines.map(\.terminalColumns)
    }

    /// Takes them away.
    func clear() {
        guard !drawn.isEmpty else { return }
        Self.write("\(beginning(size.columns))\u{1b}[J")
        drawn = []
    }

    /// Writes a line that stays.
    func say(_ sentence: String) {
        clear()
        Self.write(sentence + "\n")
    }

    /// Writes to standard error.
    static func write(_ text: String) {
        let bytes = Array(text.utf8)
        // It is only for looking at.
        _ = Glibc.write(STDERR_FILENO, bytes, bytes.count)
    }

    /// Asked for each time, so that a terminal may change its size at any time.
    private var size: (columns: Int, rows: Int) {
        Terminal.errors.size.map { ($0.columns, $0.rows) } ?? (80, 24)
    }

    /// To where the first line begins; a narrower terminal has broken some into more.
    private func beginning(_ columns: Int) -> String {
        let rows = drawn.map { max(1, ($0 + columns - 1) / columns) }
        let above = max(0, rows.reduce(0, +) - 1)
        return (above > 0 ? "\u{1b}[\(above)A" : "") + "\r"
    }
}
