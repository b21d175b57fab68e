// The queue of complete uploads that wait for their next attempt.
//
// The spool holds the queue; the table here is only in memory, so a crash loses no upload. Invariant: an upload is in
// the table at most once, as waiting, ready or under way, and the table holds at most `maximum` uploads of each route.

package import SpoolgatePosix
package import SpoolgateSpool
import SpoolgateUploadProtocol

/// The uploads of all routes that wait for their next attempt or are being delivered by the queue's threads.
///
/// Thread-safe.
package final class DeliveryQueue: Sendable {
    /// How long an idle thread waits before it ends.
    private static let linger = Duration.seconds(5)

    private struct UnderWay {
        let user: SlotUser
        /// The due time of the next attempt, if the upload was added again during the attempt under way.
        var again: WallTime?
    }

    private struct Table {
        let maximum: Int
        var counts: [String: Int] = [:]
        /// The latest due time in the table.
        ///
        /// Uploads due later are left to another run, so that they displace none due earlier.
        var horizon = WallTime(seconds: .max)
        /// The routes with uploads that have no room in the table.
        var cut: Set<String> = []
        var schedule = DueHeap()
        var ready: [String: ReadyUploads] = [:]
        var known: Set<UploadID> = []
        /// Due times of waiting uploads.
        ///
        /// Entries of `schedule` with other times are outdated.
        var due: [UploadID: WallTime] = [:]
        var underWay: [UploadID: UnderWay] = [:]
        /// The threads in use, shared like the slots, so that attempts waiting for a slot leave threads for others.
        var shares = SlotShares()
        var threads = 0
        var idle = 0
        var isStopping = false
        var isRunRequested = false

        /// Moves due uploads to the ready lists.
        mutating func promote(until now: WallTime) {
            while let entry = schedule.popFirst(until: now) {
                guard due[entry.id] == entry.due else { continue }
                due[entry.id] = nil
                ready[entry.route, default: ReadyUploads()].append(entry.id, of: entry.client)
            }
        }

        /// Takes a ready upload whose target and client may use another thread.
        mutating func take(_ bounds: DeliveryBounds) -> (id: UploadID, route: String)? {
            // The route with the fewest threads is first, so that a long list does not delay the others.
            let turns = ready.keys.map { (shares.taken(ofRoute: $0), $0) }.sorted { $0 < $1 }
            for (_, route) in turns {
                guard let room = room(for: route, bounds),
                    let (id, client) = ready[route]?.popFirst(fitting: room)
                else { continue }
                if ready[route]?.count == 0 { ready[route] = nil }
                let user = bounds.user(ofRoute: route, for: client)
                shares.hold(user)
                underWay[id] = UnderWay(user: user)
                return (id, route)
            }
            return nil
        }

        func hasWork(_ bounds: DeliveryBounds) -> Bool {
            ready.contains { route, uploads in
                room(for: route, bounds).map { uploads.fits(in: $0) } ?? false
            }
        }

        private func room(for route: String, _ bounds: DeliveryBounds) -> SlotShares.Room? {
            shares.room(for: bounds.target(ofRoute: route), route: route, bounds)
        }

        mutating func add(_ entry: DueHeap.Entry) {
            guard !isStopping else { return }
            if let other = underWay[entry.id] {
                underWay[entry.id]?.again = min(other.again ?? entry.due, entry.due)
                return
            }
            if known.contains(entry.id) {
                guard let known = due[entry.id], entry.due < known else { return }
            } else {
                guard entry.due <= horizon else { return }
                guard counts[entry.route, default: 0] < maximum else {
                    cut.insert(entry.route)
                    return
                }
                known.insert(entry.id)
                counts[entry.route, default: 0] += 1
            }
            due[entry.id] = entry.due
            schedule.insert(entry)
        }

        /// Removes an upload.
        ///
        /// Requests a run if uploads of its route were left out and the table again has room for it.
        mutating func forget(_ id: UploadID, _ route: String) {
            known.remove(id)
            let left = counts[route, default: 1] - 1
            counts[route] = left > 0 ? left : nil
            if left <= maximum / 2, cut.remove(route) != nil { isRunRequested = true }
        }

        var readyCount: Int { ready.values.reduce(0) { $0 + $1.count } }
    }

    private let table: Monitor<Table>

    init(maximum: Int = DueUploads.maximum) { table = Monitor(Table(maximum: maximum)) }

    /// Schedules an attempt at `due`.
    ///
    /// If the upload is already waiting, the earlier of the two times applies. If its attempt is under way, another
    /// attempt follows. If the route is full or `due` is beyond the horizon, a later run finds the upload in the spool.
    package func add(_ upload: UploadCreation, due: WallTime) {
        add(DueHeap.Entry(due: due, id: upload.id, route: upload.route, client: upload.client))
    }

    func add(_ entry: DueHeap.Entry) { table.update { $0.add(entry) } }

    /// Sets the latest due time that the table accepts; nil for no limit, as during a run.
    func setHorizon(_ time: WallTime?) {
        table.updateQuietly { $0.horizon = time ?? WallTime(seconds: .max) }
    }

    /// Records that uploads of the route were left out.
    ///
    /// A run is requested when the table again has room for the route.
    func noteCut(_ route: String) { table.update { _ = $0.cut.insert(route) } }

    /// Requests a run, and returns before it.
    func requestRun() { table.update { $0.isRunRequested = true } }

    /// Stops starting attempts.
    ///
    /// Returns how many are still under way at `deadline`.
    func stop(until deadline: Deadline) -> Int {
        table.update { $0.isStopping = true }
        let isEmpty: Bool? = table.wait(until: deadline) { $0.underWay.isEmpty ? true : nil }
        return isEmpty == nil ? table.update { $0.underWay.count } : 0
    }

    enum Step {
        case startThread
        case run
        case end
    }

    /// Waits until the scheduler has something to do.
    ///
    /// The next regular run is due at `nextRun`.
    func nextStep(nextRun: Deadline, bounds: DeliveryBounds, clock: SpoolClock) -> Step {
        while true {
            // The system clock can be set during the wait, so the time is checked every second.
            let step = table.wait(until: min(nextRun, .after(.seconds(1)))) { table -> Step? in
                if table.isStopping { return .end }
                let now = clock.now
                // After the clock has jumped, uploads that are due now were beyond the horizon.
                if table.isRunRequested || table.horizon < now {
                    table.isRunRequested = false
                    return .run
                }
                table.promote(until: now)
                guard table.readyCount > table.idle, table.threads < bounds.total,
                    table.hasWork(bounds)
                else { return nil }
                table.threads += 1
                return .startThread
            }
            // Attempts come first: a run through a long queue may take longer than the interval between runs.
            if let step { return step }
            if nextRun.hasPassed { return .run }
        }
    }

    // MARK: Calls of the delivery threads

    func noteUnstarted() { table.update { $0.threads -= 1 } }

    /// Waits for an upload to deliver.
    ///
    /// Returns nil if the calling thread must end.
    func take(_ bounds: DeliveryBounds, clock: SpoolClock) -> (id: UploadID, route: String)? {
        table.update { $0.idle += 1 }
        let deadline = Deadline.after(Self.linger)
        let taken = table.wait(until: deadline) { table -> (id: UploadID, route: String)?? in
            if table.isStopping { return .some(nil) }
            table.promote(until: clock.now)
            return table.take(bounds).map { .some($0) }
        }
        return table.update { table in
            table.idle -= 1
            // The upload may have been added after the deadline.
            guard let work = taken ?? (table.isStopping ? nil : table.take(bounds)) else {
                table.threads -= 1
                return nil
            }
            return work
        }
    }

    /// Ends an attempt.
    ///
    /// Another is due at `next`, or earlier if the upload was added again. Pass nil if none follows.
    func finish(_ id: UploadID, route: String, next: WallTime?) {
        table.update { table in
            table.forget(id, route)
            guard let ended = table.underWay.removeValue(forKey: id) else { return }
            table.shares.giveBack(ended.user)
            if let due = [next, ended.again].compactMap(\.self).min() {
                let client = ended.user.client
                table.add(DueHeap.Entry(due: due, id: id, route: route, client: client))
            }
        }
    }
}
