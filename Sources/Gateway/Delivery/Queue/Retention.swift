// The retention of uploads. Only this file decides which uploads the daemon and `purge` remove automatically.
//
// Invariant: no upload is removed before its retention ends.

package import SpoolgatePosix
package import SpoolgateSettings
package import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol

/// How long the settings keep uploads.
package struct Retention: Sendable {
    private let routes: [String: RouteSettings]
    /// The settings of all routes and the defaults, because a removed route may have had the defaults.
    private let all: [RouteSettings]

    /// Creates the retention that the settings define.
    package init(_ settings: Settings) {
        routes = settings.routes
        all = settings.routes.values + [RouteSettings()]
    }

    /// The queues whose expired uploads are removed.
    package static let queues: [Queue] = [.incoming, .hold, .delivered]

    /// How long content whose record is missing is kept in `corrupt`, in seconds.
    private static let orphanRetention: Int64 = 7 * 86_400

    /// Whether the settings contain this route.
    package func knows(_ route: String?) -> Bool {
        route.map { routes[exactly: $0] != nil } ?? false
    }

    /// Whether the retention of an upload has ended.
    ///
    /// For an unknown route, the longest retention applies.
    package func isExpired(_ summary: UploadSummary, at time: WallTime) -> Bool {
        end(of: summary).map { time > $0 } ?? false
    }

    /// The time at which an upload's retention ends; nil if the upload is kept until an operator removes it.
    package func end(of summary: UploadSummary) -> WallTime? {
        promised(summary).map { WallTime(seconds: summary.lastActivity.seconds + $0) }
    }

    /// The shortest retention in any of `queues`, in seconds since the last activity.
    package func shortest(_ queues: [Queue]) -> Int64 {
        queues.compactMap { queue in all.compactMap { $0.kept(queue) }.min() }.min() ?? 0
    }

    /// The longest retention in a queue since the last activity; nil if there is no limit.
    package func longest(_ queue: Queue) -> Duration? {
        all.compactMap { $0.kept(queue) }.max().map { .seconds($0) }
    }

    private func promised(_ summary: UploadSummary) -> Int64? {
        if summary.lacksRecord { return Self.orphanRetention }
        // All other uploads in `hold` wait for an operator, without limit.
        if summary.queue == .hold, summary.holdCause != .failed { return nil }
        guard let route = summary.creation.flatMap({ routes[exactly: $0.route] }) else {
            return all.compactMap { $0.kept(summary.queue) }.max()
        }
        return route.kept(summary.queue)
    }
}

extension RouteSettings {
    /// The retention in a queue, in seconds since the last activity; nil if uploads are kept until an operator removes
    /// them.
    fileprivate func kept(_ queue: Queue) -> Int64? {
        switch queue {
        case .incoming: limits.maxAge
        case .hold: self.queue.failedRetention.components.seconds
        case .delivered: responseRetention.components.seconds
        case .active, .deferred, .corrupt: nil
        }
    }
}
