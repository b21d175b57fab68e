// The health of a route: whether its uploads reach the upstream.
//
// Invariant: the memory used for a route does not grow with its failures or its clients.

import SpoolgatePosix
import SpoolgateUploadProtocol

/// The failures of a route since its last success, as reported to readers.
package struct FailureRun: Sendable, Equatable {
    /// The number of failures, at least 1.
    package var count = 0
    /// Whether uploads of at least two clients failed.
    package var isOfSeveralClients = false
    /// The number of seconds since the first of these failures.
    package var age: Int64 = 0
    /// Whether the upstream received a part of at least one request.
    package var wasReached = false
    package var reason = ""
}

/// Records whether the deliveries of one route succeed or fail; thread-safe.
package final class RouteHealth: Sendable {
    /// How far a failed delivery attempt came.
    package enum Progress: Sendable {
        /// This process could not start the attempt, through no fault of the upstream or the request.
        case notTried
        /// No byte of the request was sent.
        case notSent
        /// The upstream received at least a part of the request.
        case sent
    }

    private struct Run {
        /// The failures; `age` is 0 until they are read.
        var failures = FailureRun()
        var firstClient: ClientName?
        var first: Int64 = 0
        var last: Int64 = 0
        /// The number of the most recent consecutive failures in which this process could not start the attempt.
        var untried = 0
    }

    /// The number of consecutive failures after which a route is reported as failing if they concern at least two
    /// clients.
    package static let maximumFailures = 5
    /// The number of seconds without a success after which one failure suffices to report a route as failing, and after
    /// which a local fault counts as possibly repaired.
    package static let patience: Int64 = 600
    /// The number of consecutive attempts that this process could not start after which it reports that it is not
    /// ready.
    package static let maximumUntried = 3
    private static let maximumReasonSize = 1_000

    private let uptime: @Sendable () -> Int64
    private let run = Monitor(Run())
    /// The number of failures, so that a success on a healthy route needs no lock.
    private let count = Counter()

    /// Creates a record without failures; `uptime` returns the seconds since an arbitrary time, unaffected by changes
    /// of the system clock.
    init(uptime: @escaping @Sendable () -> Int64) { self.uptime = uptime }

    /// Discards the failures; call it after the upstream accepts an upload or is replaced in the settings.
    package func reset() {
        guard count.count > 0 else { return }
        run.updateQuietly { $0 = Run() }
        count.set(0)
    }

    /// Records that a delivery attempt failed.
    ///
    /// `reason` must be one sentence.
    func addFailure(of client: ClientName, _ progress: Progress, reason: String) {
        let now = uptime()
        run.updateQuietly { run in
            if run.failures.count == 0 { (run.firstClient, run.first) = (client, now) }
            run.failures.count += 1
            run.last = now
            if run.firstClient != client { run.failures.isOfSeveralClients = true }
            if progress == .sent { run.failures.wasReached = true }
            run.untried = progress == .notTried ? run.untried + 1 : 0
            run.failures.reason = String(reason.prefix(Self.maximumReasonSize))
            count.set(run.failures.count)
        }
    }

    /// The failures since the last success; nil if the route does not count as failing.
    ///
    /// A route counts as failing after `maximumFailures` failures of at least two clients, or once the first failure is
    /// `patience` seconds old.
    package var failing: FailureRun? {
        guard count.count > 0 else { return nil }
        let now = uptime()
        return run.updateQuietly { run in
            var failures = run.failures
            failures.age = max(0, now - run.first)
            let isMany = failures.count >= Self.maximumFailures && failures.isOfSeveralClients
            let isFailing = failures.count > 0 && (isMany || failures.age >= Self.patience)
            return isFailing ? failures : nil
        }
    }

    /// The reason why this process cannot start deliveries; nil unless the last `maximumUntried` attempts could not be
    /// started.
    ///
    /// The property becomes nil again `patience` seconds after the last failure. Otherwise a process that is not ready
    /// would receive no more requests, and no attempt could show that the fault has been fixed.
    package var localFault: String? {
        guard count.count > 0 else { return nil }
        let now = uptime()
        return run.updateQuietly { run in
            let isFault = run.untried >= Self.maximumUntried && now - run.last < Self.patience
            return isFault ? run.failures.reason : nil
        }
    }
}
