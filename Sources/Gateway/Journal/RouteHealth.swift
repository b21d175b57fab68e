// Whether the uploads of one route get through to their upstream.
//
// The only owner of this state; the status, the page, the metrics and readiness read it. Invariant: the memory of a
// route does not grow with its failures or its clients.

import SpoolgatePosix
import SpoolgateUploadProtocol

/// The failures of one route since its last success.
package struct FailureRun: Sendable, Equatable {
    /// The number of failures; at least 1.
    package var count: Int
    /// Whether they are of at least two clients.
    package var isOfSeveralClients: Bool
    /// Seconds since the first one.
    package var age: Int64
    /// Whether the upstream received any byte of any of these requests.
    package var wasReached: Bool
    /// Why the last one failed.
    package var reason: String
}

/// The failures of one route since its last success, in memory.
///
/// Any thread.
package final class RouteHealth: Sendable {
    /// How far a delivery that failed had come.
    package enum Progress: Sendable {
        /// This process could not begin it: neither the upstream nor the request is at fault.
        case notTried
        /// Nothing was sent.
        case notSent
        /// The upstream received at least a part of the request.
        case sent
    }

    private struct Run {
        var count = 0
        var firstClient: ClientName?
        var isOfSeveralClients = false
        /// Seconds of uptime.
        var first: Int64 = 0
        var last: Int64 = 0
        var wasReached = false
        var reason = ""
        /// The last failures in a row that were not tried.
        var untried = 0
    }

    /// Failures in a row, of at least two clients, that make a route a failing one.
    package static let mostFailures = 5
    /// Seconds without a success after which one failure is enough, and after which a fault of this process may be over.
    package static let patience: Int64 = 600
    /// Attempts in a row that this process could not begin, after which it is not ready.
    package static let mostUntried = 3
    private static let mostOfReason = 1_000

    private let uptime: @Sendable () -> Int64
    private let run = Monitor(Run())
    /// The failures in `run`: a success of a healthy route locks nothing.
    private let count = Counter()

    /// Begins without a failure; `uptime` is a clock in seconds that nobody can set.
    init(uptime: @escaping @Sendable () -> Int64) { self.uptime = uptime }

    /// Ends the run of failures: the upstream took an upload, or is another one now.
    package func reset() {
        guard count.count > 0 else { return }
        run.updateQuietly { $0 = Run() }
        count.set(0)
    }

    /// Adds a failure.
    ///
    /// - Parameters:
    ///   - client: whose upload it was.
    ///   - progress: how far its delivery had come.
    ///   - reason: one sentence.
    func addFailure(of client: ClientName, _ progress: Progress, reason: String) {
        let now = uptime()
        run.updateQuietly { run in
            if run.count == 0 { (run.firstClient, run.first) = (client, now) }
            run.count += 1
            run.last = now
            if run.firstClient != client { run.isOfSeveralClients = true }
            if progress == .sent { run.wasReached = true }
            run.untried = progress == .notTried ? run.untried + 1 : 0
            run.reason = String(reason.prefix(Self.mostOfReason))
            count.set(run.count)
        }
    }

    /// The failures since the last success, if they make this a failing route: `mostFailures` of at least two clients,
    /// or any number if the first one is `patience` seconds old; else nil.
    package var failing: FailureRun? {
        guard count.count > 0 else { return nil }
        let now = uptime()
        return run.updateQuietly { run in
            let age = max(0, now - run.first)
            let isMany = run.count >= Self.mostFailures && run.isOfSeveralClients
            guard run.count > 0, isMany || age >= Self.patience else { return nil }
            return FailureRun(
                count: run.count,
                isOfSeveralClients: run.isOfSeveralClients,
                age: age,
                wasReached: run.wasReached,
                reason: run.reason
            )
        }
    }

    /// Why this process cannot deliver, if it could not begin the last `mostUntried` attempts; else nil.
    ///
    /// Nil also if the last of them is `patience` seconds old: a process that is not ready gets no requests, so only
    /// another attempt can show that the fault is over.
    package var localFault: String? {
        guard count.count > 0 else { return nil }
        let now = uptime()
        return run.updateQuietly { run in
            run.untried >= Self.mostUntried && now - run.last < Self.patience ? run.reason : nil
        }
    }
}
