// What is told of a command for several files while it runs: a bar for each file under way and one for all, or JSON.
//
// The bars have a thread of their own, so that a terminal that takes nothing (Ctrl-S) holds up no upload. The invariant:
// where standard error is no terminal, no control character is written, and only what goes wrong is told.

import Glibc
import ResumableUpload
import SpoolgatePosix
import SpoolgateTextFormats

/// The report of one command for several files.
///
/// Any thread; a slot is one job, from 0 on.
final class BatchReport: Sendable {
    private struct Slot {
        var file: String
        var line: TransferLine
        var progress = Transfer.Progress(received: 0, sent: 0, total: nil)
        var nextJSON = Deadline.after(.zero)
    }

    private struct State {
        var slots: [Int: Slot] = [:]
        /// Bytes and files that are over, however they ended.
        var bytes: Int64 = 0
        var files = 0
        var total = TransferLine("")
        /// Told above the lines, once.
        var sentences: [String] = []
        var isEnded = false
        var isTakenAway = false
    }

    private let form: ReportForm
    private let state: Monitor<State>
    private static let interval = Duration.milliseconds(250)

    /// Begins a report on files of so many bytes in all.
    init(_ form: ProgressForm, count: Int, size: Int64) {
        let state = Monitor(State())
        self.state = state
        self.form = ReportForm(form) { Self.draw(state, by: $0, count, size) }
    }

    // MARK: One file

    /// Takes that a job begins with a file.
    func begin(_ slot: Int, _ source: UploadSource) {
        state.updateQuietly {
            $0.slots[slot] = Slot(file: source.shown, line: TransferLine(source.name))
        }
    }

    /// Takes how far a file is.
    ///
    /// - Returns: whether the server has more of it than before.
    func note(_ slot: Int, _ progress: Transfer.Progress) -> Bool {
        let now = Deadline.after(.zero)
        let (isMore, isDue) = state.updateQuietly { state -> (Bool, Bool) in
            guard var own = state.slots[slot] else { return (false, false) }
            let isMore = progress.received > own.progress.received
            own.progress = progress
            own.line.note(progress, at: now)
            let isDue = own.nextJSON.hasPassed || progress.received == progress.total
            if isDue { own.nextJSON = .after(.seconds(1)) }
            state.slots[slot] = own
            return (isMore, isDue)
        }
        if isDue { tell("progress", slot, progress.members) }
        return isMore
    }

    /// Takes that a file waits, for how long and why.
    func wait(_ slot: Int, _ duration: Duration, _ reason: String) {
        state.updateQuietly { $0.slots[slot]?.line.wait(until: .after(duration), reason) }
        let milliseconds = JSON.integer(duration.wholeMilliseconds)
        tell("waiting", slot, [("milliseconds", milliseconds), ("reason", .string(reason))])
    }

    /// Takes that everything of a file is sent again.
    func beginAnew(_ slot: Int, _ reason: String) {
        tell("begun-anew", slot, [("reason", .string(reason))])
        let file = state.updateQuietly { $0.slots[slot]?.file } ?? ""
        if form == .lines { say("\(file): \(reason)") }
    }

    /// Takes how a file ended.
    ///
    /// - Parameters:
    ///   - slot: the job.
    ///   - source: the file.
    ///   - status: the answer's status; nil: there is none.
    ///   - code: what a command for this file alone would exit with.
    ///   - reason: why it was not taken.
    ///   - place: the URL that the answer names as the next one; nil: none.
    ///   - wasTaken: whether it was taken by a run before.
    func end(
        _ slot: Int,
        _ source: UploadSource,
        status: Int?,
        code: Int32,
        reason: String? = nil,
        place: String? = nil,
        wasTaken: Bool = false
    ) {
        tell(
            "end",
            slot,
            [
                ("status", status.map { .integer(Int64($0)) } ?? .null),
                ("exit", .integer(Int64(code))), ("reason", reason.map { .string($0) } ?? .null),
                ("place", place.map { .string($0) } ?? .null), ("before", .boolean(wasTaken)),
            ]
        )
        state.updateQuietly { state in
            state.slots[slot] = nil
            state.files += 1
            state.bytes += source.size
        }
        if let reason, form != .json { say(FailureText.naming(source, reason)) }
        if let place, form != .json {
            say("the server accepted \(source.shown) and redirects to \(place)")
        }
    }

