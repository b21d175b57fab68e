// `spoolgate purge`: removes what clients abandoned, beside a running daemon.
//
// An upload that anybody uses, or that changed since it was looked at, is left alone.

import ArgumentParser
import Gateway
import Logging
import Posix
import Spool
import UploadProtocol

struct Purge: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Remove stale uploads from the spool.",
        discussion: """
            Removes uploads without activity for the time given: partial ones (queue incoming) and \
            the stored answers of delivered ones (queue delivered). Whole uploads that still wait \
            for the upstream or for you (deferred, hold) and corrupt ones go only if you name their \
            queue. Safe beside a running daemon.
            """
    )

    @OptionGroup var options: SettingsOptions

    @Option(
        help: ArgumentHelp(
            "Remove uploads without activity for this long: 90s, 30m, 24h, 7d.",
            valueName: "duration"
        ),
        transform: { text in
            guard let age = DurationText.read(text) else {
                throw ValidationError("'\(text)' is no duration; write 90s, 30m, 24h or 7d.")
            }
            return age
        }
    )
    var olderThan: Duration

    @Option(
        help: ArgumentHelp(
            "A queue to purge, may be repeated: incoming, deferred, hold, delivered, corrupt "
                + "(default: incoming and delivered).",
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

    @Flag(help: "Say what would be removed, remove nothing.")
    var dryRun = false

    @Flag(help: "One JSON object a line: each upload, then a summary.")
    var json = false

    /// What was done with the uploads that were old enough.
    private struct Tally {
        var removed = 0
        var inUse = 0
        var freed: Int64 = 0
    }

    func run() throws {
        try spoolgate.run { () throws(CommandFailure) in
            let spool = try openSpool(options)
            let log = Log(Serve.logger(.warning))
            let events = Events(try options.settings(), spool: spool.directory, log: log)
            let queues = queue.isEmpty ? [.incoming, .delivered] : queue
            let limit = WallTime.now.seconds - olderThan.components.seconds
            var tally = Tally()
            for summary in try summaries(of: spool)
            where queues.contains(summary.queue) && summary.lastActivity.seconds <= limit {
                if try purge(summary, from: spool, &tally) {
                    events.note(Event(.purged, of: summary))
                }
            }
            if queues.contains(.incoming) {
                try purgeOrphans(of: spool, unchangedSince: WallTime(seconds: limit), &tally)
            }
            report(tally)
        }
    }

    /// Removes content whose record is gone: what a removal that the disk cut short left.
    private func purgeOrphans(
        of spool: Spool,
        unchangedSince limit: WallTime,
        _ tally: inout Tally
    ) throws(CommandFailure) {
        let word = dryRun ? "would remove" : "removed"
        do throws(SpoolError) {
            try spool.removeOrphans(unchangedSince: limit, isDryRun: dryRun) { id, status in
                tally.removed += 1
                tally.freed += status.diskUsage
                print(
                    json
                        ? JSON.object([
                            ("upload", .string(id.description)),
                            ("queue", .null),
                            ("action", .string(word)),
                            ("disk-usage", .integer(status.diskUsage)),
                            ("last-activity", .string(status.modified.description)),
                        ]).text
                        : "\(word) \(id) (content without a record, "
                            + "\(ByteSize.rounded(status.diskUsage)), "
                            + "last activity \(status.modified))"
                )
            }
        } catch {
            throw CommandFailure(code: .unavailable, sentence: error.sentence)
        }
    }

    /// Purges one upload, unless it is in use; returns whether it was removed.
    private func purge(
        _ summary: UploadSummary,
        from spool: Spool,
        _ tally: inout Tally
    ) throws(CommandFailure) -> Bool {
        var isRemoved = !summary.isInUse
        if !dryRun, isRemoved {
            do throws(SpoolError) {
                isRemoved = try spool.remove(summary.id, ifUnchangedSince: summary)
            } catch {
                throw CommandFailure(code: .unavailable, sentence: error.sentence)
            }
        }
        let word = isRemoved ? (dryRun ? "would remove" : "removed") : "in use"
        if isRemoved {
            tally.removed += 1
            tally.freed += summary.diskUsage
        } else {
            tally.inUse += 1
        }
        if json {
            print(
                JSON.object([
                    ("upload", .string(summary.id.description)),
                    ("queue", .string(summary.queue.rawValue)),
                    ("cause", summary.holdCause.map { .string($0.rawValue) } ?? .null),
                    ("action", .string(word)),
                    ("disk-usage", .integer(summary.diskUsage)),
                    ("last-activity", .string(summary.lastActivity.description)),
                ]).text
            )
        } else {
            print(
                "\(word) \(summary.id) (\(summary.queue.rawValue)"
                    + (summary.holdCause.map { ": \($0.rawValue), " } ?? ", ")
                    + "\(ByteSize.rounded(summary.diskUsage)), "
                    + "last activity \(summary.lastActivity))"
            )
        }
        return isRemoved && !dryRun
    }

    private func report(_ tally: Tally) {
        if json {
            print(
                JSON.object([
                    ("summary", .string(dryRun ? "dry-run" : "purge")),
                    ("removed", .integer(Int64(tally.removed))),
                    ("freed", .integer(tally.freed)),
                    ("in-use", .integer(Int64(tally.inUse))),
                ]).text
            )
        } else {
            let uploads = tally.removed == 1 ? "1 upload" : "\(tally.removed) uploads"
            let verb = dryRun ? "Would remove" : "Removed"
            let left = tally.inUse == 0 ? "" : "; \(tally.inUse) in use, left alone"
            let freed = dryRun ? "freeing" : "freed"
            print("\(verb) \(uploads), \(freed) \(ByteSize.rounded(tally.freed))\(left).")
        }
    }
}
