// The queue at work: threads that make the attempts that are due, and runs through the names of the spool's
// queue for what the table does not know, at start and from time to time.
//
// A run finds what another process has put there, as `requeue` does, and uploads whose time in the queue
// is over.
// Invariant: a run never takes an upload from a request.

import SpoolgateJournal
package import SpoolgatePosix
import SpoolgateSettings
package import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol

extension Deliveries {
    /// Starts the queue: one run at once, then attempts as they are due; and the upkeep, which first makes
    /// legal what a daemon has left that died.
    ///
    /// Call it once.
    ///
    /// - Throws: `SystemError` when no thread can be started.
    package func startQueue() throws(SystemError) {
        try Thread.start(name: "queue", stackSize: Self.queueStack) { [self] in scheduleQueue() }
        try startUpkeep()
    }

    /// Makes no more attempts and waits for those under way.
    ///
    /// - Returns: how many are still under way at `deadline`.
    package func stopQueue(until deadline: Deadline) -> Int {
        upkeep.end()
        return queue.stop(until: deadline)
    }

    /// Looks at once for uploads that wait for an attempt.
    package func runQueue() { queue.askForRun() }

    /// Looks at once for uploads that wait, and counts the spool again: another process has changed it.
    package func noteChangedSpool() {
        runQueue()
        upkeep.noteChange()
    }

    /// Tells in the log and as an event that an upload is held whose attempt died.
    func noteHeld(_ id: UploadID) {
        // One that cannot be read now, or that somebody has queued again since, tells of itself.
        guard let summary = try? spool.look(at: id), summary.holdCause == .indeterminate else {
            return
        }
        if let creation = summary.creation { holdSizes.add(creation, size: summary.offset) }
        journal.indeterminate(summary)
    }

    private static let queueStack = 512 * 1024

    private func scheduleQueue() {
        var nextRun = Deadline.after(.zero)
        var farLook = FarLook()
        while true {
            let configuration = current
            let settings = configuration.settings
            switch queue.nextStep(nextRun: nextRun, bounds: configuration.bounds, clock: clock) {
            case .end: return
            case .run:
                run(settings, looksFar: farLook.isDue(clock))
                journal.metrics.queueRuns.add()
                nextRun = .after(settings.queueRunInterval)
            case .startThread:
                do throws(SystemError) {
                    try Thread.start(name: "delivery", stackSize: Self.queueStack) { [self] in
                        work()
                    }
                } catch {
                    queue.noteUnstarted()
                    log.queueTrouble("cannot start a thread: \(error)")
                    Thread.pause(.seconds(1))
                }
            }
        }
    }

    // MARK: A run

    /// Reads the names of the queue once, for the table, for what waits, and on a far look for what `hold` keeps.
    private func run(_ settings: Settings, looksFar: Bool) {
        let (now, confirmed) = (clock.now, clock.confirmed)
        // What comes while names are read may not be among them.
        queue.setHorizon(nil)
        defer {
            let interval = settings.queueRunInterval.components.seconds
            queue.setHorizon(WallTime(seconds: clock.now.seconds + 2 * interval + 1))
        }
        let scope = RunScope(settings, at: now, looksFar: looksFar)
        let countsHold = looksFar && holdSizes.beginCount()
        // Of what is due before the next run, the earliest are in memory, and nothing else.
        var due = DueUploads()
        var isWhole = false
        do throws(SpoolError) {
            try journal.metrics.waiting.look(at: spool) { name in
                name.map(scope.contains) ?? countsHold
            } _: { upload in
                guard let name = upload.nameTime, scope.contains(name) else {
                    if countsHold { holdSizes.count(upload) }
                    return
                }
                let policy = settings.routes[exactly: upload.route]?.queue
                let since = upload.since ?? confirmed
                // Of a route that is no more, the attempt says so.
                let isOver = policy?.isOver(since: since, at: confirmed) ?? (since < confirmed)
                guard let next = upload.next ?? (isOver ? now : nil) else { return }
                let isDue = policy?.isDue(next, at: now) ?? true
                due.add(
                    DueHeap.Entry(
                        due: isDue ? min(next, now) : next,
                        id: upload.id,
                        route: upload.route,
                        client: upload.client
                    )
                )
            }
            isWhole = true
        } catch {
            log.spoolFailed(error, upload: nil)
        }
        due.addAll(to: queue)
        if countsHold { holdSizes.endCount(isWhole: isWhole) }
    }

