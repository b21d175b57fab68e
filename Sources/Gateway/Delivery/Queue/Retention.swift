// How long the settings promise to keep what lies in the spool: what the daemon and `purge` remove by
// themselves is decided here and nowhere else.
//
// Invariant: what a client was promised is never over for one who asks here.

package import SpoolgatePosix
package import SpoolgateSettings
package import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol

/// What the settings promise to keep, and for how long.
package struct Retention: Sendable {
    private let routes: [String: RouteSettings]
    /// Beside the routes in force the defaults count: a route that is no more may have had them.
    private let all: [RouteSettings]

    /// The promises of these settings.
    package init(_ settings: Settings) {
        routes = settings.routes
        all = settings.routes.values + [RouteSettings()]
    }

    /// The queues of which uploads are removed without being asked for.
    package static let queues: [Queue] = [.incoming, .hold, .delivered]

    /// Whether the settings have a route of that name.
    package func knows(_ route: String?) -> Bool {
        route.map { routes[exactly: $0] != nil } ?? false
    }

    /// Whether nothing is promised of an upload any more at `time`.
    ///
    /// An upload whose route is not known is kept for the longest time that any route keeps one.
    package func isOver(_ summary: UploadSummary, at time: WallTime) -> Bool {
        end(of: summary).map { time > $0 } ?? false
    }

    /// Until when an upload is kept if nothing happens to it; nil: until somebody says otherwise.
    package func end(of summary: UploadSummary) -> WallTime? {
        promised(summary).map { WallTime(seconds: summary.lastActivity.seconds + $0) }
    }

    /// The shortest time, in seconds, for which an upload in one of `queues` is kept.
    package func shortest(_ queues: [Queue]) -> Int64 {
        queues.compactMap { queue in all.compactMap { $0.kept(queue) }.min() }.min() ?? 0
    }

    /// The longest time for which any route keeps what is in a queue; nil: nothing there is over.
    package func longest(_ queue: Queue) -> Duration? {
        all.compactMap { $0.kept(queue) }.max().map { .seconds($0) }
    }

    private func promised(_ summary: UploadSummary) -> Int64? {
        // What else is in `hold` waits for a person, however long that takes.
        if summary.queue == .hold, summary.holdCause != .failed { return nil }
        guard let route = summary.creation.flatMap({ routes[exactly: $0.route] }) else {
            return all.compactMap { $0.kept(summary.queue) }.max()
        }
        return route.kept(summary.queue)
    }
}

extension RouteSettings {
    /// Seconds for which an upload without activity is kept in a queue; nil: until somebody says so.
    fileprivate func kept(_ queue: Queue) -> Int64? {
        switch queue {
        case .incoming: limits.maxAge
        case .hold: self.queue.failedRetention.components.seconds
        case .delivered: responseRetention.components.seconds
        case .active, .deferred, .corrupt: nil
        }
    }
}
