// The table of `list`: rows by their last activity, while there are not too many to be kept, or the first by
// an order that was asked for.
//
// Invariant: what is in memory does not grow with the spool.

import HTTPTypes
import SpoolgatePosix
import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol

/// A table of uploads that is being printed.
final class UploadTable {
    /// Most rows that are sorted.
    static let sortedLimit = 10_000
    /// Most characters of a cell: a client chooses how long its target is.
    private static let cellLimit = 200

    /// What is shown, and where it goes.
    struct Style {
        /// What rows are sorted by; nil: by age, while there are no more than `sortedLimit`.
        var order: UploadOrder.Kind?
        /// Whether all columns are there, and lines as long as what is in them.
        var isWide = false
        /// Whether the bytes on the disk have a column.
        var showsDisk = false
        /// Whether the queries of targets are shown.
        var showsQueries = false
        /// Columns of the terminal; nil: there is none.
        var width: Int?
        /// Most rows.
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

    /// Begins a table.
    ///
    /// - Parameters:
    ///   - style: what is shown.
    ///   - now: the time that ages count from.
    ///   - step: called with how many uploads were read, before a line is emitted.
    ///   - emit: takes each line.
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
        // One more is what begins the stream.
        rows = TopN(limit: style.limit + (style.order == nil ? 1 : 0))
    }

    /// Adds an upload.
    func add(_ summary: UploadSummary) {
        count += 1
        diskUsage += summary.diskUsage
        states[summary.stateWord, default: 0] += 1
        if let stream { return stream.lines(of: row(summary)).forEach(emit) }
        rows.add(UploadOrder(summary, by: style.order ?? .age), row(summary))
        step(count)
        if style.order == nil, count > style.limit { beginStream() }
    }

    /// Emits what is left, and the totals; nothing where there was no upload.
    ///
    /// - Returns: how many uploads were added, of which the style's limit may have left some out.
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
        // Not among the rows, where a program would take it for one.
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

    /// `12 uploads, 3.4GiB on disk: 8 partial, 4 deferred`.
    private var totals: String {
        let parts = UploadSummary.stateWords.compactMap { word in
            states[word].map { "\($0) \(word)" }
        }
        return "\(uploads: count), \(ByteSize.rounded(diskUsage)) on disk: "
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

    /// What has arrived of how much: `1.2GiB/4.0GiB`; of what is whole, once.
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

    /// When the queue tries an upload next, `5m`; else who has to do something.
    private func nextText(_ summary: UploadSummary) -> String {
        guard summary.queue == .deferred, let next = summary.nextAttempt else {
            return summary.awaited ?? "-"
        }
        return next <= now ? "now" : DurationText.rounded(next.seconds - now.seconds)
    }
}

extension DefaultStringInterpolation {
    /// `1 upload`, `12 uploads`.
    mutating func appendInterpolation(uploads count: Int) {
        appendLiteral(count == 1 ? "1 upload" : "\(count) uploads")
    }
}