    // MARK: An attempt

    private func work() {
        while let (id, route) = queue.take(current.bounds, clock: clock) {
            let next = attempt(id)
            queue.finish(id, route: route, next: next)
        }
    }

    /// Tries one upload that is due; returns when to look at it again, where that is not written.
    private func attempt(_ id: UploadID) -> WallTime? {
        do throws(SpoolError) {
            guard let upload = try spool.tryLock(id) else {
                // A request may only ask for its offset just now.
                let isThere = try spool.look(at: id)?.queue == .deferred
                return isThere ? WallTime(seconds: clock.now.seconds + 1) : nil
            }
            defer { upload.unlock() }
            guard upload.state.phase == .deferred else { return nil }
            guard let delivery = delivery(of: upload) else {
                log.queueTrouble(
                    "cannot deliver upload \(id): its route '\(upload.creation.route)' is not in the settings"
                )
                return nil
            }
            if let next = upload.nextAttempt,
                !delivery.route.settings.queue.isDue(next, at: clock.now)
            {
                return next
            }
            try delivery.deliverQueued(upload)
            return upload.state.phase == .deferred ? upload.nextAttempt : nil
        } catch {
            log.spoolFailed(error, upload: id)
            // A spool in trouble is left in peace for a while.
            return WallTime(seconds: clock.now.seconds + 30)
        }
    }

    /// How an upload of the queue is delivered by the settings in force; nil where they have its route
    /// no more.
    package func delivery(of upload: Upload) -> Delivery? {
        let name = upload.creation.route
        let configuration = current
        guard let route = configuration.routes[exactly: name] else { return nil }
        return Delivery(
            self,
            route: route,
            journal: journal.of(upload.creation),
            patience: configuration.settings.inUseTimeout
        )
    }
}

/// Which uploads a run reads for the table, by the time in their names.
struct RunScope {
    private let limit: WallTime
    private let horizon: WallTime

    /// The scope of a run at `now`: what is due before the next one, and if it looks far what lies beyond the time
    /// by which any setting puts off an attempt: that waits for its client, or was written by a clock that was ahead.
    init(_ settings: Settings, at now: WallTime, looksFar: Bool) {
        func time(after duration: Duration) -> WallTime {
            WallTime(seconds: now.seconds + duration.components.seconds)
        }
        limit = time(after: settings.queueRunInterval)
        let longest = settings.routes.values.map(\.queue.maximumBackoff).max() ?? .zero
        horizon = looksFar ? time(after: longest) : WallTime(seconds: .max)
    }

    /// Whether the run reads an upload with that time in its name.
    func contains(_ time: WallTime) -> Bool { time <= limit || time > horizon }
}

/// When a run looks at what lies further ahead than any attempt is put off, and counts what `hold` keeps.
///
/// There are as many as wait for their clients and for operators, hence not always; but a time there may have been
/// written by a clock that was ahead, and other processes change what `hold` keeps.
private struct FarLook {
    private var offset: Int64?
    private var next = Deadline.after(.zero)

    /// Whether this run does: the first one, one after the time of day was set back, and one an hour, since
    /// machines that share a spool have clocks of their own.
    mutating func isDue(_ clock: SpoolClock) -> Bool {
        let offset = clock.offset
        defer { self.offset = offset }
        guard next.hasPassed || offset < (self.offset ?? offset) - 1 else { return false }
        next = .after(.seconds(3_600))
        return true
    }
}
