// The metrics of one process, in memory, each updated in one place; Admin/Admin+Metrics has their names.
//
// Invariant: keys come from bounded sets (routes of the settings, methods, statuses, codes of refusals) and never
// contain an owner, a path or an upload ID.

package import HTTPTypes
package import SpoolgateExchange
package import SpoolgatePosix
package import SpoolgateUploadProtocol
package import SpoolgateUpstream
import Synchronization

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
    private static let maximum = 20
    private let list = Monitor<[RecentFailure]>([])

    func note(_ id: UploadID, route: String, reason: String) {
        let failure = RecentFailure(time: .now, id: id, route: route, reason: reason)
        list.updateQuietly { list in
            if list.count >= Self.maximum { list.removeFirst() }
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
    private static let maximum = 1000
    private let state = Monitor(State())

    func note(_ sentence: String) {
        state.updateQuietly { state in
            state.total += 1
            if state.ends.count >= Self.maximum { state.ends.removeFirst() }
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

// MARK: Routes

// The metrics of one route, found without a lookup by name because every request updates them.

/// The number of bytes of content that one request, or all requests of a route, have sent; thread-safe.
package final class ContentCount: Sendable {
    private let all = Atomic(0)
    private let byNginx = Atomic(0)
    /// The count of the route.
    private let sum: ContentCount?

    /// Creates the count of a request, which is part of `sum`, or of a route.
    package init(in sum: ContentCount? = nil) { self.sum = sum }

    package var received: Int { all.load(ordering: .relaxed) }
    /// Of these, the bytes that the web server wrote into the spool directly.
    package var writtenByNginx: Int { byNginx.load(ordering: .relaxed) }

    /// Adds the bytes that have just arrived.
    package func add(_ count: Int, byNginx isByNginx: Bool = false) {
        all.wrappingAdd(count, ordering: .relaxed)
        if isByNginx { byNginx.wrappingAdd(count, ordering: .relaxed) }
        sum?.add(count, byNginx: isByNginx)
    }
}

/// The metrics of one route; thread-safe.
package final class RouteMetrics: Sendable {
    /// The methods that are counted separately.
    package enum MethodName: Int, Sendable, CaseIterable {
        case other, get, head, post, put, patch, delete, options

        /// Creates the name of a method, or `other` if the method is not counted separately.
        package init(_ method: HTTPRequest.Method) {
            self =
                switch method {
                case .get: .get
                case .head: .head
                case .post: .post
                case .put: .put
                case .patch: .patch
                case .delete: .delete
                case .options: .options
                default: .other
                }
        }

        package var label: String { self == .other ? "other" : "\(self)".uppercased() }
    }

    /// An event in the life of an upload that the metrics count.
    package enum Outcome: Sendable, CaseIterable {
        case created
        /// The upstream sent a final response, with any status.
        case delivered
        /// The upload will not be delivered.
        case failed
        /// The upstream may have received the upload but sent no response.
        case held
        case cancelled
        case expired
    }

    /// The protocol of an upload.
    package enum DialectName: Int, Sendable, CaseIterable {
        /// An ordinary upload, without a resource.
        case none
        case ietf
        case tus
    }

    /// The results of delivery attempts.
    package enum Result: String, Sendable, CaseIterable {
        /// The upstream's status was below 400.
        case accepted
        /// The upstream's status was 400 or more.
        case refused
        /// The upstream asked for another attempt.
        case deferred
        /// This process could not start the attempt.
        case notAttempted = "not_attempted"
        /// No byte of the request was sent.
        case unreachable
        /// The upstream, a directory or a bucket, has no space for the upload.
        case upstreamFull = "upstream_full"
        /// The upstream received the request but sent no complete response.
        case noResponse = "no_response"
        /// The content could not be sent completely.
        case abandoned
    }

    /// The content of all requests.
    package let content = ContentCount()
    /// The number of bytes in uploads that the upstream accepted.
    package let delivered = Counter()
    package let deliveryTimes = Histogram(Histogram.medium)
    /// The times from the creation of uploads to their completion.
    package let uploadTimes = Histogram(Histogram.long)
    /// Requests by method and status, for the few pairs that occur.
    private let requests = Monitor<[Int: Int]>([:])
    private let uploads = DialectName.allCases.map { _ in Tally<Outcome>() }
    /// Requests by how their content reached the spool.
    package let paths = Tally<ContentPath>()
    /// The raw value of `lastContentPath` plus 1; 0 for nil.
    private let lastPath = Counter()
    package let results = Tally<Result>()

    private static let statuses = 1_000

    package let health: RouteHealth
    private let uptime: @Sendable () -> Int64
    private let hasReportedSteering = Monitor(false)

    init(uptime: @escaping @Sendable () -> Int64) {
        self.uptime = uptime
        health = RouteHealth(uptime: uptime)
    }

    /// Logs, once per route, that an upstream's response has a field such as `X-Sendfile`, which tells the upstream's
    /// own web server to send a file.
    ///
    /// The web server in front of the gateway ignores this field, so the client receives a response without content.
    ///
    /// - Parameters:
    ///   - fields: the fields of the upstream's response.
    ///   - route: the name of the route.
    ///   - log: the log.
    package func noteSteering(_ fields: HTTPFields, route: String, _ log: Log) {
        let field = fields.first { field in
            // The first letter alone excludes most fields.
            let name = field.name.canonicalName
            return name.utf8.first == UInt8(ascii: "x") && Self.steering.contains(name)
        }
        guard let field else { return }
        let isNew = hasReportedSteering.updateQuietly { hasReported in
            defer { hasReported = true }
            return !hasReported
        }
        if isNew { log.steeringIgnored(route: route, field: field.name.rawName) }
    }

    /// Logs a redirect of the upstream that the setting `redirects` does not name, once for each of the first places.
    ///
    /// - Parameters:
    ///   - redirection: the redirect.
    ///   - place: its place.
    ///   - rules: the setting.
    ///   - status: the status of the upstream's response.
    ///   - route: the name of the route.
    ///   - log: the log.
    package func noteRedirect(
        _ redirection: Redirection,
        to place: String,
        under rules: RedirectRules,
        status: Int,
        route: String,
        _ log: Log
    ) {
        let now = uptime()
        let isNew = unlisted.updateQuietly { unlisted in
            if unlisted.rules != rules { unlisted = Unlisted(rules: rules) }
            if redirection.kind == .elsewhere { unlisted.lost = (place, now) }
            guard unlisted.reported.count < Unlisted.maximum, !unlisted.reported.contains(place)
            else {
                return false
            }
            unlisted.reported.append(place)
            return true
        }
        guard isNew else { return }
        log.redirectUnlisted(
            route: route,
            status: status,
            place: place,
            isResponse: redirection.kind == .response
        )
    }

    /// The place of the last unlisted redirect under `rules` that was not taken for success; nil if there was none
    /// within a day.
    package func lostRedirect(under rules: RedirectRules) -> String? {
        let now = uptime()
        return unlisted.updateQuietly { unlisted in
            guard unlisted.rules == rules, let lost = unlisted.lost, now - lost.time < 86_400 else {
                return nil
            }
            return lost.place
        }
    }

    /// Redirects that a setting does not name.
    private struct Unlisted {
        /// The places that the log names; further ones may differ for each upload.
        static let maximum = 4

        var rules = RedirectRules()
        var reported: [String] = []
        var lost: (place: String, time: Int64)?
    }

    private let unlisted = Monitor(Unlisted())

    private static let steering: Set<String> = [
        "x-accel-redirect", "x-sendfile", "x-lighttpd-send-file", "x-sendfile2",
    ]

    /// Counts a request; `status` is 0 if its connection was closed without a response.
    package func add(_ method: MethodName, status: Int) {
        let key = method.rawValue * Self.statuses + status
        requests.updateQuietly { $0[key, default: 0] += 1 }
    }

    func add(_ outcome: Outcome, _ dialect: DialectName) {
        uploads[dialect.rawValue].add(outcome)
    }

    /// Does not count small content, which always passes through the gateway.
    func add(_ path: ContentPath) {
        guard path != .small else { return }
        paths.add(path)
        switch path {
        case .used, .off, .shared, .unusable, .notOffered: lastPath.set(path.rawValue + 1)
        // The reason is this request's content, not the route's configuration.
        case .digest, .length, .ordinary, .full, .small: break
        }
    }

    // MARK: Reading

    /// How the last content that nginx could have written reached the spool; nil before the first such content.
    ///
    /// Content that passed through the gateway for a reason of its own, such as a digest, does not count.
    package var lastContentPath: ContentPath? {
        ContentPath(rawValue: lastPath.count - 1)
    }

    /// The number of finished requests for each method and status that occurred, in a fixed order.
    package var responded: [(method: MethodName, status: Int, count: Int)] {
        requests.updateQuietly { $0 }.sorted { $0.key < $1.key }.compactMap { key, count in
            MethodName(rawValue: key / Self.statuses).map { ($0, key % Self.statuses, count) }
        }
    }

    package var outcomes: [(outcome: Outcome, dialect: DialectName, count: Int)] {
        Outcome.allCases.flatMap { outcome in
            DialectName.allCases.map { (outcome, $0, uploads[$0.rawValue].count(of: outcome)) }
        }.filter { $0.count > 0 }
    }
}

/// A counter for each case of an enumeration; thread-safe.
package struct Tally<Key: CaseIterable & Equatable & Sendable>: Sendable {
    private let counters = Key.allCases.map { (key: $0, counter: Counter()) }

    func add(_ key: Key) { counters.first { $0.key == key }?.counter.add() }

    func count(of key: Key) -> Int { counters.first { $0.key == key }?.counter.count ?? 0 }

    /// The counts that are not zero, in the order of the cases.
    package var all: [(key: Key, count: Int)] {
        counters.map { ($0.key, $0.counter.count) }.filter { $0.1 > 0 }
    }
}
