// Requests' side jobs, held until the test runs them.

import SpoolgatePosix
import Synchronization

final class HeldJobs: Sendable {
    private let jobs = Mutex<[HelperThreads.Job]>([])

    var count: Int { jobs.withLock { $0.count } }

    @Sendable func hold(_ job: @escaping HelperThreads.Job) { jobs.withLock { $0.append(job) } }

    func run() {
        let held = jobs.withLock { jobs in
            defer { jobs = [] }
            return jobs
        }
        for job in held { job() }
    }
}
