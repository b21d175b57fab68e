// The form of progress reports, and the members that their JSON shares.

import ResumableUpload
import SpoolgatePosix
import SpoolgateTextFormats

/// The form of a report.
enum ReportForm {
    /// Lines at the bottom of the terminal, redrawn by a thread.
    case lines
    /// One JSON object on each line.
    case json
    /// Only messages about problems.
    case none

    /// Selects the requested form if standard error allows it.
    ///
    /// - Parameters:
    ///   - form: the requested form.
    ///   - draw: draws the lines on a thread of its own until the report ends.
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
    /// The progress as members of a JSON object.
    var members: [(name: String, value: JSON)] {
        [
            ("received", .integer(received)), ("sent", .integer(sent)),
            ("total", total.map { .integer($0) } ?? .null),
        ]
    }
}
