// The times of retries for uploads that were not delivered.

package import SpoolgatePosix

/// The retry policy of a route.
package struct QueuePolicy: Sendable, Equatable {
    /// The maximum number of concurrent delivery attempts of the route; nil: limited only by that of all routes.
    package var maximumConcurrent: Int?
    /// The pause after the first attempt; it doubles after each further attempt.
    package var minimumBackoff = Duration.seconds(10)
    /// The longest pause between two attempts.
    package var maximumBackoff = Duration.seconds(3_600)
    /// The time that a complete upload may wait before it fails.
    package var lifetime = Duration.seconds(5 * 86_400)

    /// The retention of a failed upload.
    package var failedRetention = Duration.seconds(30 * 86_400)
    /// The maximum number of bytes of the route's uploads in `hold` before accepted uploads are refused; 0: no limit.
    package var maximumHoldSize: Int64 = 64 << 30

    /// Whether the lifetime of an upload that was complete at `since` has ended at `time`.
    package func isOver(since: WallTime, at time: WallTime) -> Bool {
        time.seconds - since.seconds > lifetime.components.seconds
    }

    /// The end of a lifetime that begins at `start`.
    package func end(from start: WallTime) -> WallTime {
        WallTime(seconds: start.seconds + lifetime.components.seconds)
    }

    /// Whether an attempt scheduled for `next` is due at `now`.
    ///
    /// It is also due if it is further away than the longest pause, because the clock was then set back.
    package func isDue(_ next: WallTime, at now: WallTime) -> Bool {
        next <= now || next.seconds - now.seconds > maximumBackoff.components.seconds
    }

    /// The pause before a client can trigger another attempt.
    ///
    /// There is none after the first attempt, so that a client that retries after a short failure succeeds; then one
    /// second, which doubles after each further attempt.
    ///
    /// - Parameter attempts: the number of attempts made.
    /// - Returns: whole seconds, at most `maximumBackoff`.
    package func pauseOfClient(after attempts: Int) -> Duration {
        guard attempts > 1 else { return .zero }
        return .seconds(min(maximumBackoff.components.seconds, 1 << Int64(min(attempts - 2, 40))))
    }

    /// The pause before the next attempt.
    ///
    /// - Parameters:
    ///   - attempts: the number of attempts made.
    ///   - asked: the seconds that the upstream requested (`Retry-After`); nil: none.
    ///   - random: any bits, which select a pause from the upper half of the backoff, so that uploads that failed
    ///     together are not retried together.
    /// - Returns: whole seconds, at most `maximumBackoff`.
    package func pause(after attempts: Int, asked: Int?, random: UInt64) -> Duration {
        let most = maximumBackoff.components.seconds
        let doublings = min(max(0, attempts - 1), 40)
        let (due, overflow) = minimumBackoff.components.seconds
            .multipliedReportingOverflow(by: 1 << Int64(doublings))
        let whole = overflow ? most : min(most, due)
        let half = whole / 2
        let drawn = whole - half + Int64(random % UInt64(half + 1))
        return .seconds(max(drawn, min(most, Int64(asked ?? 0))))
    }
}
