// `spoolgate purge`: removes what the settings no longer promise to keep, beside a running daemon.
//
// Invariant: without `--force` nothing is removed that a client was promised.

import ArgumentParser
import Logging
import SpoolgateDelivery
import SpoolgateJournal
import SpoolgatePosix
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol

struct Purge: SpoolgateCommand {
    static let configuration = CommandConfiguration(
        abstract: "Remove from the spool what the settings no longer promise to keep.",
        discussion: """
            Removes partial uploads (queue incoming) without activity for their route's \
            limits.max-age, and the stored answers of delivered ones (queue delivered) after its \
            response-retention, and uploads that failed (queue hold) after its \
            queue.failed-retention. Of those, only what is selected: by identity, age, route, owner \
            or, with --keep-total, the oldest until the rest fits. With --force, whatever is \
            selected, promised or not; whole uploads that wait for the upstream or for you \
            (deferred, hold) and corrupt ones go so only if you name them or their queue. Safe \
            beside a running daemon, which removes what is over by itself.
            """
    )

    @OptionGroup var options: SettingsOptions
    @OptionGroup var uploads: NamedUploads
    @OptionGroup var selection: UploadSelection

    @Option(
        help: ArgumentHelp(
            "Remove the oldest, only until all that is left takes no more than this on the disk: "
                + "500MiB, 50GiB.",
            valueName: "size"
        ),
        transform: readSize
    )
    var keepTotal: Int64?

    @Option(
        help: ArgumentHelp(
            "A queue to purge, may be repeated: incoming, deferred, hold, delivered, corrupt "
                + "(default: incoming, delivered and, without --force, hold).",
            valueName: "queue"
        ),
        completion: .list(Purge.queues.map(\.rawValue)),
        transform: reading(
            "cannot be purged; name incoming, deferred, hold, delivered or corrupt."
        ) { text in Purge.queues.first { $0.rawValue == text } }
    )
    var queue: [Queue] = []

    @Flag(
        help:
            "Remove also what clients were promised; needs uploads, --older-than or --keep-total."
    )
    var force = false

    @Flag(help: "Say what would be removed, remove nothing.")
    var dryRun = false

    @Flag(help: "One JSON object a line: each upload, then a summary.")
    var json = false

    private static let queues = Queue.allCases.filter { $0 != .active }

    /// The queues to look at, each once.
    private var chosenQueues: [Queue] {
        guard queue.isEmpty else { return Queue.allCases.filter(queue.contains) }
        // By force only what is named, where content is that nobody else has.
        return Retention.queues.filter { !force || $0 != .hold }
    }

    func validate() throws {
        let isSelecting =
            selection.isNarrow || selection.olderThan != nil || keepTotal != nil || !queue.isEmpty
        if !uploads.ids.isEmpty, isSelecting {
            throw ValidationError("Name the uploads to remove, or say which of all; not both.")
        }
        if force, uploads.ids.isEmpty, selection.olderThan == nil, keepTotal == nil {
            throw ValidationError(
                "--force removes what clients were promised: name the uploads, or say with "
                    + "--older-than how old they are, or with --keep-total how much is to be left."
            )
        }
        let kept = chosenQueues.filter { !Retention.queues.contains($0) }.map(\.rawValue)
        if !force, !kept.isEmpty {
            throw ValidationError(
                "What is in \(kept.joined(separator: " and ")) is kept until somebody says "
                    + "otherwise: --force --older-than removes it."
            )
        }
    }

    func perform() throws(CommandFailure) {
        let settings = try options.settings()
        let spool = try openSpool(settings)
        let log = Log(Serve.logger(.warning, node: settings.node))
        let report = PurgeReport(isDryRun: dryRun, isJSON: json)
        let purging = Purging(
            spool: spool,
            events: Events(settings, spool: spool, log: log),
            retention: Retention(settings),
            queues: chosenQueues,
            selection: selection,
            isForced: force,
            report: report
        )
        guard uploads.ids.isEmpty else { return try purging.remove(uploads.ids) }
        try askSpool(try purging.run(keeping: keepTotal))
        if report.isEmpty { try selection.requireRoutes(of: settings) }
        if let keepTotal, let left = report.left, left > keepTotal {
            throw CommandFailure(
                code: .refused,
                sentence: "\(ByteSize.rounded(left)) are left in \(spool.directory), more than "
                    + "\(ByteSize.text(keepTotal)): that was promised, not selected, or is in use"
            )
        }
    }
}
