// A line on the terminal that says how far a long command has come.
//
// Invariant: where standard error is no terminal, nothing of it is written.

import Glibc
import SpoolgatePosix

/// The line, written over and over in its place.
final class ProgressLine {
    private static let interval = Duration.milliseconds(200)
    private let isShowing: Bool
    private var next = Deadline.after(ProgressLine.interval)
    private var isShown = false

    /// Begins with none; `isShown`: false where nothing of it is to be seen.
    init(isShown: Bool = true) { isShowing = isShown && isatty(STDERR_FILENO) == 1 }

    /// Shows a text instead of the one before, if that was shown for long enough.
    func show(_ text: @autoclosure () -> String) {
        guard isShowing, next.hasPassed else { return }
        next = .after(Self.interval)
        write("\r\u{1b}[K\(text())")
        isShown = true
    }

    /// Prints a line on standard output, where the progress is not in its way.
    func print(_ line: some StringProtocol) {
        end()
        Swift.print(line)
    }

    /// Takes the text away.
    func end() {
        guard isShown else { return }
        write("\r\u{1b}[K")
        isShown = false
    }

    private func write(_ text: String) {
        let bytes = Array(text.utf8)
        // It is only for looking at.
        _ = Glibc.write(STDERR_FILENO, bytes, bytes.count)
    }
}
