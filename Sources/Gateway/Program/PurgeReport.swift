// The output of `purge`: one line per upload, then a summary, for people or as JSON.

import SpoolgateDelivery
import SpoolgatePosix
import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol

final class PurgeReport {
    let isDryRun: Bool
    let isJSON: Bool
    private let progress = ProgressLine()
    private var count = 0
    private var removed = 0
    private var inUse = 0
    private var freed: Int64 = 0
    /// The number of uploads whose route is missing from the settings, and the names of up to `routeLimit` such routes.
    private var kept = 0
    private var unknownRoutes: Set<String> = []
    private static let routeLimit = 10

    init(isDryRun: Bool, isJSON: Bool) {
        self.isDryRun = isDryRun
        self.isJSON = isJSON
    }

    var isEmpty: Bool { removed + inUse + kept == 0 }

    private var word: String { isDryRun ? "would remove" : "removed" }

    func looked() {
        count += 1
        progress.show("\(count) checked, \(removed) \(word)")
    }

    /// Counts an upload whose route's retention is unknown.
    func keep(_ summary: UploadSummary) {
        kept += 1
        if unknownRoutes.count < Self.routeLimit {
            unknownRoutes.insert(summary.creation?.route ?? "?")
        }
    }

    /// Prints and counts an upload; `isRemoved` is false if the upload was kept because it is in use.
    func note(_ summary: UploadSummary, isRemoved: Bool) {
        let action = isRemoved ? word : "in use"
        if isRemoved {
            removed += 1
            freed += summary.diskUsage
        } else {
            inUse += 1
        }
        progress.print(
            isJSON
                ? JSON.line([
                    ("upload", .string(summary.id.description)),
                    ("queue", .string(summary.queue.rawValue)),
                    ("cause", .string(summary.holdCause?.rawValue)),
                    ("action", .string(action)),
                    ("disk-usage", .integer(summary.diskUsage)),
                    ("last-activity", .string(summary.lastActivity.description)),
                ])
                : "\(action) \(summary.id) (\(summary.queue.rawValue)"
                    + (summary.holdCause.map { ": \($0.rawValue), " } ?? ", ")
                    + "\(ByteSize.rounded(summary.diskUsage)), "
                    + "last activity \(summary.lastActivity))"
        )
    }

    /// Prints and counts content without a record that was removed, or moved to `corrupt`.
    func note(orphan id: UploadID, _ status: FileStatus, _ outcome: Spool.Orphan) {
        var word = isDryRun ? "would move to corrupt" : "moved to corrupt"
        if outcome == .removed {
            word = self.word
            removed += 1
            freed += status.diskUsage
        }
        progress.print(
            isJSON
                ? JSON.line([
                    ("upload", .string(id.description)),
                    ("queue", .null),
                    ("action", .string(word)),
                    ("disk-usage", .integer(status.diskUsage)),
                    ("last-activity", .string(status.modified.description)),
                ])
                : "\(word) \(id) (content without a record, "
                    + "\(ByteSize.rounded(status.diskUsage)), last activity \(status.modified))"
        )
    }

    /// Prints the summary; `clockLead` is how many seconds the system clock is ahead of the time known to have passed.
    func end(_ retention: Retention, clockLead: Int64?) {
        guard !isJSON else {
            return progress.print(
                JSON.line([
                    ("summary", .string(isDryRun ? "dry-run" : "purge")),
                    ("removed", .integer(removed)),
                    ("freed", .integer(freed)),
                    ("in-use", .integer(inUse)),
                    ("unknown-route", .integer(kept)),
                    ("clock-lead", .integer(clockLead ?? 0)),
                ])
            )
        }
        if kept > 0 {
            let routes = unknownRoutes.sorted().joined(separator: ", ").forTerminal
            let times = Retention.queues.compactMap { queue in
                retention.longest(queue).map { "\(queue.rawValue) \(DurationText.text($0))" }
            }
            progress.print(
                "Kept \(kept, of: "upload") of routes missing from the settings (\(routes)) for the longest "
                    + "time that any route sets: \(times.joined(separator: ", "))."
            )
        }
        if let clockLead {
            progress.print(
                "The clock is \(clockLead)s ahead of the time known to have passed. Ages ignore the "
                    + "difference until the clock has run steadily for "
                    + "\(DurationText.text(SpoolClock.patience)) of uptime."
            )
        }
        let verb = isDryRun ? "Would remove" : "Removed"
        let used = inUse == 0 ? "" : "; \(inUse) in use, kept"
        let freeing = isDryRun ? "freeing" : "freed"
        progress.print(
            "\(verb) \(removed, of: "upload"), \(freeing) \(ByteSize.rounded(freed))\(used)."
        )
    }
}
