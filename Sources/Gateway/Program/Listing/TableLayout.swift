// The columns of the table of `list`, for a terminal's width or for other output.
//
// On a narrow terminal, long cells move below their row. Invariant: no line is wider than the terminal.

import SpoolgatePosix

enum TableColumn: Int, CaseIterable {
    case upload, state, received, disk, idle, next, route, owner, target, reason

    var heading: String { "\(self)".uppercased() }

    /// The column's maximum width on a terminal; longer cells are cut.
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

struct TableRow {
    private var cells = [String](repeating: "", count: TableColumn.allCases.count)

    subscript(column: TableColumn) -> String {
        get { cells[column.rawValue] }
        set { cells[column.rawValue] = newValue }
    }
}

struct TableLayout {
    private static let gap = 2
    private static let indent = 4
    /// The minimum widths of the columns for the target and the reason, in columns of the terminal.
    private static let leastTarget = 16
    private static let leastReason = 30

    private var columns: [(column: TableColumn, width: Int)] = []
    /// The columns whose cells are printed below the row unless they are empty.
    private var below: [TableColumn] = []
    /// The width of the terminal in columns; nil if lines may have any length.
    private let room: Int?

    /// Creates a layout with the widths that the rows need.
    ///
    /// Leaves out the column for the route or the owner if all rows have the same value.
    init(of rows: [TableRow], _ style: UploadTable.Style) {
        self.init(style) { column in
            let first = rows.first?[column]
            return rows.contains { $0[column] != first }
        } width: { column in
            rows.reduce(0) { max($0, $1[column].terminalColumns) }
        }
    }

    /// Creates the layout before the rows are known, with room for the longest cells.
    init(ofAny style: UploadTable.Style) {
        self.init(style, varies: { _ in true }, width: \.widest)
    }

    private init(
        _ style: UploadTable.Style,
        varies: (TableColumn) -> Bool,
        width: (TableColumn) -> Int
    ) {
        room = style.width
        for column in TableColumn.allCases {
            switch column {
            case .disk where !style.showsDisk: continue
            case .route where !varies(column): continue
            case .owner where !varies(column): continue
            default: break
            }
            let longest = min(width(column), column.widest)
            columns.append((column, max(longest, column.heading.count)))
        }
        if let room { fit(room, hasReasons: width(.reason) > 0) }
    }

    /// Moves columns that do not fit to a line below each row.
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

    var head: [String] { [line { $0.heading }] }

    /// Returns the row's line, and a second line if some cells are printed below.
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
            // The last column occupies the rest of the terminal's width.
            let isLast = column == columns.last?.column
            let text = room == nil || isLast ? cell(column) : cell(column).cut(toColumns: width)
            line += text.padded(toColumns: width)
        }
        let end = line.lastIndex { $0 != " " }.map(line.index(after:)) ?? line.startIndex
        return cut(String(line[..<end]))
    }

    private func cut(_ line: String) -> String { room.map { line.cut(toColumns: $0) } ?? line }
}
