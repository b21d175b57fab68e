// The metrics of one process, in memory, each updated in one place; Admin/MetricsPage has their names.
//
// Invariant: keys come from bounded sets (routes of the settings, methods, statuses, codes of refusals) and never
// contain an owner, a path or an upload ID.

package import SpoolgatePosix
package import SpoolgateUploadProtocol

/// The metrics of one process; thread-safe.
package final class Metrics: Sendable {
    package let start = WallTime.now
    /// Not a `Labelled`, because the generic code of another module is slower.
    private let byRoute = Monitor<[String: RouteMetrics]>([:])
    /// The name that stands for a missing route.
    package static let noRoute = "-"
    /// The number of refusals, by the code in the response.
    package let refusals = Counters<String>()
    /// The number of requests whose content ended early, by reason.
    package let interruptions = Counters<String>()
    /// The number of interrupted uploads that were resumed.
    package let resumptions = Counter()
    /// The number of uploads that are being received now, including ordinary uploads.
    package let receiving = Counter()
    /// The number of ordinary uploads that are being received now: uploads without a resource, which cannot be resumed.
    package let receivingOrdinary = Counter()
    /// The number of uploads with a resource that are being delivered now.
    package let delivering = Counter()
    package let queueRuns = Counter()
    private let interims = (0..<100).map { _ in Counter() }
    /// The durations of requests to authorizers, by result.
    package let authorizerTimes = Histograms<String> { Histogram(Histogram.medium) }
    package let inspectionTimes = Histograms<String> { Histogram(Histogram.medium) }
    package let failures = RecentFailures()
    package let waiting = WaitingUploads()
    package let spoolErrors = SpoolErrors()
    /// The number of uploads and directories that the last recovery could not read or repair.
    package let unrecovered = Counter()
    /// 1 if the last reload of the settings was refused, otherwise 0.
    package let refusedReload = Counter()

    private let uptime: @Sendable () -> Int64

    /// Creates metrics that are all zero; `uptime` returns the seconds since an arbitrary time, unaffected by changes
    /// of the system clock.
    package init(uptime: @escaping @Sendable () -> Int64 = SystemClock.kernelUptime) {
        self.uptime = uptime
    }

    /// The metrics of the route with this name; created on the first access.
    package subscript(route: String) -> RouteMetrics {
        byRoute.updateQuietly { byRoute in
            if let found = byRoute[route] { return found }
            let made = RouteMetrics(uptime: uptime)
            byRoute[route] = made
            return made
        }
    }

    /// The metrics of each route, sorted by name.
    package var routes: [(name: String, counts: RouteMetrics)] {
        byRoute.updateQuietly { $0 }.sorted { $0.key < $1.key }.map { ($0.key, $0.value) }
    }

    package var received: Int {
        byRoute.updateQuietly { $0.values.reduce(0) { $0 + $1.content.received } }
    }

    /// Counts an interim response (1xx) that was sent.
    package func addInterim(_ status: Int) {
        if (100..<200).contains(status) { interims[status - 100].add() }
    }

    /// The number of interim responses (1xx) sent, for each status code that occurred.
    package var interimCounts: [(status: Int, count: Int)] {
        interims.enumerated().map { ($0.offset + 100, $0.element.count) }.filter { $0.1 > 0 }
    }
}

/// An upload that was not delivered, or that the upstream refused.
package struct RecentFailure: Sendable, Equatable {
    package var time: WallTime
    package var id: UploadID
    package var route: String
    package var reason: String
}

/// The most recent failures of deliveries; thread-safe.
package final class RecentFailures: Sendable {
    private static let most = 20
    private let list = Monitor<[RecentFailure]>([])

    func note(_ id: UploadID, route: String, reason: String) {
        let failure = RecentFailure(time: .now, id: id, route: route, reason: reason)
        list.updateQuietly { list in
            if list.count >= Self.most { list.removeFirst() }
            list.append(failure)
        }
    }

    /// The most recent failures, newest first, at most 20.
    package var newest: [RecentFailure] { list.updateQuietly { $0.reversed() } }
}

/// The errors of the spool that requests and deliveries met; thread-safe.
package final class SpoolErrors: Sendable {
    private struct State {
        var total = 0
        /// When each recent error stops being recent, oldest first.
        var ends: [Deadline] = []
        var last = ""
    }

    /// The period in which errors count as recent, in minutes.
    package static let minutes = 5
    private static let most = 1000
    private let state = Monitor(State())

    func note(_ sentence: String) {
        state.updateQuietly { state in
            state.total += 1
            if state.ends.count >= Self.most { state.ends.removeFirst() }
            state.ends.append(.after(.seconds(60 * Self.minutes)))
            state.last = sentence
        }
    }

    /// The number of errors since the process started.
    package var total: Int { state.updateQuietly { $0.total } }

    /// The number of recent errors, at most 1000, and the sentence of the last one.
    package var recent: (count: Int, last: String) {
        state.updateQuietly { state in
            state.ends.removeAll(where: \.hasPassed)
            return (state.ends.count, state.last)
        }
    }
}
