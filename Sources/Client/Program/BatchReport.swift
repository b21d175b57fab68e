// Reports the progress of several files: one line for each running file and one for the total, or JSON.
//
// The lines have a thread of their own, so that a stopped terminal (Ctrl-S) delays no upload. Invariant: if standard
// error is not a terminal, no control character is written, and only problems are reported.

import Glibc
import ResumableUpload
import SpoolgatePosix
import SpoolgateTextFormats

/// The report of a command, usable from any thread.
///
/// A `slot` is the number of one of the concurrent jobs, counted from 0.
final class BatchReport: Sendable {
    private struct Slot {
        var file: String
        var line: TransferLine
        var progress = Transfer.Progress(received: 0, sent: 0, total: nil)
        var nextJSON = Deadline.after(.zero)
    }

    private struct State {
        var slots: [Int: Slot] = [:]
        /// The totals of all finished files, accepted or not.
        var bytes: Int64 = 0
        var files = 0
        var total = TransferLine("")
        /// Messages to print once, above the lines.
        var sentences: [String] = []
        var isEnded = false
        var isTakenAway = false
    }

    private let form: ReportForm
    private let state: Monitor<State>
    private static let interval = Duration.milliseconds(250)

    /// Begins a report on `count` files with `size` bytes in total.
    init(_ form: ProgressForm, count: Int, size: Int64) {
        let state = Monitor(State())
        self.state = state
        self.form = ReportForm(form) { Self.draw(state, by: $0, count, size) }
    }

    // MARK: One file

    func begin(_ slot: Int, _ source: UploadSource) {
        state.updateQuietly {
            $0.slots[slot] = Slot(file: source.shown, line: TransferLine(source.name))
        }
    }

    /// Records the progress of a file; returns true if the server has received more bytes.
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
        if isDue { report("progress", slot, progress.members) }
        return isMore
    }

    /// Records that a file waits before its next attempt, and why.
    func wait(_ slot: Int, _ duration: Duration, _ reason: String) {
        state.updateQuietly { $0.slots[slot]?.line.wait(until: .after(duration), reason) }
        let milliseconds = JSON.integer(duration.wholeMilliseconds)
        report("waiting", slot, [("milliseconds", milliseconds), ("reason", .string(reason))])
    }

    func beginAnew(_ slot: Int, _ reason: String) {
        report("begun-anew", slot, [("reason", .string(reason))])
        let file = state.updateQuietly { $0.slots[slot]?.file } ?? ""
        if form == .lines { say("\(file): \(reason)") }
    }

    /// Records the result for a file.
    ///
    /// `status` is nil without a response; `code` is the exit code that the command would return for this file
    /// alone; `reason` is nil if the file was accepted; `place` is the URL to which the response redirects; `wasTaken`
    /// is true if an earlier run uploaded the file.
    func end(
        _ slot: Int,
        _ source: UploadSource,
        status: Int?,
        code: Int32,
        reason: String? = nil,
        place: String? = nil,
        wasTaken: Bool = false
    ) {
        report(
            "end",
            slot,
            [
                ("status", .integer(status)),
                ("exit", .integer(Int64(code))), ("reason", .string(reason)),
                ("place", .string(place)), ("before", .boolean(wasTaken)),
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

    /// Records that the command waits before it starts.
    func wait(_ duration: Duration, _ reason: String) {
        say("waiting: \(reason)", isFault: false)
        guard form == .json else { return }
        let members: [(name: String, value: JSON)] = [
            ("event", .string("waiting")), ("milliseconds", .integer(duration.wholeMilliseconds)),
            ("reason", .string(reason)),
        ]
        TerminalLines.write(JSON.versioned(members).text + "\n")
    }

    /// Prints a message above the lines.
    ///
    /// If `isFault` is true, the message is printed even if standard error is not a terminal.
    func say(_ sentence: String, isFault: Bool = true) {
        switch form {
        case .lines:
            let line = "\(UploadCommand.name): \(sentence)".forTerminal
            state.update { $0.sentences.append(line) }
        case .none: if isFault { UploadCommand.report(sentence) }
        case .json:
            guard isFault else { return }
            let event = ("event", JSON.string("message"))
            let line = JSON.versioned([event, ("reason", .string(sentence))])
            TerminalLines.write(line.text + "\n")
        }
    }

    /// Removes the lines and prints the summary; returns `summary` if the caller has to print it.
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
                ("event", .string("summary")), ("accepted", .integer(Int64(count.accepted))),
                ("before", .integer(Int64(count.skipped))),
                ("refused", .integer(Int64(count.refused))),
                ("later", .integer(Int64(count.later))), ("bytes", .integer(count.bytes)),
                ("exit", .integer(Int64(code))),
            ]
            TerminalLines.write(JSON.versioned(members).text + "\n")
            return nil
        }
    }

    private func report(_ event: String, _ slot: Int, _ members: [(name: String, value: JSON)]) {
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
                    // A file may have grown since the command began.
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
                // The line of the total is always shown.
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
