// Where the columns of the table of `list` stand, on a terminal of some width or on none.
//
// On a narrow terminal what is long goes below its row. Invariant: on a terminal no line is longer than
// that is wide, unless it was asked for.

import SpoolgatePosix

/// What there is to say of an upload.
enum TableColumn: Int, CaseIterable {
    case upload, state, received, disk, idle, next, route, owner, target, reason

    var heading: String { "\(self)".uppercased() }

    /// Most columns of a terminal that it takes because of its longest cell.
    fileprivate var widest: Int {
        switch self {
        case .upload: 27
        case .state: 13
        case .received: 19
        case .disk: 9
        case .idle: 4
        case .next: 8
        case .route: 20
        case .owner: 24
        case .target: 60
        case .reason: 200
        }
    }
}

/// The cells of one upload.
struct TableRow {
    private var cells = [String](repeating: "", count: TableColumn.allCases.count)

    subscript(column: TableColumn) -> String {
        get { cells[column.rawValue] }
        set { cells[column.rawValue] = newValue }
    }
}

/// The columns of a table.
struct TableLayout {
    private static let gap = 2
    private static let indent = 4
    /// What a target, or a reason, needs for a column of its own.
    private static let leastTarget = 16
    private static let leastReason = 30

    private var columns: [(column: TableColumn, width: Int)] = []
    /// What is told below a row, where it says anything.
    private var below: [TableColumn] = []
    /// Columns of the terminal; nil: any line fits.
    private let room: Int?

    /// The layout for rows that are all known.
    ///
    /// Routes and owners have a column where there is more than one.
    init(of rows: [TableRow], _ style: UploadTable.Style) {
        self.init(style) { column in
            let first = rows.first?[column]
            return rows.contains { $0[column] != first }
        } width: { column in
            rows.reduce(0) { max($0, $1[column].terminalColumns) }
        }
    }

    /// The layout for rows that nobody knows yet.
    init(ofAny style: UploadTable.Style) {
        self.init(style, varies: { _ in true }, width: \.widest)
    }

    private init(
        _ style: UploadTable.Style,
        varies: (TableColumn) -> Bool,
        width: (TableColumn) -> Int
    ) {
        room = style.isWide ? nil : style.width
        for column in TableColumn.allCases {
            switch column {
            case .disk where !style.isWide && !style.showsDisk: continue
            case .route where !style.isWide && !varies(column): continue
            case .owner where !style.isWide && !varies(column): continue
            default: break
            }
            let longest = min(width(column), column.widest)
            columns.append((column, max(longest, column.heading.count)))
        }
        if let room { fit(room, hasReasons: width(.reason) > 0) }
    }

    /// Moves below the rows what has no room beside the other columns.
    private mutating func fit(_ room: Int, hasReasons: Bool) {
        let target = columns.count - 2
        let left = room - columns[..<target].reduce(0) { $0 + $1.width + Self.gap }
        let wanted = min(columns[target].width, Self.leastTarget)
        if hasReasons, left >= wanted + Self.gap + Self.leastReason {
            columns[target].width = min(
                columns[target].width,
                left - Self.gap - Self.leastReason
            )
            return
        }
        moveBelow()
        if left >= wanted {
            columns[target].width = min(columns[target].width, left)
            return
        }
        moveBelow()
        while columns.count > 1,
            columns.reduce(-Self.gap, { $0 + $1.width + Self.gap }) > room
        {
            moveBelow()
        }
    }

    private mutating func moveBelow() { below.insert(columns.removeLast().column, at: 0) }

    /// The line above all rows.
    var head: [String] { [line { $0.heading }] }

    /// The lines of one row: one, or two.
    func lines(of row: TableRow) -> [String] {
        let texts = below.map { row[$0] }.filter { !$0.isEmpty && $0 != "-" }
        let first = line { row[$0] }
        guard !texts.isEmpty else { return [first] }
        let indent = String(repeating: " ", count: Self.indent)
        return [first, cut(indent + texts.joined(separator: "  "))]
    }

    private func line(_ cell: (TableColumn) -> String) -> String {
        var line = ""
        for (column, width) in columns {
            if !line.isEmpty { line += String(repeating: " ", count: Self.gap) }
            // The last one has what is left of the terminal.
            let isLast = column == columns.last?.column
            let text = room == nil || isLast ? cell(column) : cell(column).cut(toColumns: width)
            line += text.padded(toColumns: width)
        }
        let end = line.lastIndex { $0 != " " }.map(line.index(after:)) ?? line.startIndex
        return cut(String(line[..<end]))
    }

    private func cut(_ line: String) -> String { room.map { line.cut(toColumns: $0) } ?? line }
}
