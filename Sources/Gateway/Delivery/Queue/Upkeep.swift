// The daemon's background work: recovers the spool after a crash, and removes partial uploads, failed uploads,
// stored responses and handed-over files after their retention.
//
// The upkeep thread walks the spool in small steps with pauses, so that no request waits. Invariant: uploads in use or
// within their retention are never removed.

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

    /// Pauses during a walk.
    ///
    /// Returns early if the thread must end.
    func pause(_ duration: Duration) {
        _ = state.wait(until: .after(duration)) { $0.isEnding ? true : nil }
    }

    /// Waits at most `duration` between two rounds of upkeep.
    ///
    /// Returns false if the thread must end. Sets `isChanged` to true if another process has changed the spool since
    /// the last wait. Such a change ends the wait.
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
    /// The interval between searches for expired uploads.
    private static let lookInterval = Duration.seconds(600)
    /// The interval between checks of the clock.
    private static let clockInterval = Duration.seconds(60)
    /// The interval between searches of `incoming`, which may contain many uploads, mostly young ones.
    private static let partialInterval = Duration.seconds(3_600)
    /// The minimum interval between counts for other processes, because a command may report each changed upload.
    private static let countInterval = Duration.seconds(1)
    /// The number of uploads between two pauses.
    private static let step = 64
    private static let pause = Duration.milliseconds(20)
    /// The pause during recovery, which is shorter because uploads may wait for the recovery.
    private static let shortPause = Duration.milliseconds(2)
    /// The number of uploads removed at a time, limited because each needs a file descriptor until its removal is
    /// durable.
    private static let batch = 32

    /// Starts the thread, which recovers the spool and then searches for expired uploads.
    func startUpkeep() throws(SystemError) {
        try Thread.start(name: "upkeep", stackSize: 512 * 1024) { [self] in
            var recovery = recoverSpool()
            var nextLook = Deadline.after(.zero)
            var nextPartials = nextLook
            var wasUncertain = false
            var isChanged = false
            repeat {
                watchClock(&wasUncertain)
                if spool.findsDead() {
                    recovery = recoverSpool()
                } else if !recovery.skipped.isEmpty {
                    recovery = recoverAgain(after: recovery)
                }
                // Without requests, nothing else would detect that this node was excluded.
                try? spool.checkMembership()
                // The next host that starts continues from this mark.
                if spool.isShared { spool.noteClock() }
                spool.recount(isDue: isChanged)
                if isChanged { upkeep.pause(Self.countInterval) }
                guard nextLook.hasPassed else { continue }
                nextLook = .after(Self.lookInterval)
                if recovery.unread > 0 { recovery = recoverSpool() }
                let isTurnOfPartials = nextPartials.hasPassed
                if isTurnOfPartials { nextPartials = .after(Self.partialInterval) }
                removeOld(in: isTurnOfPartials ? Retention.queues : [.delivered])
                spool.recount(isDue: isTurnOfPartials)
                spool.noteClock()
            } while upkeep.rest(pause(after: recovery), isChanged: &isChanged)
        }
    }

    /// The interval between checks for crashed daemons.
    ///
    /// In a shared spool, at most the interval of queue runs.
    private var lookForDead: Duration {
        spool.isShared
            ? min(Self.clockInterval, current.settings.queueRunInterval) : Self.clockInterval
    }

    /// The pause after a round of upkeep.
    private func pause(after recovery: Recovery) -> Duration {
        if recovery.skipped.isEmpty { return lookForDead }
        let retry = min(lookForDead, current.settings.queueRunInterval)
        return recovery.unsettled > 0 ? min(retry, spool.settlingTime) : retry
    }

    /// Repairs uploads that no request would repair after a crash, and counts all uploads.
    private func recoverSpool() -> Recovery {
        journal.metrics.waiting.noteWalk(isUnderWay: true)
        var looked = 0
        let recovery = spool.recover(noteFinding) {
            looked += 1
            if looked % Self.step == 0 { upkeep.pause(Self.shortPause) }
        }
        log.recovered(recovery)
        journal.metrics.unrecovered.set(recovery.failed)
        journal.metrics.waiting.noteWalk(isUnderWay: false)
        // A run finds and reports the repaired uploads.
        runQueue()
        return recovery
    }

    private func recoverAgain(after earlier: Recovery) -> Recovery {
        let recovery = spool.recoverAgain(after: earlier, noteFinding)
        journal.metrics.unrecovered.set(recovery.failed)
        // The run queues the recovered uploads.
        if recovery.skipped.count < earlier.skipped.count { runQueue() }
        return recovery
    }

    private func noteFinding(_ finding: Recovery.Finding) {
        switch finding {
        case .held(let id): noteHeld(id)
        case .setAside(let id, let reason): journal.setAside(id, reason: reason)
        case .leftAlone(let id, let error): log.notRecovered(id, error)
        }
    }

    /// Logs once when the clock jumps ahead, and once when the clock can be trusted again.
    private func watchClock(_ wasUncertain: inout Bool) {
        let lead = clock.lead
        guard (lead != nil) != wasUncertain else { return }
        wasUncertain = lead != nil
        if let lead { log.clockJumped(lead: lead) } else { log.clockTrusted() }
        spool.noteClock()
    }

    /// Removes handed-over files and uploads in `queues` whose retention has ended.
    package func removeOld(in queues: [Queue]) {
        let settings = current.settings
        let now = clock.confirmed
        removeOldHandovers(settings, now)
        do throws(SpoolError) {
            try removeOld(in: queues, Retention(settings), now)
            guard queues == Retention.queues else { return }
            try removeOld(in: [.corrupt], Retention(settings), now)
            spool.notePurge()
            try spool.removeTemporaries()
        } catch {
            journal.spoolFailed(error, upload: nil)
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
        func note(_ summary: UploadSummary) { journal.of(summary).expired(summary) }
        func look() {
            looked += 1
            if looked % Self.step == 0 { upkeep.pause(Self.pause) }
        }
        try spool.forEachIdle(in: queues, since: limit, seesUse: false, step: look) {
            summary throws(SpoolError) in
            if try spool.correctTime(of: summary) { return log.timeCorrected(summary) }
            guard retention.isExpired(summary, at: now) else { return }
            due.append(summary)
            guard due.count >= Self.batch else { return }
            defer { due = [] }
            try spool.remove(due, note)
        }
        try spool.remove(due, note)
    }
}
