// The queue of whole uploads that wait for their next attempt: which of them is due, and the threads
// that make the attempts.
//
// What waits is written in the spool; here is only a table of it, so that nothing is lost with the
// process. Invariant: an upload is in the table at most once, waiting, ready or under way, and a backlog of any
// size takes no more memory than `most` uploads of each route.

package import SpoolgatePosix
package import SpoolgateSpool
import SpoolgateUploadProtocol

/// The delivery queue.
///
/// Any thread.
package final class DeliveryQueue: Sendable {
    /// How long a thread waits for more work before it ends.
    private static let linger = Duration.seconds(5)

    /// An upload under way.
    private struct UnderWay {
        let user: SlotUser
        /// When it is due again, where it was added meanwhile.
        var again: WallTime?
    }

    private struct Table {
        /// Most uploads of one route.
        let most: Int
        /// How many there are of each route.
        var counts: [String: Int] = [:]
        /// What is due later is left to a later run, so that it takes no place from what is due.
        var horizon = WallTime(seconds: .max)
        /// Routes of which some were left out.
        var cut: Set<String> = []
        var schedule = DueHeap()
        /// Uploads whose time has come, by route.
        var ready: [String: ReadyUploads] = [:]
        var known: Set<UploadID> = []
        /// When those that wait for their time are due; what the schedule says else is out of date.
        var due: [UploadID: WallTime] = [:]
        var underWay: [UploadID: UnderWay] = [:]
        /// The threads that have one, shared like the slots: who waits for a slot keeps no thread from the others.
        var shares = SlotShares()
        var threads = 0
        var idle = 0
        var isStopping = false
        var isRunAsked = false

        /// Moves what is due to the ready lists.
        mutating func promote(until now: WallTime) {
            while let entry = schedule.popFirst(until: now) {
                guard due[entry.id] == entry.due else { continue }
                due[entry.id] = nil
                ready[entry.route, default: ReadyUploads()].append(entry.id, of: entry.client)
            }
        }

        /// Takes one ready upload for which there is room.
        mutating func take(_ bounds: DeliveryBounds) -> (id: UploadID, route: String)? {
            // Another route's turn first, so that a long list does not keep the others waiting.
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

        /// Whether a thread would find an upload.
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
                guard counts[entry.route, default: 0] < most else {
                    cut.insert(entry.route)
                    return
                }
                known.insert(entry.id)
                counts[entry.route, default: 0] += 1
            }
            due[entry.id] = entry.due
            schedule.insert(entry)
        }

        /// Forgets an upload whose turn is over; asks for those that were left out once there is room.
        mutating func forget(_ id: UploadID, _ route: String) {
            known.remove(id)
            let left = counts[route, default: 1] - 1
            counts[route] = left > 0 ? left : nil
            if left <= most / 2, cut.remove(route) != nil { isRunAsked = true }
        }

        var readyCount: Int { ready.values.reduce(0) { $0 + $1.count } }
    }

    private let table: Monitor<Table>

    /// Begins with none, for at most so many uploads of each route.
    init(most: Int = DueUploads.most) { table = Monitor(Table(most: most)) }

    /// Adds an upload that is to be tried at `due`; one that is there already is tried then if it
    /// waited for longer, and one that is under way is looked at again then.
    ///
    /// Where there is no room for one more of its route, or it is due long after the next run of the queue, a later run
    /// finds it.
    package func add(_ upload: UploadCreation, due: WallTime) {
        add(DueHeap.Entry(due: due, id: upload.id, route: upload.route, client: upload.client))
    }

    /// The same of an entry.
    func add(_ entry: DueHeap.Entry) { table.update { $0.add(entry) } }

    /// Notes until when what is due has to be known here; nil: without end, as long as a run is under way.
    func setHorizon(_ time: WallTime?) {
        table.updateQuietly { $0.horizon = time ?? WallTime(seconds: .max) }
    }

    /// Notes that uploads of a route were left out, for which a run is asked once there is room.
    func noteCut(_ route: String) { table.update { _ = $0.cut.insert(route) } }

    /// Asks for a look through the whole spool at once.
    func askForRun() { table.update { $0.isRunAsked = true } }

    /// Stops taking uploads up and waits for the attempts under way.
    ///
    /// - Returns: how many are still under way at `deadline`.
    func stop(until deadline: Deadline) -> Int {
        table.update { $0.isStopping = true }
        let isEmpty: Bool? = table.wait(until: deadline) { $0.underWay.isEmpty ? true : nil }
        return isEmpty == nil ? table.update { $0.underWay.count } : 0
    }

    /// What the scheduler has to do next.
    enum Step {
        /// Start a thread for ready uploads.
        case startThread
        /// Look through the spool.
        case run
        /// Nothing any more.
        case end
    }

    /// Waits for the scheduler's next step; a run is due at `nextRun`.
    func nextStep(nextRun: Deadline, bounds: DeliveryBounds, clock: SpoolClock) -> Step {
        while true {
            // Wall time can be set while we wait, so it is looked at again every second.
            let step = table.wait(until: min(nextRun, .after(.seconds(1)))) { table -> Step? in
                if table.isStopping { return .end }
                if table.isRunAsked {
                    table.isRunAsked = false
                    return .run
                }
                table.promote(until: clock.now)
                guard table.readyCount > table.idle, table.threads < bounds.total,
                    table.hasWork(bounds)
                else { return nil }
                table.threads += 1
                return .startThread
            }
            // Work comes first: a look through a long queue may take longer than the time between two.
            if let step { return step }
            if nextRun.hasPassed { return .run }
        }
    }

    // MARK: The threads' side

    /// Notes that a thread that was to start did not.
    func noteUnstarted() { table.update { $0.threads -= 1 } }

    /// The next upload for a thread; nil: the thread is to end.
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
            // Also one that was added between the deadline and now is this thread's.
            guard let work = taken ?? (table.isStopping ? nil : table.take(bounds)) else {
                table.threads -= 1
                return nil
            }
            return work
        }
    }

    /// Ends the turn of an upload, which is to be tried again at `next`, or earlier if it was added meanwhile;
    /// nil: not at all.
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
