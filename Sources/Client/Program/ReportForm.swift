// How a report tells of transfers, and what its lines of JSON have in common.

import ResumableUpload
import SpoolgatePosix
import SpoolgateTextFormats

/// In which form a command tells of what it transfers.
enum ReportForm {
    /// Lines at the bottom of the terminal, which a thread draws over and over.
    case lines
    /// JSON.
    case json
    /// Only what goes wrong.
    case none

    /// The form that was asked for and can be had.
    ///
    /// - Parameters:
    ///   - form: what was asked for.
    ///   - draw: draws the lines until the report ends, on a thread of its own.
    init(_ form: ProgressForm, draw: @escaping @Sendable (TerminalLines) -> Void) {
        switch form {
        case .json: self = .json
        case .auto where Terminal.errors.isThere:
            let drawer = TerminalLines()
            let isStarted: Void? = try? Thread.start(name: "progress") { draw(drawer) }
            self = isStarted == nil ? .none : .lines
        default: self = .none
        }
    }
}

extension Transfer.Progress {
    /// What a line of JSON says of it.
    var members: [(name: String, value: JSON)] {
        [
            ("received", .integer(received)), ("sent", .integer(sent)),
            ("total", total.map { .integer($0) } ?? .null),
        ]
    }
}
