// `spoolgate requeue`: has uploads tried again, whatever became of them so far.
//
// Invariant: one that the upstream may have already is queued again only where somebody asked for
// exactly that, by its identity or by --indeterminate.

import ArgumentParser
import Journal
import Posix
import Spool
import TextFormats
import UploadProtocol

struct Requeue: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Have uploads tried again.",
        discussion: """
            Queues whole uploads again that wait, failed, are held, or whose outcome nobody knows; \
            their time in the queue begins anew. Of an indeterminate one the upstream may have \
            everything already: it gets it twice then. With --due the daemon only looks through the \
            queue now, for those whose time has come. Safe beside a running daemon; an upload that \
            is in use is left alone.
            """
    )

    @OptionGroup var options: SettingsOptions
    @OptionGroup var uploads: NamedUploads

    @Flag(help: "All that wait or failed; what an operator holds stays held.")
    var all = false

    @Flag(help: "Only have the daemon run the queue now; nothing is changed.")
    var due = false

    @Option(
        help: ArgumentHelp(
            "With --all: only this queue, deferred or hold; may be repeated.",
            valueName: "queue"
        ),
        completion: .list([Queue.deferred, .hold].map(\.rawValue)),
        transform: { text in
            guard let queue = Queue(rawValue: text), [.deferred, .hold].contains(queue) else {
                throw ValidationError("'\(text)' cannot be queued again; name deferred or hold.")
            }
            return queue
        }
    )
    var queue: [Queue] = []

    @Flag(help: "With --all: also those that the upstream may have already.")
    var indeterminate = false

    @Flag(help: "One JSON object a line, for each upload.")
    var json = false

    func validate() throws {
        if [all, due, !uploads.ids.isEmpty].count(where: { $0 }) != 1 {
            throw ValidationError("Name the uploads to queue again, or --all, or --due.")
        }
        if !all, indeterminate || !queue.isEmpty {
            throw ValidationError("--queue and --indeterminate go with --all.")
        }
    }

    func run() throws {
        try spoolgate.run { () throws(CommandFailure) in
            if due { return try runQueue() }
            var action = try UploadAction(options, word: "requeued", json: json)
            for id in uploads.ids { action.apply(to: id, Self.requeue) }
            if all { try requeueAll(&action) }
            try action.end()
        }
    }

    /// Has the daemons look through the queue.
    private func runQueue() throws(CommandFailure) {
        let spool = try openSpool(options)
        let now = spool.clock.now
        var count = 0
        var isServed = false
        do throws(SpoolError) {
            try spool.forEachWaiting { _, time in
                time.map { $0 <= now } ?? false
            } _: { upload in
                if upload.next.map({ $0 <= now }) ?? false { count += 1 }
            }
            isServed = try spool.wakeDaemons()
        } catch {
            throw CommandFailure(code: .unavailable, sentence: error.sentence)
        }
        guard isServed else {
            throw CommandFailure(
                code: .unavailable,
                sentence: "no daemon serves from \(spool.directory), which could run the queue; "
                    + "systemctl start spoolgate"
            )
        }
        print(
            json
                ? JSON.line([("action", .string("run")), ("due", .integer(Int64(count)))])
                : "The daemon runs the queue: \(uploads: count) due."
        )
    }

    private func requeueAll(_ action: inout UploadAction) throws(CommandFailure) {
        let queues = queue.isEmpty ? [.deferred, .hold] : queue
        let spool = action.spool
        do throws(SpoolError) {
            try spool.forEachUpload { summary in
                guard queues.contains(summary.queue), summary.holdCause != .held else { return }
                requeue(summary, &action)
            }
        } catch {
            throw CommandFailure(code: .unavailable, sentence: error.sentence)
        }
    }

    private func requeue(_ summary: UploadSummary, _ action: inout UploadAction) {
        let isUnknown = summary.queue == .hold && summary.holdCause != .failed
        guard !isUnknown || indeterminate else {
            return action.refuse(
                summary.id,
                "its outcome is indeterminate, the upstream may have it already; name it, or add "
                    + "--indeterminate"
            )
        }
        action.apply(to: summary.id) { upload throws(SpoolError) in
            // It may have got there since it was looked at.
            guard indeterminate || upload.state.phase != .indeterminate else {
                return .refused(upload.stateClause)
            }
            return try Self.requeue(upload)
        }
    }

    private static func requeue(_ upload: Upload) throws(SpoolError) -> ActionOutcome {
        switch upload.state.phase {
        case .deferred, .failed, .held, .indeterminate:
            guard upload.isWhole else { return .refused("a part of its content is lost") }
            let was = upload.formerStateClause
            try upload.requeue(at: .now)
            return .done(was: was)
        case .receiving, .delivering, .delivered: return .refused(upload.stateClause)
        }
    }
}
