// Jobs between the parts of a request's content.
//
// Invariant: none runs by itself, so that calls on the disk have the same numbers in each run.

import SpoolgatePosix
import Synchronization

final class Beside: Sendable {
    private let jobs = Mutex<[(job: HelperThreads.Job, turns: Int)]>([])

    /// Adds a job that runs before the second next part, so that one part arrives while it waits.
    @Sendable func run(_ job: @escaping HelperThreads.Job) { jobs.withLock { $0.append((job, 0)) } }

    /// Runs the jobs that are due.
    func turn() {
        let due = jobs.withLock { jobs in
            for index in jobs.indices { jobs[index].turns += 1 }
            defer { jobs.removeAll { $0.turns > 1 } }
            return jobs.filter { $0.turns > 1 }
        }
        for (job, _) in due { job() }
    }

    func clear() { jobs.withLock { $0 = [] } }
}
