// The daemon's background work: recovers the spool after a crash, and removes partial uploads, failed uploads,
// stored responses and handed-over files after their retention.
//
// It walks the spool in small steps with pauses, so that no request waits for it. Invariant: it removes nothing that is
// in use or that `Retention` promises to keep.

import SpoolgateJournal
import SpoolgatePosix
import SpoolgateSettings
package import SpoolgateSpool
import SpoolgateUploadProtocol

/// Lets other threads wake or end the upkeep thread.
///
/// Thread-safe.
final class Upkeep: Sendable {
    private struct State {
        var isEnding = false
        var isChanged = false
    }

    private let state = Monitor(State())

    /// Pauses during a walk; returns early if the thread must end.
    func pause(_ duration: Duration) {
        _ = state.wait(until: .after(duration)) { $0.isEnding ? true : nil }
    }

    /// Waits between two rounds of upkeep, at most for `duration`; returns false if the thread must end.
    ///
    /// `isChanged` is set to whether another process has changed the spool since the last wait, which also ends the
    /// wait.
    func rest(_ duration: Duration, isChanged: inout Bool) -> Bool {
        _ = state.wait(until: .after(duration)) { $0.isEnding || $0.isChanged ? true : nil }
        return state.update { state in
            isChanged = state.isChanged
            state.isChanged = false
            return !state.isEnding
        }
    }

    func end() { state.update { $0.isEnding = true } }

    func noteChange() { state.update { $0.isChanged = true } }
}

extension Deliveries {
    /// Between searches for expired uploads.
    private static let lookInterval = Duration.seconds(600)
    /// Between checks of the clock.
    private static let clockInterval = Duration.seconds(60)
    /// Between searches among incoming uploads: there may be many, and most are young.
    private static let partialInterval = Duration.seconds(3_600)
    /// Between counts for other processes: a command may report each changed upload.
    private static let countInterval = Duration.seconds(1)
    /// The number of uploads between two pauses.
    private static let step = 64
    private static let pause = Duration.milliseconds(20)
    /// During recovery, for which uploads may wait.
    private static let shortPause = Duration.milliseconds(2)
    /// The number of uploads removed at a time: each needs a file descriptor until its removal is durable.
    private static let batch = 32

    /// Starts the thread, which recovers the spool and then searches for expired uploads.
    func startUpkeep() throws(SystemError) {
        try Thread.start(name: "upkeep", stackSize: 512 * 1024) { [self] in
            var skipped = recoverSpool()
            var nextLook = Deadline.after(.zero)
            var nextPartials = nextLook
            var wasDoubted = false
            var isChanged = false
            repeat {
                watchClock(&wasDoubted)
                if spool.findsDead() {
                    skipped = recoverSpool()
                } else if !skipped.isEmpty {
                    skipped = recoverAgain(skipped)
                }
                // Without requests, nothing else would detect that this node was excluded.
                try? spool.checkMembership()
                // The next host that starts continues from this mark.
                if spool.isShared { spool.noteClock() }
                spool.recount(isDue: isChanged)
                if isChanged { upkeep.pause(Self.countInterval) }
                guard nextLook.hasPassed else { continue }
                nextLook = .after(Self.lookInterval)
                let isTurnOfPartials = nextPartials.hasPassed
                if isTurnOfPartials { nextPartials = .after(Self.partialInterval) }
                removeOld(in: isTurnOfPartials ? Retention.queues : [.delivered])
                spool.recount(isDue: isTurnOfPartials)
                spool.noteClock()
            } while upkeep.rest(
                skipped.isEmpty ? lookForDead : min(lookForDead, current.settings.queueRunInterval),
                isChanged: &isChanged
            )
        }
    }

    /// Between checks for crashed daemons: uploads of other hosts are due with the queue.
    private var lookForDead: Duration {
        spool.isShared
            ? min(Self.clockInterval, current.settings.queueRunInterval) : Self.clockInterval
    }

    /// Repairs uploads that no request would repair after a crash, and counts all uploads; returns those it skipped.
    private func recoverSpool() -> [UploadID] {
        journal.metrics.waiting.noteWalk(isUnderWay: true)
        var looked = 0
        let recovery = spool.recover(noteFinding) {
            looked += 1
            if looked % Self.step == 0 { upkeep.pause(Self.shortPause) }
        }
        log.recovered(recovery)
        journal.metrics.waiting.noteWalk(isUnderWay: false)
        // A run finds and reports the repaired uploads.
        runQueue()
        return recovery.skipped
    }

    /// Returns the uploads that were skipped once more.
    private func recoverAgain(_ skipped: [UploadID]) -> [UploadID] {
        let recovery = spool.recoverAgain(skipped, noteFinding)
        // The run queues uploads that can be tried now.
        if recovery.skipped.count < skipped.count { runQueue() }
        return recovery.skipped
    }

    private func noteFinding(_ finding: Recovery.Finding) {
        switch finding {
        case .held(let id): noteHeld(id)
        case .setAside(let id, let reason): log.setAside(id, reason: reason)
        case .leftAlone(let id, let error): log.notRecovered(id, error)
        }
    }

    /// Logs once when the clock jumps ahead, and once when it can be trusted again.
    private func watchClock(_ wasDoubted: inout Bool) {
        let lead = clock.lead
        guard (lead != nil) != wasDoubted else { return }
        wasDoubted = lead != nil
        if let lead { log.clockDoubted(lead: lead) } else { log.clockBelieved() }
        spool.noteClock()
    }

    /// Removes handed-over files and the uploads in `queues` whose retention is over.
    package func removeOld(in queues: [Queue]) {
        let settings = current.settings
        let now = clock.confirmed
        removeOldHandovers(settings, now)
        do throws(SpoolError) {
            try removeOld(in: queues, Retention(settings), now)
            if queues == Retention.queues { spool.notePurge() }
        } catch {
            log.spoolFailed(error, upload: nil)
        }
    }

    private func removeOld(
        in queues: [Queue],
        _ retention: Retention,
        _ now: WallTime
    ) throws(SpoolError) {
        let limit = WallTime(seconds: now.seconds - retention.shortest(queues))
        var looked = 0
        var due: [UploadSummary] = []
        func look() {
            looked += 1
            if looked % Self.step == 0 { upkeep.pause(Self.pause) }
        }
        try spool.forEachIdle(in: queues, since: limit, seesUse: false, step: look) {
            summary throws(SpoolError) in
            if try spool.correctTime(of: summary) { return log.timeCorrected(summary) }
            guard retention.isOver(summary, at: now) else { return }
            due.append(summary)
            guard due.count >= Self.batch else { return }
            defer { due = [] }
            try spool.remove(due, noteOver)
        }
        try spool.remove(due, noteOver)
    }

    private func noteOver(_ summary: UploadSummary, isRemoved: Bool) {
        if isRemoved { journal.of(summary).expired(summary) }
    }
}
