// `spoolgate purge`: removes what the settings no longer promise to keep, beside a running daemon.
//
// An upload that anybody uses, or that changed since it was looked at, is left alone. Invariant: without
// `--force` nothing is removed that a client was promised.

import ArgumentParser
import Delivery
import Journal
import Logging
import Posix
import Spool
import TextFormats
import UploadProtocol

struct Purge: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Remove from the spool what the settings no longer promise to keep.",
        discussion: """
            Removes partial uploads (queue incoming) without activity for their route's \
            limits.max-age, and the stored answers of delivered ones (queue delivered) after its \
            response-retention, and uploads that failed (queue hold) after its \
            queue.failed-retention. With --older-than, only of those what is older than that. \
            With --force, whatever is older than that, promised or not; whole uploads that wait \
            for the upstream or for you (deferred, hold) and corrupt ones go so only if you name \
            their queue. Safe beside a running daemon, which removes the same by itself.
            """
    )

    @OptionGroup var options: SettingsOptions

    @Option(
        help: ArgumentHelp(
            "Remove only uploads without activity for this long: 90s, 30m, 24h, 7d.",
            valueName: "duration"
        ),
        transform: { text in
            guard let age = DurationText.read(text) else {
                throw ValidationError("'\(text)' is no duration; write 90s, 30m, 24h or 7d.")
            }
            return age
        }
    )
    var olderThan: Duration?

    @Option(
        help: ArgumentHelp(
            "A queue to purge, may be repeated: incoming, deferred, hold, delivered, corrupt "
                + "(default: incoming, delivered and, without --force, hold).",
            valueName: "queue"
        ),
        transform: { text in
            guard let queue = Queue(rawValue: text), queue != .active else {
                throw ValidationError(
                    "'\(text)' cannot be purged; name incoming, deferred, hold, delivered or corrupt."
                )
            }
            return queue
        }
    )
    var queue: [Queue] = []

    @Flag(help: "Remove also what clients were promised; needs --older-than.")
    var force = false

    @Flag(help: "Say what would be removed, remove nothing.")
    var dryRun = false

    @Flag(help: "One JSON object a line: each upload, then a summary.")
    var json = false

    /// The queues to look at, each once.
    private var queues: [Queue] {
        guard queue.isEmpty else { return Queue.allCases.filter(queue.contains) }
        // By force only what is named, where content is that nobody else has.
        return Retention.queues.filter { !force || $0 != .hold }
    }

    func validate() throws {
        if force, olderThan == nil {
            throw ValidationError(
                "--force removes what clients were promised: say with --older-than how old it is."
            )
        }
        let kept = queues.filter { !Retention.queues.contains($0) }.map(\.rawValue)
        if !force, !kept.isEmpty {
            throw ValidationError(
                "What is in \(kept.joined(separator: " and ")) is kept until somebody says "
                    + "otherwise: --force --older-than removes it."
            )
        }
    }

    func run() throws {
        try spoolgate.run { () throws(CommandFailure) in
            let settings = try options.settings()
            let spool = try openSpool(options)
            let log = Log(Serve.logger(.warning))
            let purging = Purging(
                spool: spool,
                events: Events(settings, spool: spool, log: log),
                retention: Retention(settings),
                queues: queues,
                olderThan: olderThan,
                isForced: force,
                report: PurgeReport(isDryRun: dryRun, isJSON: json)
            )
            do throws(SpoolError) { try purging.run() } catch {
                throw CommandFailure(code: .unavailable, sentence: error.sentence)
            }
        }
    }
}

/// One purge at work.
private final class Purging {
    /// Uploads whose removals are made durable together: each takes a descriptor until then, and the
    /// usual limit is 1,024, of which the spool's directories take a quarter.
    private static let batch = 512
    /// Content without a record belongs to nobody, but to a creation under way it may.
    private static let orphanAge: Int64 = 3_600

    private let spool: Spool
    private let events: Events
    private let retention: Retention
    private let queues: [Queue]
    private let olderThan: Int64
    private let orphanAge: Int64
    private let isForced: Bool
    private let report: PurgeReport
    private var due: [UploadSummary] = []

    init(
        spool: Spool,
        events: Events,
        retention: Retention,
        queues: [Queue],
        olderThan: Duration?,
        isForced: Bool,
        report: PurgeReport
    ) {
        self.spool = spool
        self.events = events
        self.retention = retention
        self.queues = queues
        self.olderThan = olderThan?.components.seconds ?? 0
        orphanAge = olderThan?.components.seconds ?? Self.orphanAge
        self.isForced = isForced
        self.report = report
    }

    func run() throws(SpoolError) {
        // What is to go whatever was promised goes by the clock that a person sees.
        let now = isForced ? spool.clock.now : spool.clock.confirmed
        defer { spool.noteClock() }
        let age = isForced ? olderThan : max(olderThan, retention.shortest(queues))
        // Everything is that old, also what says that it is of the future.
        let limit = WallTime(seconds: isForced && age == 0 ? .max : now.seconds - age)
        try spool.forEachIdle(
            in: queues,
            since: limit,
            seesUse: report.isDryRun,
            step: report.looked
        ) {
            summary throws(SpoolError) in
            if !isForced, !report.isDryRun, try spool.mendTime(of: summary) { return }
            guard isDue(summary, at: now) else { return }
            due.append(summary)
            if due.count >= Self.batch { try removeDue() }
        }
        try removeDue()
        if queues.contains(.incoming) {
            try spool.removeOrphans(
                unchangedSince: WallTime(seconds: now.seconds - orphanAge),
                isDryRun: report.isDryRun
            ) { id, status in report.removed(orphan: id, status) }
        }
        report.end(retention, clockLead: spool.clock.lead)
    }

    private func isDue(_ summary: UploadSummary, at now: WallTime) -> Bool {
        if isForced || retention.isOver(summary, at: now) { return true }
        if !retention.knows(summary.creation?.route) { report.keep(summary) }
        return false
    }

    private func removeDue() throws(SpoolError) {
        defer { due = [] }
        if report.isDryRun {
            for summary in due { report.note(summary, isRemoved: !summary.isInUse) }
            return
        }
        try spool.remove(due) { summary, isRemoved in
            report.note(summary, isRemoved: isRemoved)
            if isRemoved { events.note(Event(.purged, of: summary)) }
        }
    }
}
