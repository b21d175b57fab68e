// When an upload of a route that was not delivered is tried again.

package import SpoolgatePosix

/// When the queue tries an upload again.
package struct QueuePolicy: Sendable, Equatable {
    /// Most delivery attempts of the route at any time; nil: as many as of all routes.
    package var maximumConcurrent: Int?
    /// Pause after the first attempt; doubled after each further one.
    package var minimumBackoff = Duration.seconds(10)
    /// Longest pause between two attempts.
    package var maximumBackoff = Duration.seconds(3_600)
    /// How long a whole upload may wait; after that it has failed.
    package var lifetime = Duration.seconds(5 * 86_400)

    /// How long an upload that has failed is kept.
    package var failedRetention = Duration.seconds(30 * 86_400)
    /// Most bytes of content that `hold` may keep of the route before accepted uploads are refused; 0: no
    /// limit.
    package var maximumHoldSize: Int64 = 64 << 30

    /// Whether an upload that is whole since `since` has waited for longer than one may at `time`.
    package func isOver(since: WallTime, at time: WallTime) -> Bool {
        time.seconds - since.seconds > lifetime.components.seconds
    }

    /// When the time in the queue is over that begins at `start`.
    package func end(from start: WallTime) -> WallTime {
        WallTime(seconds: start.seconds + lifetime.components.seconds)
    }

    /// Whether an attempt that is to be made at `next` is due at `now`.
    ///
    /// Also where it is further away than any pause: then the clock was set back since.
    package func isDue(_ next: WallTime, at now: WallTime) -> Bool {
        next <= now || next.seconds - now.seconds > maximumBackoff.components.seconds
    }

    /// The pause before a client can have another attempt made: none after the first, so that a client that tries again
    /// after a short failure gets through; a second after the next, and doubled after each further one.
    ///
    /// - Parameter attempts: attempts made.
    /// - Returns: whole seconds, at most `maximumBackoff`.
    package func pauseOfClient(after attempts: Int) -> Duration {
        guard attempts > 1 else { return .zero }
        return .seconds(min(maximumBackoff.components.seconds, 1 << Int64(min(attempts - 2, 40))))
    }

    /// The pause before the next attempt.
    ///
    /// - Parameters:
    ///   - attempts: attempts made.
    ///   - asked: seconds the upstream asked for (`Retry-After`); nil: it did not.
    ///   - random: any bits; a pause is drawn from the upper half of what is due, so that uploads that
    ///     failed together do not come back together.
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
