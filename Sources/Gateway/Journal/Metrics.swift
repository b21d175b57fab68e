// What one process counts of what happens: in memory, each thing at one place, most of them where the journal
// tells it.
//
// What the metrics are called is the operator's page (Admin/MetricsPage). Invariant: the keys are of bounded
// sets: routes of the settings, methods, statuses, the codes of refusals; never an owner, a path or an identity.

package import SpoolgatePosix
package import SpoolgateUploadProtocol

/// The counts of one process.
///
/// Any thread.
package final class Metrics: Sendable {
    /// When this process began.
    package let start = WallTime.now
    /// No `Labelled`: each event of an upload looks here, and what is generic in another target costs more.
    private let byRoute = Monitor<[String: RouteMetrics]>([:])
    /// What stands for a route where there is none.
    package static let noRoute = "-"
    /// Refusals by their code.
    package let refusals = Counters<String>()
    /// Content that ended early, by why.
    package let interruptions = Counters<String>()
    /// Uploads that were resumed after that.
    package let resumptions = Counter()
    /// Uploads whose content is received now.
    package let receiving = Counter()
    /// Those of them that are ordinary, which nobody can name.
    package let receivingOrdinary = Counter()
    /// Uploads with a resource that an attempt is under way for.
    package let delivering = Counter()
    /// Runs through the queue that are over.
    package let queueRuns = Counter()
    private let interims = (0..<100).map { _ in Counter() }
    /// Questions to authorizers, by their result.
    package let authorizerTimes = Histograms<String> { Histogram(Histogram.medium) }
    /// Inspections, by their result.
    package let inspectionTimes = Histograms<String> { Histogram(Histogram.medium) }
    /// The last uploads that were not delivered.
    package let failures = RecentFailures()
    /// The uploads that wait.
    package let waiting = WaitingUploads()
    /// Whether the last reload of the settings was refused: 1, else 0.
    package let refusedReload = Counter()

    private let uptime: @Sendable () -> Int64

    /// Begins with nothing counted; `uptime` is a clock in seconds that nobody can set.
    package init(uptime: @escaping @Sendable () -> Int64 = SystemClock.kernelUptime) {
        self.uptime = uptime
    }

    /// What is counted of a route.
    package subscript(route: String) -> RouteMetrics {
        byRoute.updateQuietly { byRoute in
            if let found = byRoute[route] { return found }
            let made = RouteMetrics(uptime: uptime)
            byRoute[route] = made
            return made
        }
    }

    /// What is counted of each route, by its name.
    package var routes: [(name: String, counts: RouteMetrics)] {
        byRoute.updateQuietly { $0 }.sorted { $0.key < $1.key }.map { ($0.key, $0.value) }
    }

    /// Bytes of content received on all routes.
    package var received: Int {
        byRoute.updateQuietly { $0.values.reduce(0) { $0 + $1.received.count } }
    }

    /// Counts an interim response that was sent.
    package func addInterim(_ status: Int) {
        if (100..<200).contains(status) { interims[status - 100].add() }
    }

    /// Interim responses sent, of each status that occurred.
    package var interimCounts: [(status: Int, count: Int)] {
        interims.enumerated().map { ($0.offset + 100, $0.element.count) }.filter { $0.1 > 0 }
    }
}

/// One upload that was not delivered, or that the upstream refused.
package struct RecentFailure: Sendable, Equatable {
    /// When.
    package var time: WallTime
    /// The upload.
    package var id: UploadID
    /// Its route.
    package var route: String
    /// Why.
    package var reason: String
}

/// The last uploads that were not delivered.
///
/// Any thread.
package final class RecentFailures: Sendable {
    private static let most = 20
    private let list = Monitor<[RecentFailure]>([])

    /// Notes one.
    func note(_ id: UploadID, route: String, reason: String) {
        let failure = RecentFailure(time: .now, id: id, route: route, reason: reason)
        list.updateQuietly { list in
            if list.count >= Self.most { list.removeFirst() }
            list.append(failure)
        }
    }

    /// The newest first, at most 20.
    package var newest: [RecentFailure] { list.updateQuietly { $0.reversed() } }
}
