// What the daemon does by itself beside serving: it makes legal what one has left that died, and removes
// what is over: partial uploads that their clients left, failed ones, stored responses
// and handed-over files, each when the time that its route keeps it is over.
//
// A thread of its own goes through the spool in small steps with pauses between them, so that nobody waits
// for it and the disk has time for others. Invariant: nothing is removed that anybody uses, or that
// `Retention` still promises.

import SpoolgateJournal
import SpoolgatePosix
import SpoolgateSettings
package import SpoolgateSpool
import SpoolgateUploadProtocol

/// The end of the thread that looks for what is over, its pauses, and news for it.
///
/// Any thread.
final class Upkeep: Sendable {
    private struct State {
        var isEnding = false
        var isChanged = false
    }

    private let state = Monitor(State())

    /// Waits between two steps of a look, unless the thread is to end.
    func pause(_ duration: Duration) {
        _ = state.wait(until: .after(duration)) { $0.isEnding ? true : nil }
    }

    /// Waits between two looks, or until another process has changed the spool.
    ///
    /// - Parameters:
    ///   - duration: the longest wait.
    ///   - isChanged: whether another process has changed it since the last wait.
    /// - Returns: false if the thread is to end.
    func rest(_ duration: Duration, isChanged: inout Bool) -> Bool {
        _ = state.wait(until: .after(duration)) { $0.isEnding || $0.isChanged ? true : nil }
        return state.update { state in
            isChanged = state.isChanged
            state.isChanged = false
            return !state.isEnding
        }
    }

    /// Ends the thread at its next pause between two looks.
    func end() { state.update { $0.isEnding = true } }

    /// Notes that another process has changed the spool.
    func noteChange() { state.update { $0.isChanged = true } }
}

extension Deliveries {
    /// Time between two looks.
    private static let lookInterval = Duration.seconds(600)
    /// Time between two looks at the clock.
    private static let clockInterval = Duration.seconds(60)
    /// Time between two looks at what is being received: there may be very many, and most are young.
    private static let partialInterval = Duration.seconds(3_600)
    /// Least time between two counts because of other processes: a command may tell of each upload.
    private static let countInterval = Duration.seconds(1)
    /// Uploads looked at between two pauses.
    private static let step = 64
    private static let pause = Duration.milliseconds(20)
    /// The same in the walk, which uploads may wait for.
    private static let shortPause = Duration.milliseconds(2)
    /// Uploads removed at a time: each takes a descriptor until that is durable.
    private static let batch = 32

    /// Starts the thread: a walk through the spool and one look at once, then from time to time.
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
                // Where nobody asks anything, nothing else would show it.
                try? spool.checkMembership()
                // The next host to start goes on from it.
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

    /// Time between two looks for daemons that have died: what those of other hosts left is due with the queue.
    private var lookForDead: Duration {
        spool.isShared
            ? min(Self.clockInterval, current.settings.queueRunInterval) : Self.clockInterval
    }

    /// Makes legal what nobody else would come for, and counts what there is; returns the uploads that it
    /// skipped.
    private func recoverSpool() -> [UploadID] {
        journal.metrics.waiting.noteWalk(isUnderWay: true)
        var looked = 0
        let recovery = spool.recover(noteFinding) {
            looked += 1
            if looked % Self.step == 0 { upkeep.pause(Self.shortPause) }
        }
        log.recovered(recovery)
        journal.metrics.waiting.noteWalk(isUnderWay: false)
        // It finds what the walk has mended, and tells of it.
        runQueue()
        return recovery.skipped
    }

    /// Looks again at the uploads that were skipped; returns those that were skipped once more.
    private func recoverAgain(_ skipped: [UploadID]) -> [UploadID] {
        let recovery = spool.recoverAgain(skipped, noteFinding)
        // The queue gets those that can be tried now.
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

    /// Tells once that the clock is doubted, and once that it is not any more.
    private func watchClock(_ wasDoubted: inout Bool) {
        let lead = clock.lead
        guard (lead != nil) != wasDoubted else { return }
        wasDoubted = lead != nil
        if let lead { log.clockDoubted(lead: lead) } else { log.clockBelieved() }
        spool.noteClock()
    }

    /// Removes what was kept for as long as its route says: handed-over files, and what is over in
    /// `queues`.
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
            if try spool.mendTime(of: summary) { return log.timeMended(summary) }
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
