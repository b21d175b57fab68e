// One purge: removes expired or named uploads, or uploads older than a time.
//
// Uploads in use, or changed since they were read, are kept. Invariant: unless the purge is forced, no upload is
// removed before its `Retention` ends.

import Logging
import SpoolgateDelivery
import SpoolgateJournal
import SpoolgatePosix
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateUploadProtocol

final class Purging {
    /// The number of uploads whose removals are made durable together.
    ///
    /// Each upload needs a file descriptor until then. The usual limit is 1,024; the spool's directories need a
    /// quarter.
    private static let batch = 512
    /// The minimum age, in seconds, of content without a record that is moved to `corrupt` or removed.
    private static let orphanAge: Int64 = 3_600

    private let spool: Spool
    private let events: Events
    private let retention: Retention
    private let queues: [Queue]
    private let selection: UploadSelection
    private let isForced: Bool
    private let report: PurgeReport
    private let now: WallTime
    private var due: [UploadSummary] = []
    private var hasRemoved = false

    /// If `isForced`, uploads are removed even before their retention ends.
    init(
        _ spool: Spool,
        _ settings: Settings,
        queues: [Queue],
        selection: UploadSelection,
        isForced: Bool,
        report: PurgeReport
    ) {
        self.spool = spool
        let log = Log(Serve.logger(.warning, node: settings.node))
        events = Events(settings, spool: spool, log: log)
        retention = Retention(settings)
        self.queues = queues
        self.selection = selection
        self.isForced = isForced
        self.report = report
        // A forced purge uses the system clock, as its operator does.
        now = isForced ? spool.clock.now : spool.clock.confirmed
    }

    // MARK: All

    /// Removes the uploads that are due.
    func run() throws(SpoolError) {
        defer {
            spool.noteClock()
            // Daemons report the numbers of uploads. If waking them fails, their next check of the spool corrects the
            // numbers.
            if hasRemoved { spool.wake() }
        }
        try findDue()
        try removeDue()
        if queues.contains(.incoming), !selection.isNarrow {
            let age = selection.olderThan?.components.seconds ?? Self.orphanAge
            try spool.recoverOrphans(
                unchangedSince: WallTime(seconds: now.seconds - age),
                isDryRun: report.isDryRun
            ) { id, status, outcome in report.note(orphan: id, status, outcome) }
            try removeOldOrphans()
        }
        if isWhole { spool.notePurge() }
        report.end(retention, clockLead: spool.clock.lead)
    }

    /// Whether this purge removes all expired uploads, so that daemons need not do so.
    private var isWhole: Bool {
        !report.isDryRun && !selection.isNarrow && selection.olderThan == nil
            && Retention.queues.allSatisfy(queues.contains)
    }

    /// Removes content from `corrupt` whose record is missing and whose retention has ended.
    private func removeOldOrphans() throws(SpoolError) {
        try spool.forEachIdle(
            in: [.corrupt],
            since: now,
            seesUse: report.isDryRun,
            step: report.looked
        ) { summary throws(SpoolError) in
            if retention.isExpired(summary, at: now) { try add(summary) }
        }
        try removeDue()
    }

    private func findDue() throws(SpoolError) {
        let olderThan = selection.olderThan?.components.seconds ?? 0
        let age = isForced ? olderThan : max(olderThan, retention.shortest(queues))
        // A forced purge with age 0 matches every upload, even if its last activity is in the future.
        let limit = WallTime(seconds: isForced && age == 0 ? .max : now.seconds - age)
        try spool.forEachIdle(
            in: queues,
            since: limit,
            seesUse: report.isDryRun,
            step: report.looked
        ) { summary throws(SpoolError) in
            guard selection.admits(summary.creation) else { return }
            if !isForced, !report.isDryRun, try spool.correctTime(of: summary) { return }
            if isDue(summary) {
                try add(summary)
            } else if !retention.knows(summary.creation?.route) {
                report.keep(summary)
            }
        }
    }

    private func isDue(_ summary: UploadSummary) -> Bool {
        isForced || retention.isExpired(summary, at: now)
    }

    private func add(_ summary: UploadSummary) throws(SpoolError) {
        due.append(summary)
        if due.count >= Self.batch { try removeDue() }
    }

    private func removeDue() throws(SpoolError) {
        defer { due = [] }
        try remove(due) { report.note($0, isRemoved: false) }
    }

    /// Removes uploads and reports each; calls `inUse` with each that is kept because it is in use or has changed.
    private func remove(
        _ summaries: [UploadSummary],
        inUse: (UploadSummary) -> Void
    ) throws(SpoolError) {
        guard !report.isDryRun else {
            for summary in summaries {
                if summary.isInUse { inUse(summary) } else { report.note(summary, isRemoved: true) }
            }
            return
        }
        try spool.remove(summaries, kept: inUse) { summary in
            report.note(summary, isRemoved: true)
            events.note(Event(.purged, of: summary))
            hasRemoved = true
        }
    }

    // MARK: By name

    /// Prints a line for each upload.
    func remove(_ ids: [UploadID]) throws(CommandFailure) {
        var lines = ActionLines(json: report.isJSON)
        for id in ids {
            do throws(SpoolError) {
                guard let summary = try spool.look(at: id) else {
                    lines.reportUnknown(id)
                    continue
                }
                if summary.isInUse {
                    lines.reportInUse(id)
                } else if let refusal = refusal(of: summary) {
                    lines.report(id, "refused", .refused, refusal)
                } else {
                    try remove([summary]) { _ in lines.reportInUse(id) }
                }
            } catch {
                lines.report(id, "failed", .unavailable, error.sentence)
            }
        }
        report.end(retention, clockLead: nil)
        try lines.end()
    }

    /// Returns why an upload may not be removed; nil if it may.
    private func refusal(of summary: UploadSummary) -> String? {
        let state = "upload is \(summary.stateWord)"
        if summary.queue == .active { return "\(state); wait until its delivery has ended" }
        if isDue(summary) { return nil }
        let end = retention.end(of: summary).map { "\($0)" } ?? "an operator removes it"
        return "\(state), and kept until \(end); use --force to remove it"
    }
}
