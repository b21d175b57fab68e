// `spoolgate requeue`: retries uploads that are deferred, failed, held or indeterminate.
//
// Invariant: an upload that the upstream may already have is requeued only if it is named, or with --indeterminate.

import ArgumentParser
import SpoolgatePosix
import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol

struct Requeue: SpoolgateCommand {
    static let configuration = CommandConfiguration(
        abstract: "Retry the delivery of uploads.",
        discussion: """
            Immediately retries uploads that are deferred, failed, held or indeterminate. Their time \
            in the queue starts over. The upstream may already have received an indeterminate upload; \
            if so, it receives the upload a second time. Safe while a daemon runs; an upload that is in \
            use is not changed.
            """
    )

    @OptionGroup var options: SettingsOptions
    @OptionGroup var uploads: NamedUploads

    @Flag(help: "Requeue all deferred and failed uploads; held uploads stay on hold.")
    var all = false

    @Option(
        help: .value("queue", "With --all: only this queue, deferred or hold; may be repeated."),
        completion: .list(Requeue.queues.map(\.rawValue)),
        transform: reading("cannot be requeued; use deferred or hold.") { text in
            Requeue.queues.first { $0.rawValue == text }
        }
    )
    var queue: [Queue] = []

    @Flag(help: "With --all: also requeue uploads that the upstream may already have received.")
    var indeterminate = false

    @Flag(help: "Print one JSON object per upload.")
    var json = false

    private static let queues = [Queue.deferred, .hold]

    func validate() throws {
        if all != uploads.ids.isEmpty {
            throw ValidationError("Name the uploads to requeue, or use --all.")
        }
        if !all, indeterminate || !queue.isEmpty {
            throw ValidationError("--queue and --indeterminate require --all.")
        }
    }

    func perform() throws(CommandFailure) {
        var action = try UploadAction(options, word: "requeued", json: json)
        for id in uploads.ids { action.apply(to: id, Self.requeue) }
        if all { try requeueAll(&action) }
        try action.end()
    }

    private func requeueAll(_ action: inout UploadAction) throws(CommandFailure) {
        let queues = queue.isEmpty ? Self.queues : queue
        let spool = action.spool
        var count = 0
        var held = 0
        try withSpoolErrors(
            try spool.forEachUpload { summary in
                guard queues.contains(summary.queue) else { return }
                guard summary.holdCause != .held else {
                    held += 1
                    return
                }
                count += 1
                requeue(summary, &action)
            }
        )
        if count == 0, !json { noteNothing(in: spool.directory, queues, held: held) }
    }

    private func noteNothing(in directory: String, _ queues: [Queue], held: Int) {
        let names = Self.queues.filter(queues.contains).map(\.rawValue)
        let rest =
            held == 0
            ? ""
            : " \(held, of: "upload") held by an operator, see spoolgate list --state held."
        print(
            "No uploads to requeue in \(names.joined(separator: " and ")) of \(directory).\(rest)"
        )
    }

    private func requeue(_ summary: UploadSummary, _ action: inout UploadAction) {
        let isUnknown = summary.queue == .hold && summary.holdCause != .failed
        guard !isUnknown || indeterminate else {
            return action.refuse(
                summary.id,
                "outcome is indeterminate (the upstream may already have the upload); name it, or "
                    + "add --indeterminate"
            )
        }
        action.apply(to: summary.id) { upload throws(SpoolError) in
            // The upload may have become indeterminate since it was read.
            guard indeterminate || upload.state.phase != .indeterminate else {
                return .refused(upload.stateClause)
            }
            return try Self.requeue(upload)
        }
    }

    private static func requeue(_ upload: Upload) throws(SpoolError) -> ActionOutcome {
        switch upload.state.phase {
        case .deferred, .failed, .held, .indeterminate: return try upload.requeueWhole()
        case .receiving, .delivering, .delivered: return .refused(upload.stateClause)
        }
    }
}
