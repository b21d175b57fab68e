// The times of delivery attempts.

package import SpoolgatePosix

/// How often and for how long the gateway tries to deliver the uploads of a route.
package struct QueuePolicy: Sendable, Equatable {
    /// The maximum number of concurrent attempts, or nil if only the limit of all routes applies.
    package var maximumConcurrent: Int?
    /// The pause after the first attempt; it doubles after each further attempt.
    package var minimumBackoff = Duration.seconds(10)
    package var maximumBackoff = Duration.seconds(3_600)
    /// How long a complete upload may wait for delivery before it fails.
    package var lifetime = Duration.seconds(5 * 86_400)

    package var failedRetention = Duration.seconds(30 * 86_400)
    /// The number of bytes in `hold` at which the gateway starts to refuse uploads that could end there; 0 for no
    /// limit.
    package var maximumHoldSize: Int64 = 64 << 30

    /// Returns whether the lifetime of an upload that was completed at `since` has ended at `time`.
    package func isExpired(since: WallTime, at time: WallTime) -> Bool {
        time.seconds - since.seconds > lifetime.components.seconds
    }

    /// Returns the end of a lifetime that begins at `start`.
    package func end(from start: WallTime) -> WallTime {
        WallTime(seconds: start.seconds + lifetime.components.seconds)
    }

    /// Returns whether an attempt scheduled for `next` is due.
    ///
    /// An attempt is also due if `next` is further ahead than the longest pause, because the clock must have been set
    /// back.
    package func isDue(_ next: WallTime, at now: WallTime) -> Bool {
        next <= now || next.seconds - now.seconds > maximumBackoff.components.seconds
    }

    /// Returns the pause, in whole seconds, before a client's request may trigger another attempt.
    ///
    /// There is no pause after the first attempt, so that a client that retries after a short failure succeeds. The
    /// pause after the second is one second and doubles after each further attempt, up to `maximumBackoff`.
    package func pauseOfClient(after attempts: Int) -> Duration {
        guard attempts > 1 else { return .zero }
        return .seconds(min(maximumBackoff.components.seconds, 1 << Int64(min(attempts - 2, 40))))
    }

    /// Returns the pause before the next attempt, in whole seconds, at most `maximumBackoff`.
    ///
    /// `retryAfter` is the number of seconds in the upstream's `Retry-After`, or nil. `random` selects a pause from the
    /// upper half of the backoff, so that uploads that failed together are not retried together.
    package func pause(after attempts: Int, retryAfter: Int?, random: UInt64) -> Duration {
        let maximum = maximumBackoff.components.seconds
        let doublings = min(max(0, attempts - 1), 40)
        let (due, overflow) = minimumBackoff.components.seconds
            .multipliedReportingOverflow(by: 1 << Int64(doublings))
        let whole = overflow ? maximum : min(maximum, due)
        let half = whole / 2
        let drawn = whole - half + Int64(random % UInt64(half + 1))
        return .seconds(max(drawn, min(maximum, Int64(retryAfter ?? 0))))
    }
}
