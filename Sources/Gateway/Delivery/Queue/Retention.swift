// The retention of uploads by the settings. Only this file decides which uploads the daemon and `purge` remove on
// their own.
//
// Invariant: no upload is removed before its retention ends.

package import SpoolgatePosix
package import SpoolgateSettings
package import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol

/// The retention times of the settings.
package struct Retention: Sendable {
    private let routes: [String: RouteSettings]
    /// Includes the defaults, because a removed route may have had them.
    private let all: [RouteSettings]

    /// Creates the retention of these settings.
    package init(_ settings: Settings) {
        routes = settings.routes
        all = settings.routes.values + [RouteSettings()]
    }

    /// The queues whose expired uploads are removed.
    package static let queues: [Queue] = [.incoming, .hold, .delivered]

    /// Whether the settings contain the route.
    package func knows(_ route: String?) -> Bool {
        route.map { routes[exactly: $0] != nil } ?? false
    }

    /// Whether the retention of an upload has ended.
    ///
    /// An upload of an unknown route is kept for the longest time of any route.
    package func isOver(_ summary: UploadSummary, at time: WallTime) -> Bool {
        end(of: summary).map { time > $0 } ?? false
    }

    /// The time until which an idle upload is kept; nil: until an operator removes it.
    package func end(of summary: UploadSummary) -> WallTime? {
        promised(summary).map { WallTime(seconds: summary.lastActivity.seconds + $0) }
    }

    /// The shortest retention of an idle upload in `queues`, in seconds.
    package func shortest(_ queues: [Queue]) -> Int64 {
        queues.compactMap { queue in all.compactMap { $0.kept(queue) }.min() }.min() ?? 0
    }

    /// The longest retention of an idle upload in a queue; nil: without limit.
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
    /// The retention of an idle upload in seconds; nil: until an operator removes it.
    fileprivate func kept(_ queue: Queue) -> Int64? {
        switch queue {
        case .incoming: limits.maxAge
        case .hold: self.queue.failedRetention.components.seconds
        case .delivered: responseRetention.components.seconds
        case .active, .deferred, .corrupt: nil
        }
    }
}
