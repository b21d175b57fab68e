// Reports a running transfer on standard error: a redrawn line, or JSON.
//
// The line has its own thread, so that a stopped terminal (Ctrl-S) does not delay the transfer. The invariant: if
// standard error is not a terminal, no control character is written.

import Glibc
import ResumableUpload
import SpoolgatePosix
import SpoolgateTextFormats

final class ProgressReport: Sendable {
    private struct State {
        var line: TransferLine
        var sentences: [String] = []
        var isEnded = false
        var isTakenAway = false
        var nextJSON = Deadline.after(.zero)
    }

    private let form: ReportForm
    /// The path in each line of JSON; nil for a download.
    private let file: String?
    private let state: Monitor<State>
    private static let interval = Duration.milliseconds(250)

    init(_ name: String, _ form: ProgressForm, file: String? = nil) {
        self.file = file
        let state = Monitor(State(line: TransferLine(name)))
        self.state = state
        self.form = ReportForm(form) { Self.draw(state, by: $0) }
    }

    var isJSON: Bool { form == .json }

    /// Whether the report is shown on a terminal.
    var isForPerson: Bool { form == .lines }

    func note(_ progress: Transfer.Progress) {
        let now = Deadline.after(.zero)
        let isDue = state.updateQuietly { state in
            state.line.note(progress, at: now)
            let isDue = state.nextJSON.hasPassed || progress.received == progress.total
            if isDue { state.nextJSON = .after(.seconds(1)) }
            return isDue
        }
        if isDue { report("progress", progress.members) }
    }

    /// Records that the transfer waits before its next attempt, for how long and why.
    func wait(_ duration: Duration, _ reason: String) {
        state.updateQuietly { $0.line.wait(until: .after(duration), reason) }
        report(
            "waiting",
            [
                ("milliseconds", .integer(duration.wholeMilliseconds)), ("reason", .string(reason)),
            ]
        )
    }

    func beginAnew(_ reason: String) {
        say(reason)
        report("begun-anew", [("reason", .string(reason))])
    }

    /// Prints a message above the line if a line is shown.
    func say(_ sentence: String) {
        if form == .lines { state.update { $0.sentences.append(sentence) } }
    }

    /// Removes the line, and reports the result.
    ///
    /// `status` is nil if there was no response; `place` is the URL of a redirect.
    func end(status: Int?, code: Int32, reason: String?, place: String? = nil) {
        if form == .lines {
            state.update { $0.isEnded = true }
            _ = state.wait(until: .after(.seconds(2))) { $0.isTakenAway ? true : nil }
        }
        report(
            "end",
            [
                ("status", .integer(status)),
                ("exit", .integer(Int64(code))), ("reason", .string(reason)),
                ("place", .string(place)),
            ]
        )
    }

    private func report(_ event: String, _ members: [(name: String, value: JSON)]) {
        guard form == .json else { return }
        let named: [(name: String, value: JSON)] = file.map { [("file", .string($0))] } ?? []
        let line = JSON.versioned([("event", .string(event))] + named + members)
        TerminalLines.write(line.text + "\n")
    }

    private static func draw(_ state: Monitor<State>, by drawer: TerminalLines) {
        while true {
            let (sentences, line, isEnded) = state.updateQuietly { state in
                defer { state.sentences = [] }
                return (state.sentences, state.line, state.isEnded)
            }
            for sentence in sentences { drawer.say(sentence.forTerminal) }
            guard !isEnded else { break }
            drawer.draw { size in [line.text(columns: size.columns, at: .after(.zero))] }
            let _: Bool? = state.wait(until: .after(interval), isQuiet: true) {
                $0.isEnded || !$0.sentences.isEmpty ? true : nil
            }
        }
        drawer.clear()
        state.update { $0.isTakenAway = true }
    }
}
