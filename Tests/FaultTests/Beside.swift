// What goes on beside requests, at moments that every run of a scenario has at the same place.
//
// Invariant: nothing here runs by itself, so that calls on the disk have the same numbers in each run.

import SpoolgatePosix
import Synchronization

/// Jobs that are run between two parts of a request's content.
final class Beside: Sendable {
    private let jobs = Mutex<[(job: HelperThreads.Job, turns: Int)]>([])

    /// Notes a job, which runs before the second part of content from now on: one part comes while it waits.
    @Sendable func run(_ job: @escaping HelperThreads.Job) { jobs.withLock { $0.append((job, 0)) } }

    /// More content comes.
    func turn() {
        let due = jobs.withLock { jobs in
            for index in jobs.indices { jobs[index].turns += 1 }
            defer { jobs.removeAll { $0.turns > 1 } }
            return jobs.filter { $0.turns > 1 }
        }
        for (job, _) in due { job() }
    }

    /// Forgets what was not run.
    func clear() { jobs.withLock { $0 = [] } }
}
