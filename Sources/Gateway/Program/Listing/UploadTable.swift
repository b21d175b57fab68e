// The table of `list`: sorted by last activity if short, otherwise unsorted, or the first rows in a requested order.

import HTTPTypes
import SpoolgatePosix
import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol

final class UploadTable {
    /// The maximum number of rows that are sorted; a longer table is printed unsorted.
    static let sortedLimit = 10_000
    /// The maximum length of a cell, because clients choose the length of their targets.
    private static let cellLimit = 200

    struct Style {
        /// The requested order; nil sorts by last activity, but only up to `sortedLimit` rows.
        var order: UploadOrder.Kind?
        var showsDisk = false
        /// Whether to show the queries of targets, which may contain tokens.
        var showsQueries = false
        /// The terminal's width in columns; nil for other output.
        var width: Int?
        /// The maximum number of rows in a requested order; further uploads are only counted.
        var limit = UploadTable.sortedLimit
    }

    private let style: Style
    private let now: WallTime
    private let emit: (String) -> Void
    private let step: (Int) -> Void
    private var rows: TopN<UploadOrder, TableRow>
    private var stream: TableLayout?
    private var count = 0
    private var diskUsage: Int64 = 0
    private var states: [String: Int] = [:]

    /// Begins a table, with ages calculated from `now`.
    ///
    /// `step` is called with the number of uploads read so far after each upload that is not printed at once; `emit` is
    /// called with each line, in order.
    init(
        _ style: Style,
        now: WallTime,
        step: @escaping (Int) -> Void,
        emit: @escaping (String) -> Void
    ) {
        self.style = style
        self.now = now
        self.step = step
        self.emit = emit
        // Further rows are printed unsorted.
        rows = TopN(limit: style.limit + (style.order == nil ? 1 : 0))
    }

    /// Adds a row, and prints it at once if the table is too long to sort.
    func add(_ summary: UploadSummary) {
        count += 1
        diskUsage += summary.diskUsage
        states[summary.stateWord, default: 0] += 1
        if let stream { return stream.lines(of: row(summary)).forEach(emit) }
        rows.add(UploadOrder(summary, by: style.order ?? .age), row(summary))
        step(count)
        if style.order == nil, count > style.limit { beginStream() }
    }

    /// Emits the remaining rows and the totals; returns the number of uploads, including those beyond the limit.
    func end() -> Int {
        guard count > 0 else { return 0 }
        if stream == nil {
            let sorted = rows.sorted().map(\.element)
            let layout = TableLayout(of: sorted, style)
            layout.head.forEach(emit)
            for row in sorted { layout.lines(of: row).forEach(emit) }
        }
        emit(totals)
        return count
    }

    private func beginStream() {
        // Standard error, so that programs do not read this line as a row.
        try? StandardError().write(
            line:
                "spoolgate: more than \(Self.sortedLimit) uploads: listed in spool order; --sort age "
                + "lists the first \(Self.sortedLimit), longest idle first",
            .notice
        )
        let layout = TableLayout(ofAny: style)
        layout.head.forEach(emit)
        for row in rows.sorted() { layout.lines(of: row.element).forEach(emit) }
        rows = TopN(limit: 1)
        stream = layout
    }

    /// Text such as `12 uploads, 3.4GiB on disk: 8 partial, 4 deferred`.
    private var totals: String {
        let parts = UploadSummary.stateWords.compactMap { word in
            states[word].map { "\($0) \(word)" }
        }
        return "\(count, of: "upload"), \(ByteSize.rounded(diskUsage)) on disk: "
            + parts.joined(separator: ", ")
    }

    // MARK: Cells

    private func row(_ summary: UploadSummary) -> TableRow {
        var row = TableRow()
        row[.upload] = summary.id.description + (summary.isInUse ? "*" : "")
        row[.state] = summary.stateWord + (summary.status.map { " \($0)" } ?? "")
        row[.received] = received(summary)
        row[.disk] = ByteSize.rounded(summary.diskUsage)
        row[.idle] = DurationText.rounded(now.seconds - summary.lastActivity.seconds)
        row[.next] = nextText(summary)
        row[.route] = cut(summary.creation?.route ?? "-")
        row[.owner] = cut(summary.creation?.principal?.text ?? "-")
        row[.target] = cut(target(summary) ?? "-")
        row[.reason] = cut(summary.reason ?? "")
        return row
    }

    private func target(_ summary: UploadSummary) -> String? {
        summary.creation.map { creation in
            "\(creation.head.method.rawValue) "
                + creation.head.target.shownTarget(withQuery: style.showsQueries)
        }
    }

    /// Returns text such as `1.2GiB/4.0GiB` (received and length), or only the length of a complete upload.
    private func received(_ summary: UploadSummary) -> String {
        let offset = ByteSize.rounded(summary.offset)
        guard summary.offset != summary.length else { return offset }
        return "\(offset)/\(summary.length.map { ByteSize.rounded($0) } ?? "?")"
    }

    private func cut(_ text: String) -> String {
        guard text.utf8.count > Self.cellLimit else { return text.forTerminal }
        let kept = text.unicodeScalars.prefix(Self.cellLimit - 1)
        return String(String.UnicodeScalarView(kept)).forTerminal + "\u{2026}"
    }

    /// Returns the time until the next attempt, such as `5m`, or who must act first.
    private func nextText(_ summary: UploadSummary) -> String {
        guard summary.queue == .deferred, let next = summary.nextAttempt else {
            return summary.awaited ?? "-"
        }
        return next <= now ? "now" : DurationText.rounded(next.seconds - now.seconds)
    }
}
