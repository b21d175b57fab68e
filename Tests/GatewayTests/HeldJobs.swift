// Jobs that go on beside requests, held until a test lets them run.

import SpoolgatePosix
import Synchronization

/// Jobs in the order in which they came.
final class HeldJobs: Sendable {
    private let jobs = Mutex<[HelperThreads.Job]>([])

    /// How many are held.
    var count: Int { jobs.withLock { $0.count } }

    /// Holds one.
    @Sendable func hold(_ job: @escaping HelperThreads.Job) { jobs.withLock { $0.append(job) } }

    /// Runs all that are held.
    func run() {
        let held = jobs.withLock { jobs in
            defer { jobs = [] }
            return jobs
        }
        for job in held { job() }
    }
}
