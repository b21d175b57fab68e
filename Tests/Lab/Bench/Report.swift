// The output of results: aligned tables for people, JSON lines for programs.
//
// Every figure is the median over the rounds, followed by the smallest and largest value if there are several. A ratio
// is computed within each round, because a disk that is slow for a minute slows both sides; the median ratio is
// printed.

import Foundation

struct Column {
    /// The key in `RowResult.rounds` and JSON.
    let key: String
    let title: String
    var decimals = 0
    /// The row whose value of `key` divides this column's, if any.
    var reference: String?

    var label: String {
        reference.map { "\(key)_ratio_to_\($0.replacingSpaces)" } ?? key
    }

    /// This column's values, one for each round that has one.
    func values(_ row: RowResult, in rows: [RowResult]) -> [Double] {
        guard let reference else { return row.values(key) }
        guard let other = rows.first(where: { $0.name == reference }) else { return [] }
        return zip(row.rounds, other.rounds).compactMap { mine, theirs in
            guard let value = mine[key], let base = theirs[key], base > 0 else { return nil }
            return value / base
        }
    }
}

struct SectionResult {
    let section: Section
    let title: String
    let columns: [Column]
    let rows: [RowResult]
    let measuredRounds, quietRounds: Int

    /// A row's values in one column; empty if not measured.
    func values(_ row: String, _ key: String, over reference: String? = nil) -> [Double] {
        let column = Column(key: key, title: "", reference: reference)
        guard let row = rows.first(where: { $0.name == row }), row.failure == nil else { return [] }
        return column.values(row, in: rows)
    }

    /// The use by others in the rounds of the figures.
    var others: OthersUse { .sum(rows.flatMap(\.others)) }

    /// Whether no round was quiet, so that the figures are unreliable.
    var isDisturbed: Bool { measuredRounds > 0 && quietRounds == 0 }

    /// Prints the table, or one JSON line for each row and one for the rounds.
    func print(json: Bool) {
        if json {
            for row in rows { Swift.print(jsonLine(row)) }
            Swift.print(roundsLine)
        } else {
            Swift.print("\n\(section.rawValue). \(title)\n")
            printTable([""] + columns.map(\.title), rows.map { [$0.name] + cells($0) })
            for row in rows {
                if let failure = row.failure { Swift.print("  FAILED: \(row.name): \(failure)") }
                if let lacks = row.lacks { Swift.print("  Not measured: \(row.name): \(lacks)") }
            }
            if isDisturbed {
                Swift.print(
                    "  NOT A QUIET MACHINE: none of \(measuredRounds) rounds was quiet; these figures "
                        + "are unreliable."
                )
            } else if quietRounds < measuredRounds {
                Swift.print(
                    "  The figures are of the quiet rounds: \(quietRounds) of \(measuredRounds)."
                )
            }
            if others.percent >= 1 { Swift.print("  Other processes used \(others.text)") }
        }
        fflush(nil)
    }

    private func cells(_ row: RowResult) -> [String] {
        if row.failure != nil { return columns.map { _ in "failed" } }
        if row.lacks != nil { return columns.map { _ in "-" } }
        return columns.map { column in
            let values = column.values(row, in: rows)
            guard let low = values.min(), let high = values.max() else { return "-" }
            let middle = decimal(percentile(values, 0.5), column.decimals)
            guard values.count > 1 else { return middle }
            return "\(middle) (\(decimal(low, column.decimals))-\(decimal(high, column.decimals)))"
        }
    }

    private func jsonLine(_ row: RowResult) -> String {
        var members: [String: Any] = ["section": section.rawValue, "row": row.name]
        for column in columns {
            let values = column.values(row, in: rows)
            guard let low = values.min(), let high = values.max() else { continue }
            members[column.label] = ["median": percentile(values, 0.5), "min": low, "max": high]
        }
        if let failure = row.failure { members["failure"] = "\(failure)" }
        if let lacks = row.lacks { members["lacks"] = lacks }
        return json(members)
    }

    private var roundsLine: String {
        json([
            "section": section.rawValue, "rounds": measuredRounds, "quiet": quietRounds,
            "others_percent": others.percent,
            "others": Dictionary(
                uniqueKeysWithValues: others.largest.map { ($0.command, $0.percent) }
            ),
        ])
    }
}

/// Prints cells below a heading, the first column aligned left, the others right.
func printTable(_ heading: [String], _ lines: [[String]]) {
    var widths = heading.map(\.count)
    for line in lines {
        for (index, cell) in line.enumerated() { widths[index] = max(widths[index], cell.count) }
    }
    for line in [heading] + lines {
        let cells = line.enumerated().map { index, cell in
            let space = String(repeating: " ", count: widths[index] - cell.count)
            return index == 0 ? cell + space : space + cell
        }
        print("  " + cells.joined(separator: "  "))
    }
}

func json(_ members: [String: Any]) -> String {
    let options: JSONSerialization.WritingOptions = [.sortedKeys, .withoutEscapingSlashes]
    let data = try? JSONSerialization.data(withJSONObject: members, options: options)
    return String(decoding: data ?? Data(), as: UTF8.self)
}

extension String {
    fileprivate var replacingSpaces: String {
        String(map { $0 == " " ? "_" : $0 })
    }
}
