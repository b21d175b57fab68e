// What a command shows again and again on a terminal, one screen of lines in the place of the one before.
//
// It changes no mode of the terminal, so that whatever ends the command leaves it in order. Invariant: a
// screen has no more lines than the terminal.

import SpoolgatePosix

/// One screen while it is being put together.
final class Screen {
    /// Most lines that are shown of what is added, but for the last one.
    let rows: Int
    private let columns: Int
    private var lines: [String] = []

    private init(_ size: Terminal.Size?) {
        // What does not say its size is taken for the smallest there was.
        rows = max(1, (size?.rows ?? 24) - 2)
        columns = size?.columns ?? 80
    }

    /// Adds a line below the others, cut to the terminal's width.
    ///
    /// Of too many, the first ones and the last one are shown.
    func add(_ line: String) {
        if lines.count > rows { lines.removeLast() }
        lines.append(line.cut(toColumns: columns))
    }

    /// Draws what `body` adds to a screen, again and again, until a signal ends the process, or the
    /// terminal is gone.
    ///
    /// - Parameters:
    ///   - pause: the time between two looks.
    ///   - body: adds the lines.
    /// - Throws: what `body` throws, which ends it.
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
        // Each line takes the place of the one that was there; what is left below goes.
        let text = lines.map { $0 + "\u{1b}[K" }.joined(separator: "\n")
        print("\u{1b}[H\(text)\u{1b}[J", terminator: "")
        Terminal.flush()
    }
}
