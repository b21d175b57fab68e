// What is told of a transfer while it runs, on standard error: a line that is drawn over and over, or JSON.
//
// The line has a thread of its own, so that a terminal that takes nothing (Ctrl-S) holds up no transfer. The
// invariant: where standard error is no terminal, no control character is written.

import Glibc
import ResumableUpload
import SpoolgatePosix
import SpoolgateTextFormats

/// The report of one transfer.
final class ProgressReport: Sendable {
    private struct State {
        var line: TransferLine
        /// Told above the line, once.
        var sentences: [String] = []
        var isEnded = false
        var isTakenAway = false
        var nextJSON = Deadline.after(.zero)
    }

    private let form: ReportForm
    /// The file of an upload; nil: that of a download.
    private let file: String?
    private let state: Monitor<State>
    private static let interval = Duration.milliseconds(250)

    /// Begins a report on what is called `name`; `file` goes with each line of JSON.
    init(_ name: String, _ form: ProgressForm, file: String? = nil) {
        self.file = file
        let state = Monitor(State(line: TransferLine(name)))
        self.state = state
        self.form = ReportForm(form) { Self.draw(state, by: $0) }
    }

    /// Whether standard error has JSON alone.
    var isJSON: Bool { form == .json }

    /// Whether a person looks on.
    var isForPerson: Bool { form == .lines }

    /// Takes how far it is.
    func note(_ progress: Transfer.Progress) {
        let now = Deadline.after(.zero)
        let isDue = state.updateQuietly { state in
            state.line.note(progress, at: now)
            let isDue = state.nextJSON.hasPassed || progress.received == progress.total
            if isDue { state.nextJSON = .after(.seconds(1)) }
            return isDue
        }
        if isDue { tell("progress", progress.members) }
    }

    /// Takes that it waits, for how long and why.
    func wait(_ duration: Duration, _ reason: String) {
        state.updateQuietly { $0.line.wait(until: .after(duration), reason) }
        tell(
            "waiting",
            [
                ("milliseconds", .integer(duration.wholeMilliseconds)), ("reason", .string(reason)),
            ]
        )
    }

    /// Takes that everything is transferred again.
    func beginAnew(_ reason: String) {
        say(reason)
        tell("begun-anew", [("reason", .string(reason))])
    }

    /// Tells a person a sentence, above the line.
    func say(_ sentence: String) {
        if form == .lines { state.update { $0.sentences.append(sentence) } }
    }

    /// Takes the line away.
    ///
    /// - Parameters:
    ///   - status: the answer's status; nil: there is none.
    ///   - code: the exit code.
    ///   - reason: why it is that.
    ///   - place: the URL that the answer names as the next one; nil: none.
    func end(status: Int?, code: Int32, reason: String?, place: String? = nil) {
        if form == .lines {
            state.update { $0.isEnded = true }
            _ = state.wait(until: .after(.seconds(2))) { $0.isTakenAway ? true : nil }
        }
        tell(
            "end",
            [
                ("status", status.map { .integer(Int64($0)) } ?? .null),
                ("exit", .integer(Int64(code))), ("reason", reason.map { .string($0) } ?? .null),
                ("place", place.map { .string($0) } ?? .null),
            ]
        )
    }

    private func tell(_ event: String, _ members: [(name: String, value: JSON)]) {
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
