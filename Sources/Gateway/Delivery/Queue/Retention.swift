// How long the settings promise to keep uploads. This is the only place that decides which uploads the daemon and
// `purge` remove on their own.
//
// Invariant: an upload that the settings still promise to keep is never over.

package import SpoolgatePosix
package import SpoolgateSettings
package import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol

/// The retention times of the settings.
package struct Retention: Sendable {
    private let routes: [String: RouteSettings]
    /// The routes and the defaults, because a route that was removed may have had the defaults.
    private let all: [RouteSettings]

    /// Creates the retention of these settings.
    package init(_ settings: Settings) {
        routes = settings.routes
        all = settings.routes.values + [RouteSettings()]
    }

    /// The queues whose uploads are removed when their time is over.
    package static let queues: [Queue] = [.incoming, .hold, .delivered]

    /// Whether the settings have a route of that name.
    package func knows(_ route: String?) -> Bool {
        route.map { routes[exactly: $0] != nil } ?? false
    }

    /// Whether the retention of an upload has ended at `time`.
    ///
    /// An upload of an unknown route is kept for the longest time of any route.
    package func isOver(_ summary: UploadSummary, at time: WallTime) -> Bool {
        end(of: summary).map { time > $0 } ?? false
    }

    /// The time until which an idle upload is kept; nil: until an operator removes it.
    package func end(of summary: UploadSummary) -> WallTime? {
        promised(summary).map { WallTime(seconds: summary.lastActivity.seconds + $0) }
    }

    /// The shortest time, in seconds, that an idle upload in one of `queues` is kept.
    package func shortest(_ queues: [Queue]) -> Int64 {
        queues.compactMap { queue in all.compactMap { $0.kept(queue) }.min() }.min() ?? 0
    }

    /// The longest time that any route keeps an idle upload in a queue; nil: without limit.
    package func longest(_ queue: Queue) -> Duration? {
        all.compactMap { $0.kept(queue) }.max().map { .seconds($0) }
    }

    private func promised(_ summary: UploadSummary) -> Int64? {
        // All other uploads in `hold` wait for an operator, without limit.
        if summary.queue == .hold, summary.holdCause != .failed { return nil }
        guard let route = summary.creation.flatMap({ routes[exactly: $0.route] }) else {
            return all.compactMap { $0.kept(summary.queue) }.max()
        }
        return route.kept(summary.queue)
    }
}

extension RouteSettings {
    /// Seconds that an idle upload is kept in a queue; nil: until an operator removes it.
    fileprivate func kept(_ queue: Queue) -> Int64? {
        switch queue {
        case .incoming: limits.maxAge
        case .hold: self.queue.failedRetention.components.seconds
        case .delivered: responseRetention.components.seconds
        case .active, .deferred, .corrupt: nil
        }
    }
}
