// Counts of uploads, like qshape(1) of Postfix: for each state and route the number of uploads by age, their bytes on
// the disk, and the oldest with its reason.
//
// Invariant: memory grows with the number of routes, not with the spool.

import SpoolgatePosix
import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol

struct QueueShape {
    /// Upper bounds in seconds; older uploads have their own column.
    private static let ends: [Int64] = [60, 600, 3_600, 21_600, 86_400, 604_800]

    private struct Kind: Hashable {
        var state: String
        var route: String?
    }

    private struct Row {
        var ages = [Int](repeating: 0, count: ends.count + 1)
        var diskUsage: Int64 = 0
        /// The oldest upload, with its age in seconds; nil for an empty row.
        var oldest: (age: Int64, id: UploadID, reason: String?)?
        var count: Int { ages.reduce(0, +) }
    }

    private let now: WallTime
    private var rows: [Kind: Row] = [:]
    private(set) var count = 0

    init(now: WallTime) { self.now = now }

    mutating func add(_ summary: UploadSummary) {
        count += 1
        let age = max(0, now.seconds - since(summary).seconds)
        let place = Self.ends.firstIndex { age < $0 } ?? Self.ends.count
        let kind = Kind(state: summary.stateWord, route: summary.creation?.route)
        var row = rows[kind] ?? Row()
        row.ages[place] += 1
        row.diskUsage += summary.diskUsage
        if row.oldest.map({ age > $0.age }) ?? true {
            row.oldest = (age, summary.id, summary.reason)
        }
        rows[kind] = row
    }

    /// Returns the time of completion if an upload is waiting for delivery or an operator; otherwise its last activity.
    private func since(_ summary: UploadSummary) -> WallTime {
        switch summary.queue {
        case .incoming, .delivered, .corrupt: summary.lastActivity
        case .active, .deferred, .hold: summary.completeSince ?? summary.lastActivity
        }
    }

    private var sorted: [(Kind, Row)] {
        let places = Dictionary(
            uniqueKeysWithValues: UploadSummary.stateWords.enumerated().map { ($1, $0) }
        )
        return rows.sorted { one, other in
            (places[one.key.state] ?? 0, one.key.route ?? "")
                < (places[other.key.state] ?? 0, other.key.route ?? "")
        }.map { ($0.key, $0.value) }
    }

    // MARK: For people

    /// Returns, for each row, a line of counts and a line about its oldest upload; empty without uploads.
    ///
    /// If `width` is not nil, lines are cut to `width` columns.
    func lines(width: Int?) -> [String] {
        guard count > 0 else { return [] }
        let hasRoutes = Set(rows.keys.map(\.route)).count > 1
        let limits = Self.ends.map(DurationText.rounded)
        var head = ["STATE"] + (hasRoutes ? ["ROUTE"] : []) + ["UPLOADS"]
        head += limits.map { "<\($0)" } + ["older", "DISK"]
        var table = [head]
        var below = [""]
        var total = Row()
        for (kind, row) in sorted {
            let route = hasRoutes ? [(kind.route ?? "-").forTerminal] : []
            table.append(cells([kind.state] + route, row))
            below.append(oldestText(row))
            for place in row.ages.indices { total.ages[place] += row.ages[place] }
            total.diskUsage += row.diskUsage
        }
        if rows.count > 1 {
            table.append(cells(["all"] + (hasRoutes ? [""] : []), total))
            below.append("")
        }
        let names = hasRoutes ? 2 : 1
        let widths = head.indices.map { column in
            table.reduce(0) { max($0, $1[column].terminalColumns) }
        }
        return zip(table, below).flatMap { cells, below in
            let line = zip(cells, widths).enumerated().map { column, cell in
                let (text, width) = cell
                return column < names
                    ? text.padded(toColumns: width) : text.indented(toColumns: width)
            }.joined(separator: "  ")
            return [line] + (below.isEmpty ? [] : [below])
        }.map { line in width.map { line.cut(toColumns: $0) } ?? line }
    }

    private func cells(_ names: [String], _ row: Row) -> [String] {
        names + ["\(row.count)"] + row.ages.map { "\($0)" } + [ByteSize.rounded(row.diskUsage)]
    }

    private func oldestText(_ row: Row) -> String {
        guard let oldest = row.oldest else { return "" }
        let reason = oldest.reason.map { ": \($0.forTerminal)" } ?? ""
        return "    oldest \(DurationText.rounded(oldest.age)) \(oldest.id)\(reason)"
    }

    // MARK: For programs

    /// JSON objects, one line each.
    var objects: [String] {
        sorted.map { kind, row in
            JSON.line([
                ("state", .string(kind.state)),
                ("route", .string(kind.route)),
                ("uploads", .integer(row.count)),
                ("ages", .array(row.ages.enumerated().map { ageObject($0, $1) })),
                ("disk-usage", .integer(row.diskUsage)),
                ("oldest", .string(row.oldest?.id.description)),
                ("oldest-age", .integer(row.oldest?.age)),
                ("oldest-reason", .string(row.oldest?.reason)),
            ])
        }
    }

    /// Returns a count and its upper bound in seconds, which is null in the last column.
    private func ageObject(_ place: Int, _ count: Int) -> JSON {
        let end = place < Self.ends.count ? Self.ends[place] : nil
        return .object([("below", .integer(end)), ("uploads", .integer(count))])
    }
}
