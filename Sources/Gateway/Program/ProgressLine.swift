// A progress line on the terminal for long commands.
//
// Invariant: nothing is written unless standard error is a terminal.

import Glibc
import SpoolgatePosix

final class ProgressLine {
    private static let interval = Duration.milliseconds(200)
    private let isShowing: Bool
    private var next = Deadline.after(ProgressLine.interval)
    private var isShown = false

    init(isShown: Bool = true) { isShowing = isShown && isatty(STDERR_FILENO) == 1 }

    /// Does not evaluate `text` less than an interval after the last update.
    func show(_ text: @autoclosure () -> String) {
        guard isShowing, next.hasPassed else { return }
        next = .after(Self.interval)
        write("\r\u{1b}[K\(text())")
        isShown = true
    }

    /// Removes the progress line, then prints `line`.
    func print(_ line: some StringProtocol) {
        end()
        Swift.print(line)
    }

    func end() {
        guard isShown else { return }
        write("\r\u{1b}[K")
        isShown = false
    }

    private func write(_ text: String) {
        let bytes = Array(text.utf8)
        // A lost progress line does no harm.
        _ = Glibc.write(STDERR_FILENO, bytes, bytes.count)
    }
}
