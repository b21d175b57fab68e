// `spoolgate purge`: removes uploads that the settings no longer promise to keep, even while a daemon runs.
//
// Invariant: without `--force`, no promise to a client is broken.

import ArgumentParser
import SpoolgateDelivery
import SpoolgatePosix
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateUploadProtocol

struct Purge: SpoolgateCommand {
    static let configuration = CommandConfiguration(
        abstract: "Remove uploads that the settings no longer promise to keep.",
        discussion: """
            Removes partial uploads (queue incoming) idle for their route's limits.max-age, stored \
            responses of delivered uploads (queue delivered) after its response-retention, and failed \
            uploads (queue hold) after its queue.failed-retention. Select some of them by identity, \
            age, route or owner. With --force, all selected uploads are removed, even if they were \
            promised to clients; complete uploads that wait for the upstream or an operator (deferred, \
            hold) and corrupt ones only if they or their queue are named. Safe while a daemon runs, \
            which removes expired uploads by itself.
            """
    )

    @OptionGroup var options: SettingsOptions
    @OptionGroup var uploads: NamedUploads
    @OptionGroup var selection: UploadSelection

    @Option(
        help: .value(
            "queue",
            "Only this queue; may be repeated: incoming, deferred, hold, delivered, corrupt "
                + "(default: incoming, delivered and, without --force, hold)."
        ),
        completion: .list(Purge.queues.map(\.rawValue)),
        transform: reading(
            "cannot be purged; use incoming, deferred, hold, delivered or corrupt."
        ) { text in Purge.queues.first { $0.rawValue == text } }
    )
    var queue: [Queue] = []

    @Flag(help: "Also remove uploads promised to clients; requires uploads or --older-than.")
    var force = false

    @Flag(help: "Print the uploads that would be removed, but remove none.")
    var dryRun = false

    @Flag(help: "Print one JSON object per upload, then a summary.")
    var json = false

    private static let queues = Queue.allCases.filter { $0 != .active }

    /// The queues to purge, without duplicates.
    private var chosenQueues: [Queue] {
        guard queue.isEmpty else { return Queue.allCases.filter(queue.contains) }
        // `--force` spares `hold` unless the queue or its uploads are named, because held content exists only here.
        return Retention.queues.filter { !force || $0 != .hold }
    }

    func validate() throws {
        let isSelecting = selection.isNarrow || selection.olderThan != nil || !queue.isEmpty
        if !uploads.ids.isEmpty, isSelecting {
            throw ValidationError(
                "Named uploads cannot be combined with --older-than, --route, --owner or --queue."
            )
        }
        if force, uploads.ids.isEmpty, selection.olderThan == nil {
            throw ValidationError(
                "--force removes uploads promised to clients: name the uploads, or use --older-than."
            )
        }
        let kept = chosenQueues.filter { !Retention.queues.contains($0) }.map(\.rawValue)
        if !force, !kept.isEmpty {
            throw ValidationError(
                "Uploads in \(kept.joined(separator: " and ")) are kept until an operator removes "
                    + "them: use --force --older-than."
            )
        }
    }

    func perform() throws(CommandFailure) {
        let settings = try options.settings()
        let spool = try openSpoolForChange(settings)
        let report = PurgeReport(isDryRun: dryRun, isJSON: json)
        let purging = Purging(
            spool,
            settings,
            queues: chosenQueues,
            selection: selection,
            isForced: force,
            report: report
        )
        guard uploads.ids.isEmpty else { return try purging.remove(uploads.ids) }
        try withSpoolErrors(try purging.run())
        if report.isEmpty { try selection.requireRoutes(of: settings) }
    }
}
