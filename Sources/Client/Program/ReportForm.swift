// The form of progress reports, and members of their JSON.

import ResumableUpload
import SpoolgatePosix
import SpoolgateTextFormats

enum ReportForm {
    /// Lines at the bottom of the terminal, redrawn by a thread.
    case lines
    case json
    /// Only messages about problems.
    case none

    /// Selects `form` if standard error allows it.
    ///
    /// If lines are drawn, a thread runs `draw` until the report ends.
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
    var members: [(name: String, value: JSON)] {
        [
            ("received", .integer(received)), ("sent", .integer(sent)),
            ("total", .integer(total)),
        ]
    }
}