    // MARK: The command

    /// Takes that the command waits before it begins.
    func wait(_ duration: Duration, _ reason: String) {
        say("waiting: \(reason)", isFault: false)
        guard form == .json else { return }
        let members: [(name: String, value: JSON)] = [
            ("event", .string("waiting")), ("milliseconds", .integer(duration.wholeMilliseconds)),
            ("reason", .string(reason)),
        ]
        TerminalLines.write(JSON.versioned(members).text + "\n")
    }

    /// Tells a sentence, above the bars if there are any.
    ///
    /// - Parameters:
    ///   - sentence: the sentence.
    ///   - isFault: whether it is told where no person looks on, too.
    func say(_ sentence: String, isFault: Bool = true) {
        switch form {
        case .lines:
            let line = "\(UploadCommand.name): \(sentence)".forTerminal
            state.update { $0.sentences.append(line) }
        case .none: if isFault { UploadCommand.tell(sentence) }
        case .json:
            guard isFault else { return }
            let event = ("event", JSON.string("message"))
            let line = JSON.versioned([event, ("reason", .string(sentence))])
            TerminalLines.write(line.text + "\n")
        }
    }

    /// Takes the bars away, and sums up.
    ///
    /// - Parameters:
    ///   - count: how many files ended how.
    ///   - code: the exit code.
    ///   - summary: the same as a sentence, which a person reads.
    /// - Returns: the sentence if somebody else has to tell it.
    func end(_ count: BatchCount, code: Int32, _ summary: String) -> String? {
        switch form {
        case .lines:
            state.update { $0.isEnded = true }
            _ = state.wait(until: .after(.seconds(2))) { $0.isTakenAway ? true : nil }
            if code == 0 { try? StandardError().write(line: summary.forTerminal, .notice) }
            return code == 0 ? nil : summary
        case .none: return code == 0 ? nil : summary
        case .json:
            let members: [(name: String, value: JSON)] = [
                ("event", .string("summary")), ("taken", .integer(Int64(count.taken))),
                ("before", .integer(Int64(count.skipped))),
                ("refused", .integer(Int64(count.refused))),
                ("later", .integer(Int64(count.later))), ("bytes", .integer(count.bytes)),
                ("exit", .integer(Int64(code))),
            ]
            TerminalLines.write(JSON.versioned(members).text + "\n")
            return nil
        }
    }

    private func tell(_ event: String, _ slot: Int, _ members: [(name: String, value: JSON)]) {
        guard form == .json else { return }
        let file = state.updateQuietly { $0.slots[slot]?.file } ?? ""
        let line = JSON.versioned(
            [("event", .string(event)), ("file", .string(file))] + members
        )
        TerminalLines.write(line.text + "\n")
    }

    private static func draw(
        _ state: Monitor<State>,
        by drawer: TerminalLines,
        _ count: Int,
        _ size: Int64
    ) {
        while true {
            let now = Deadline.after(.zero)
            let (sentences, lines, total, isEnded) = state.updateQuietly { state in
                defer { state.sentences = [] }
                let slots = state.slots.sorted { $0.key < $1.key }.map(\.value)
                let progress = Transfer.Progress(
                    received: slots.reduce(state.bytes) { $0 + $1.progress.received },
                    sent: slots.reduce(state.bytes) { $0 + $1.progress.sent },
                    // A file may have grown since it was looked at.
                    total: max(size, slots.reduce(state.bytes) { $0 + $1.progress.sent })
                )
                state.total.note(progress, at: now)
                state.total.rename("\(state.files)/\(count) files")
                let lines = slots.map(\.line)
                return (state.sentences, lines, state.total, state.isEnded)
            }
            for sentence in sentences { drawer.say(sentence) }
            guard !isEnded else { break }
            drawer.draw { size in
                // The line of all is there in any case.
                let shown = lines.prefix(max(0, size.rows - 2))
                return (shown + [total]).map { $0.text(columns: size.columns, at: now) }
            }
            let _: Bool? = state.wait(until: .after(interval), isQuiet: true) {
                $0.isEnded || !$0.sentences.isEmpty ? true : nil
            }
        }
        drawer.clear()
        state.update { $0.isTakenAway = true }
    }
}
