// Output that is redrawn on a terminal.
//
// The terminal's mode is not changed, so the terminal stays usable however the command ends. Invariant: a screen has no
// more lines than the terminal.

import SpoolgatePosix

final class Screen {
    /// The maximum number of lines above the last one, which is always shown.
    let rows: Int
    private let columns: Int
    private var lines: [String] = []

    private init(_ size: Terminal.Size?) {
        // A terminal of unknown size is treated as the smallest common one.
        rows = max(1, (size?.rows ?? 24) - 2)
        columns = size?.columns ?? 80
    }

    /// Adds a line, cut to the terminal's width; keeps only the first `rows` lines and the last one.
    func add(_ line: String) {
        if lines.count > rows { lines.removeLast() }
        lines.append(line.cut(toColumns: columns))
    }

    /// Repeatedly draws the lines that `body` adds, until a signal ends the process or the terminal disappears.
    ///
    /// `pause` is the time between drawing a screen and collecting the next. An error of `body` ends the loop.
    static func redraw(
        every pause: Duration,
        _ body: (Screen) throws(CommandFailure) -> Void
    ) throws(CommandFailure) {
        Signals.unblock()
        print("\u{1b}[2J", terminator: "")
        while Terminal.output.isThere {
            let screen = Screen(Terminal.output.size)
            try body(screen)
            screen.draw()
            Thread.pause(pause)
        }
    }

    private func draw() {
        // Lines overwrite the previous screen; the rest is cleared.
        let text = lines.map { $0 + "\u{1b}[K" }.joined(separator: "\n")
        print("\u{1b}[H\(text)\u{1b}[J", terminator: "")
        Terminal.flush()
    }
}
