// The queue of whole uploads that wait for their next attempt: which of them is due, and the threads
// that make the attempts.
//
// What waits is written in the spool; here is only a table of it, so that nothing is lost with the
// process. Invariant: an upload is in the table at most once, waiting, ready or under way, and a backlog of any
// size takes no more memory than `most` uploads of each route.

package import Posix
import Spool
package import UploadProtocol

/// The delivery queue.
///
/// Any thread.
package final class DeliveryQueue: Sendable {
    /// How long a thread waits for more work before it ends.
    private static let linger = Duration.seconds(5)

    private struct Table {
        /// Most uploads of one route.
        let most: Int
        /// How many there are of each route.
        var counts: [String: Int] = [:]
        /// What is due later is left to a later run, so that it takes no place from what is due.
        var horizon = WallTime(seconds: .max)
        /// Routes of which some were left out.
        var cut: Set<String> = []
        var schedule = DueList()
        /// Uploads whose time has come, of each route in the order in which it did.
        var ready: [String: ArraySlice<UploadID>] = [:]
        var known: Set<UploadID> = []
        /// When those that wait for their time are due; what the schedule says else is out of date.
        var due: [UploadID: WallTime] = [:]
        /// Those under way, and when they are due again that were added meanwhile.
        var underWay: [UploadID: WallTime?] = [:]
        var running: [String: Int] = [:]
        var threads = 0
        var idle = 0
        var isStopping = false
        var isRunAsked = false

        /// Moves what is due to the ready lists.
        mutating func promote(until now: WallTime) {
            while let entry = schedule.popFirst(until: now) {
                guard due[entry.id] == entry.due else { continue }
                due[entry.id] = nil
                ready[entry.route, default: []].append(entry.id)
            }
        }

        /// Takes one ready upload of a route that has a free place.
        mutating func take(_ bounds: DeliveryBounds) -> (id: UploadID, route: String)? {
            // Another route's turn first, so that a long list does not keep the others waiting.
            let free = ready.filter { running[$0.key, default: 0] < bounds.ofRoute($0.key) }
            let turn = free.min {
                (running[$0.key, default: 0], $0.key) < (running[$1.key, default: 0], $1.key)
            }
            guard let route = turn?.key, let id = ready[route]?.popFirst() else { return nil }
            if ready[route]?.isEmpty == true { ready[route] = nil }
            running[route, default: 0] += 1
            underWay[id] = .some(nil)
            return (id, route)
        }

        mutating func add(_ entry: DueList.Entry) {
            guard !isStopping else { return }
            if let asked = underWay[entry.id] {
                underWay[entry.id] = min(asked ?? entry.due, entry.due)
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
    package func add(_ id: UploadID, route: String, due: WallTime) {
        table.update { $0.add(DueList.Entry(due: due, id: id, route: route)) }
    }

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
        let isEmpty: Bool? = table.wait(until: deadline) { $0.running.isEmpty ? true : nil }
        return isEmpty == nil ? table.update { $0.running.values.reduce(0, +) } : 0
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
                guard table.readyCount > table.idle, table.threads < bounds.total else {
                    return nil
                }
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
            let asked = table.underWay.removeValue(forKey: id) ?? nil
            if let due = [next, asked].compactMap(\.self).min() {
                table.add(DueList.Entry(due: due, id: id, route: route))
            }
            let left = table.running[route, default: 1] - 1
            table.running[route] = left > 0 ? left : nil
        }
    }
}
