// The table of `list`: rows by their last activity, while there are not too many to be kept.
//
// Invariant: no row is longer than a terminal is wide, and none makes the others wider than their limits.

import Glibc
import HTTPTypes
import Posix
import Spool
import TextFormats
import UploadProtocol

/// A table of uploads that is being printed.
final class UploadTable {
    /// Most rows that are sorted; of more, each is printed as it is found.
    static let sortedLimit = 10_000
    /// Most characters of a cell: a client chooses how long its target is.
    private static let cellLimit = 200

    private struct Row {
        var key: (WallTime, String)
        var cells: [String]
    }

    private static let head = [
        "UPLOAD", "STATE", "OFFSET", "LENGTH", "IDLE", "NEXT", "TARGET", "REASON",
    ]
    /// Most characters that a column takes because of its longest cell.
    private static let widest = [27, 13, 9, 9, 4, 6, 60, 0]

    private let now: WallTime
    private let showsQueries: Bool
    private let lineLimit = UploadTable.terminalWidth() ?? .max
    private let progress = ProgressLine()
    private var rows: [Row] = []
    private var count = 0
    private var isStreaming: Bool { count > Self.sortedLimit }

    /// Begins a table of how things are at `now`, with or without the queries of targets.
    init(now: WallTime, showsQueries: Bool) {
        self.now = now
        self.showsQueries = showsQueries
    }

    /// Adds an upload.
    func add(_ summary: UploadSummary) {
        count += 1
        let row = row(summary)
        if isStreaming {
            if !rows.isEmpty { beginStream() }
            return print(row.cells, Self.widest)
        }
        rows.append(row)
        progress.show("\(count) uploads read")
    }

    /// Prints what is left; `directory` is the spool's, for where there is none.
    func end(of directory: String) {
        guard count > 0 else { return progress.print("No uploads in \(directory).") }
        guard !isStreaming else { return }
        rows.sort { $0.key < $1.key }
        let widths = Self.head.indices.map { column in
            let longest = rows.reduce(Self.head[column].count) { max($0, $1.cells[column].count) }
            return min(longest, max(Self.widest[column], Self.head[column].count))
        }
        print(Self.head, widths)
        for row in rows { print(row.cells, widths) }
    }

    private func beginStream() {
        progress.end()
        // Not among the rows, where a program would take it for one.
        try? StandardError().write(
            line:
                "spoolgate: more than \(Self.sortedLimit) uploads: in the order of the spool, not "
                + "of their last activity",
            .notice
        )
        print(Self.head, Self.widest)
        for row in rows { print(row.cells, Self.widest) }
        rows = []
    }

    private func print(_ cells: [String], _ widths: [Int]) {
        var line = ""
        for (cell, width) in zip(cells, widths) {
            if !line.isEmpty { line += "  " }
            line += cell
            line += String(repeating: " ", count: max(0, width - cell.count))
        }
        let text = line.prefix(lineLimit)
        let end = text.lastIndex { $0 != " " }.map(text.index(after:)) ?? text.startIndex
        progress.print(text[..<end])
    }

    // MARK: Cells

    private func row(_ summary: UploadSummary) -> Row {
        let target = summary.creation.map { [showsQueries] creation in
            "\(creation.head.method.rawValue) "
                + creation.head.target.shownTarget(withQuery: showsQueries)
        }
        return Row(
            key: (summary.lastActivity, summary.id.description),
            cells: [
                summary.id.description + (summary.isInUse ? "*" : ""),
                summary.stateWord + (summary.status.map { " \($0)" } ?? ""),
                ByteSize.rounded(summary.offset),
                summary.length.map { ByteSize.rounded($0) } ?? "?",
                idleText(now.seconds - summary.lastActivity.seconds),
                nextText(summary),
                cut(target ?? "-"),
                cut(summary.reason ?? ""),
            ]
        )
    }

    private func cut(_ text: String) -> String {
        guard text.utf8.count > Self.cellLimit else { return text.forTerminal }
        let kept = text.unicodeScalars.prefix(Self.cellLimit - 1)
        return String(String.UnicodeScalarView(kept)).forTerminal + "…"
    }

    /// When the queue tries an upload next, `5m`; else who has to do something.
    private func nextText(_ summary: UploadSummary) -> String {
        guard summary.queue == .deferred, let next = summary.nextAttempt else {
            return summary.awaited ?? "-"
        }
        return next <= now ? "now" : idleText(next.seconds - now.seconds)
    }

    /// Seconds as the largest whole unit: `3h`.
    private func idleText(_ seconds: Int64) -> String {
        switch seconds {
        case ..<60: "\(max(0, seconds))s"
        case ..<3_600: "\(seconds / 60)m"
        case ..<86_400: "\(seconds / 3_600)h"
        default: "\(seconds / 86_400)d"
        }
    }

    /// How many columns the terminal has that standard output is; nil where it is none.
    private static func terminalWidth() -> Int? {
        var size = winsize()
        guard isatty(STDOUT_FILENO) == 1,
            ioctl(STDOUT_FILENO, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0
        else { return nil }
        return Int(size.ws_col)
    }
}
