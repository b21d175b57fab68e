// The delivery queue at work: threads make due attempts, and periodic runs read the spool's queue into the table.
//
// A run also finds uploads queued by other processes, and uploads whose time in the queue is over. Invariant: a run
// never takes an upload from a request.

import SpoolgateJournal
package import SpoolgatePosix
import SpoolgateSettings
package import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol

extension Deliveries {
    /// Starts the queue's threads and the upkeep thread, which first recovers the spool.
    ///
    /// Returns before the first run. Call this function once.
    ///
    /// - Throws: `SystemError` if a thread cannot be started.
    package func startQueue() throws(SystemError) {
        try Thread.start(name: "queue", stackSize: Self.queueStack) { [self] in scheduleQueue() }
        try startUpkeep()
    }

    /// Stops starting attempts, and waits until `deadline` for those under way.
    ///
    /// - Returns: the number of attempts that are still under way.
    package func stopQueue(until deadline: Deadline) -> Int {
        upkeep.end()
        return queue.stop(until: deadline)
    }

    /// Requests a run, which looks for due uploads in the spool.
    ///
    /// Returns before the run.
    package func runQueue() { queue.requestRun() }

    /// Requests a run and a count of the spool, because another process has changed it.
    package func noteChangedSpool() {
        runQueue()
        upkeep.noteChange()
    }

    /// Logs that an upload is on hold because the process crashed during its attempt.
    func noteHeld(_ id: UploadID) {
        // Unreadable and requeued uploads are reported elsewhere.
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
                    log.queueFailed("cannot start a thread: \(error)")
                    Thread.pause(.seconds(1))
                }
            }
        }
    }

    // MARK: A run

    /// Reads the names in the spool's queue once.
    ///
    /// If `looksFar` is true, also counts `hold`.
    private func run(_ settings: Settings, looksFar: Bool) {
        let (now, confirmed) = (clock.now, clock.confirmed)
        // The run may miss an upload that is added while names are read.
        queue.setHorizon(nil)
        defer {
            let interval = settings.queueRunInterval.components.seconds
            queue.setHorizon(WallTime(seconds: clock.now.seconds + 2 * interval + 1))
        }
        let scope = RunScope(settings, at: now, looksFar: looksFar)
        let countsHold = looksFar && holdSizes.beginCount()
        // `DueUploads` limits the memory.
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
                // If the route is missing, the attempt reports it.
                let isExpired =
                    policy?.isExpired(since: since, at: confirmed) ?? (since < confirmed)
                guard let next = upload.next ?? (isExpired ? now : nil) else { return }
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
            journal.spoolFailed(error, upload: nil)
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

    /// Makes an attempt if the upload is due.
    ///
    /// Returns the time of the next attempt, or nil if none must be scheduled.
    private func attempt(_ id: UploadID) -> WallTime? {
        do throws(SpoolError) {
            guard let upload = try spool.tryLock(id) else {
                // The lock's holder may be a request that only retrieves the offset.
                let isThere = try spool.look(at: id)?.queue == .deferred
                return isThere ? WallTime(seconds: clock.now.seconds + 1) : nil
            }
            defer { upload.unlock() }
            guard upload.state.phase == .deferred else { return nil }
            guard let delivery = delivery(of: upload) else {
                log.queueFailed(
                    "cannot deliver upload \(id): its route '\(upload.creation.route)' is not in the settings; "
                        + "restore the route, or purge the upload"
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
            journal.spoolFailed(error, upload: id)
            // Attempts pause while the spool fails.
            return WallTime(seconds: clock.now.seconds + 30)
        }
    }

    /// The delivery by the current settings; nil if the settings do not contain the upload's route.
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

/// The uploads that a run reads for the table, selected by the due times in their names.
struct RunScope {
    private let limit: WallTime
    private let horizon: WallTime

    /// Selects uploads due before the next run.
    ///
    /// If `looksFar` is true, also selects those due later than any deferral allows.
    init(_ settings: Settings, at now: WallTime, looksFar: Bool) {
        func time(after duration: Duration) -> WallTime {
            WallTime(seconds: now.seconds + duration.components.seconds)
        }
        limit = time(after: settings.queueRunInterval)
        let longest = settings.routes.values.map(\.queue.maximumBackoff).max() ?? .zero
        horizon = looksFar ? time(after: longest) : WallTime(seconds: .max)
    }

    func contains(_ time: WallTime) -> Bool { time <= limit || time > horizon }
}

/// Decides when a run also reads uploads due beyond any deferral, and counts `hold`.
///
/// Such a far look is needed because a due time may come from a clock that was ahead, and because other processes
/// change `hold`. A far look reads all uploads that wait for clients and operators, so most runs omit it.
private struct FarLook {
    private var offset: Int64?
    private var next = Deadline.after(.zero)

    /// Returns true for the first run, the first after the clock was set back, and one each hour.
    ///
    /// The hourly run is needed because machines that share a spool have different clocks.
    mutating func isDue(_ clock: SpoolClock) -> Bool {
        let offset = clock.offset
        defer { self.offset = offset }
        guard next.hasPassed || offset < (self.offset ?? offset) - 1 else { return false }
        next = .after(.seconds(3_600))
        return true
    }
}
