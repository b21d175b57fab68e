// The status as one screen of text, for `spoolgate status`.
//
// Invariants: the first line begins with the level, which sets the exit status of the command; no text of a client can
// move the cursor.

import SpoolgateDelivery
import SpoolgateJournal
import SpoolgatePosix
import SpoolgateRequests
import SpoolgateSpool
import SpoolgateTextFormats

extension Status {
    /// The maximum number of rows for each kind of upload.
    private static let rows = 8

    var text: String {
        var lines = ["\(level.rawValue): \(([line] + furtherConcerns).joined(separator: "; "))"]
        lines.append(running)
        if !sample.nodes.isEmpty {
            let nodes = sample.nodes.map { $0.name + ($0.isAlive ? "" : " (failed)") }
            lines.append("nodes of this spool: \(nodes.joined(separator: ", "))")
        }
        add("Now", transfers, ordinary: ordinary, to: &lines) { transfer in
            [
                "\(transfer.id)", transfer.route, transfer.owner ?? "-",
                Self.bar(transfer.percent), Self.size(transfer.offset, of: transfer.length),
                "\(ByteSize.decimal(transfer.rate))/s",
                transfer.secondsLeft.map { "\(DurationText.rounded($0)) left" } ?? "",
                transfer.client ?? "-", "\(transfer.connections)x",
            ]
        }
        add("Failing", Part(failing, maximum: .max), maximum: .max, to: &lines) { route in
            [route.route.name, route.route.targetList, route.count, route.run.reason]
        }
        if partial.count > 0 {
            let rows = partial.first.prefix(Self.rows).map { upload in
                [
                    "\(upload.id)", upload.route, upload.owner ?? "-",
                    Self.size(upload.offset, of: upload.length), idle(upload),
                ]
            }
            lines += ["", "Partial (\(partial.count))"] + Self.table(rows)
            lines.append("  \(partialWords): \(Self.listPartial)")
        }
        add("Waiting", waiting, to: &lines) { upload in
            [
                "\(upload.id)", upload.route, upload.owner ?? "-", ByteSize.decimal(upload.size),
                upload.when(now), upload.reason ?? "",
            ]
        }
        for (title, part) in [("Needs attention", needy), ("Held", held)] {
            add(title, part, to: &lines) { upload in
                [
                    "\(upload.id)", upload.route, upload.owner ?? "-",
                    ByteSize.decimal(upload.size), upload.cause?.rawValue ?? "",
                    upload.reason ?? "",
                ]
            }
            for cause in HoldCause.allCases {
                guard let upload = part.first.first(where: { $0.cause == cause }) else { continue }
                lines.append("  \(cause.rawValue)\(upload.prompt.map { ": \($0)" } ?? "")")
                lines += upload.steps.map { "    \($0.when): \($0.command)" }
            }
        }
        add("Failures", Part(failures), to: &lines) { failure in
            ["\(since(failure.time)) ago", "\(failure.id)", failure.route, failure.reason]
        }
        add("Routes", Part(routes, maximum: .max), maximum: .max, to: &lines) { route in
            [route.name, route.targetList]
        }
        lines += ["", "Space", "  " + space.joined(separator: ", ")]
        return lines.map { $0.forTerminal + "\n" }.joined()
    }

    private func add<Element>(
        _ title: String,
        _ part: Part<Element>,
        ordinary: Int = 0,
        maximum: Int = Status.rows,
        to lines: inout [String],
        _ cells: (Element) -> [String]
    ) {
        guard part.count + ordinary > 0 else { return }
        lines += ["", "\(title) (\(part.count + ordinary))"]
        let rows = part.first.prefix(maximum).map(cells)
        lines += Self.table(rows)
        if part.count > rows.count {
            lines.append("  and \(part.count - rows.count) more: spoolgate list")
        }
        if ordinary > 0 { lines.append("  " + ordinaryWords) }
    }

    /// Aligns the columns; leaves out columns that are empty in every row.
    private static func table(_ rows: [[String]]) -> [String] {
        let rows = rows.map { $0.map(\.forTerminal) }
        let widths = (rows.first ?? []).indices.map { column in
            rows.map { $0[column].terminalColumns }.max() ?? 0
        }
        return rows.map { row in
            var line = " "
            for (column, cell) in row.enumerated() where widths[column] > 0 {
                line += " " + cell.padded(toColumns: widths[column])
                if column < row.count - 1 { line += " " }
            }
            while line.hasSuffix(" ") { line.removeLast() }
            return line
        }
    }

    var ordinaryWords: String { "\(ordinary, of: "ordinary upload")" }

    var partialWords: String {
        partial.count == 1
            ? "1 partial upload is waiting for its client"
            : "\(partial.count) partial uploads are waiting for their clients"
    }

    static let listPartial = "spoolgate list --state partial"

    func idle(_ upload: PartialUpload) -> String { "idle for \(since(upload.lastActivity))" }

    var space: [String] {
        var parts = [
            "\(ByteSize.decimal(figures.bytes))"
                + (figures.quota.map { " of \(ByteSize.decimal($0))" } ?? "") + " in the spool"
        ]
        if let space = sample.space {
            parts.append("\(ByteSize.decimal(space.freeBytes)) free")
            parts.append("\(ByteSize.decimal(figures.reserve)) reserved")
            if let files = space.freeFiles {
                parts.append("\(files, of: "free inode")")
            }
        }
        if let purge = sample.lastPurge { parts.append("purged \(since(purge)) ago") }
        return parts
    }

    /// Returns how much of an upload was received, such as `12.0 MB of 3.9 GB`.
    static func size(_ offset: Int64, of length: Int64?) -> String {
        ByteSize.decimal(offset) + (length.map { " of \(ByteSize.decimal($0))" } ?? "")
    }

    private static func bar(_ percent: Int?) -> String {
        guard let percent else { return "[    ?     ]" }
        let full = min(10, percent / 10)
        return "[" + String(repeating: "#", count: full) + String(repeating: ".", count: 10 - full)
            + "]"
    }
}
