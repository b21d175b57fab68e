// The health of a route: whether its uploads reach the upstream.
//
// This file owns the state; the status, the admin page, the metrics and readiness read it. Invariant: a route's memory
// does not grow with its failures or its clients.

import SpoolgatePosix
import SpoolgateUploadProtocol

/// The failures of one route since its last success.
package struct FailureRun: Sendable, Equatable {
    /// At least 1.
    package var count: Int
    /// Whether at least two clients are affected.
    package var isOfSeveralClients: Bool
    /// Seconds since the first failure.
    package var age: Int64
    /// Whether the upstream received any byte of these requests.
    package var wasReached: Bool
    package var reason: String
}

/// The failures of one route since its last success, in memory.
///
/// Thread-safe.
package final class RouteHealth: Sendable {
    /// The progress of a delivery before it failed.
    package enum Progress: Sendable {
        /// This process could not start it; neither the upstream nor the request is at fault.
        case notTried
        /// No byte was sent.
        case notSent
        /// The upstream received at least a part of the request.
        case sent
    }

    private struct Run {
        var count = 0
        var firstClient: ClientName?
        var isOfSeveralClients = false
        var first: Int64 = 0
        var last: Int64 = 0
        var wasReached = false
        var reason = ""
        /// Failures at the end of the run that could not be started.
        var untried = 0
    }

    /// Consecutive failures, of at least two clients, that make a route failing.
    package static let mostFailures = 5
    /// Seconds without a success after which one failure suffices, and after which a local fault may be repaired.
    package static let patience: Int64 = 600
    /// Consecutive attempts that this process could not start, after which it is not ready.
    package static let mostUntried = 3
    private static let mostOfReason = 1_000

    private let uptime: @Sendable () -> Int64
    private let run = Monitor(Run())
    /// Failures in `run`, so that a success on a healthy route takes no lock.
    private let count = Counter()

    /// Starts without failures; `uptime` returns seconds of a clock that cannot be set.
    init(uptime: @escaping @Sendable () -> Int64) { self.uptime = uptime }

    /// Ends the run of failures, because the upstream accepted an upload or was replaced.
    package func reset() {
        guard count.count > 0 else { return }
        run.updateQuietly { $0 = Run() }
        count.set(0)
    }

    /// Adds a failure.
    ///
    /// - Parameters:
    ///   - client: the upload's client.
    ///   - progress: the progress of the delivery.
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

    /// The failures since the last success, if the route is failing; otherwise nil.
    ///
    /// It is failing after `mostFailures` failures of at least two clients, or if the first failure is `patience`
    /// seconds old.
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

    /// The reason why this process cannot deliver, if it could not start the last `mostUntried` attempts; otherwise
    /// nil.
    ///
    /// It expires after `patience` seconds: a process that is not ready receives no requests, so only another attempt
    /// can show that the fault is repaired.
    package var localFault: String? {
        guard count.count > 0 else { return nil }
        let now = uptime()
        return run.updateQuietly { run in
            run.untried >= Self.mostUntried && now - run.last < Self.patience ? run.reason : nil
        }
    }
}
