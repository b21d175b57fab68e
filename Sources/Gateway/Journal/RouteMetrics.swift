// What is counted of one route: the counts that every request adds to, so each is had without a look-up by name.

package import HTTPTypes
package import SpoolgateExchange
package import SpoolgatePosix

/// The counts of one route.
///
/// Any thread.
package final class RouteMetrics: Sendable {
    /// The methods that are told from each other.
    package enum MethodName: Int, Sendable, CaseIterable {
        case other, get, head, post, put, patch, delete, options

        /// The name of a method; `other` for those that have none here.
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

        /// The label's value.
        package var label: String { self == .other ? "other" : "\(self)".uppercased() }
    }

    /// What becomes of uploads.
    package enum Outcome: Int, Sendable, CaseIterable {
        /// A resource was made.
        case created
        /// The upstream has answered.
        case delivered
        /// It is not delivered and will not be.
        case failed
        /// The upstream was sent it and gave no answer.
        case held
        /// Its client removed it.
        case cancelled
        /// It was kept for as long as its route keeps one.
        case expired
    }

    /// Whose words an upload was made in.
    package enum DialectName: Int, Sendable, CaseIterable {
        /// Nobody's: an ordinary upload.
        case none
        case ietf
        case tus
    }

    /// What comes of an attempt to deliver.
    package enum Result: Int, Sendable, CaseIterable {
        /// The upstream answered with a status below 400.
        case taken
        /// The upstream answered with another one.
        case refused
        /// The upstream asks for another attempt.
        case putOff
        /// This process could not begin it.
        case notTried
        /// Nothing was sent.
        case notReached
        /// The upstream's directory has no room.
        case noRoom
        /// The upstream was sent it and gave no whole answer.
        case noAnswer
        /// The content could not be sent to its end.
        case abandoned

        /// The label's value.
        package var label: String {
            switch self {
            case .taken: "taken"
            case .refused: "refused"
            case .putOff: "put_off"
            case .notTried: "not_tried"
            case .notReached: "not_reached"
            case .noRoom: "no_room"
            case .noAnswer: "no_answer"
            case .abandoned: "abandoned"
            }
        }
    }

    /// Bytes of content received.
    package let received = Counter()
    /// Of these, bytes that the web server has written into the spool by itself.
    package let receivedByLane = Counter()
    /// Bytes of uploads that the upstream took.
    package let delivered = Counter()
    /// How long attempts to deliver took.
    package let deliveryTimes = Histogram(Histogram.medium)
    /// From the creation of an upload until it is whole.
    package let uploadTimes = Histogram(Histogram.long)
    /// By method and status, of which few occur.
    ///
    /// Locked for the time of one addition.
    private let requests = Monitor<[Int: Int]>([:])
    private let uploads = RouteMetrics.counters(Outcome.allCases.count * DialectName.allCases.count)
    private let contentPaths = RouteMetrics.counters(ContentPath.allCases.count)
    /// The number of the last path that the settings decide, from 1; 0: there was none.
    private let lastPath = Counter()
    private let deliveries = RouteMetrics.counters(Result.allCases.count)

    private static let statuses = 1_000

    private static func place(_ outcome: Outcome, _ dialect: DialectName) -> Int {
        outcome.rawValue * DialectName.allCases.count + dialect.rawValue
    }

    private static func counters(_ count: Int) -> [Counter] { (0..<count).map { _ in Counter() } }

    /// Whether its uploads get through.
    package let health: RouteHealth
    /// Whether the log has said already that a field of its upstream is ignored.
    private let hasToldSteering = Monitor(false)

    /// Begins with nothing counted; `uptime` is a clock in seconds that nobody can set.
    init(uptime: @escaping @Sendable () -> Int64) { health = RouteHealth(uptime: uptime) }

    /// Says once in the log if a response has a field by which an application has the web server in front of it send a
    /// file: the one in front of the gateway does not, and the client gets a response without content.
    ///
    /// - Parameters:
    ///   - fields: those of the response.
    ///   - route: the name of the route.
    ///   - log: the log.
    package func noteSteering(_ fields: HTTPFields, route: String, _ log: Log) {
        let field = fields.first { field in
            // The first letter alone tells most fields of a response apart from these.
            let name = field.name.canonicalName
            return name.utf8.first == UInt8(ascii: "x") && Self.steering.contains(name)
        }
        guard let field else { return }
        let isNew = hasToldSteering.updateQuietly { hasTold in
            defer { hasTold = true }
            return !hasTold
        }
        if isNew { log.steeringIgnored(route: route, field: field.name.rawName) }
    }

    private static let steering: Set<String> = [
        "x-accel-redirect", "x-sendfile", "x-lighttpd-send-file", "x-sendfile2",
    ]

    /// Counts a request that is over; status 0: its connection ended without one.
    package func add(_ method: MethodName, status: Int) {
        let key = method.rawValue * Self.statuses + status
        requests.updateQuietly { $0[key, default: 0] += 1 }
    }

    /// Counts what became of an upload.
    func add(_ outcome: Outcome, _ dialect: DialectName) {
        uploads[Self.place(outcome, dialect)].add()
    }

    /// Counts an attempt to deliver.
    func add(_ result: Result) { deliveries[result.rawValue].add() }

    /// Counts a message whose content took a path; not a small one, of which there is no choice.
    func add(_ path: ContentPath) {
        guard path != .small else { return }
        contentPaths[path.rawValue].add()
        switch path {
        case .taken, .off, .shared, .unusable, .notOffered: lastPath.set(path.rawValue + 1)
        // They say something of one message, and nothing of the route.
        case .digest, .ordinary, .full, .small: break
        }
    }

    // MARK: Reading

    /// Messages by the path that their content took, where any did.
    package var paths: [(path: ContentPath, count: Int)] {
        ContentPath.allCases.map { ($0, contentPaths[$0.rawValue].count) }.filter { $0.1 > 0 }
    }

    /// The path of the last message that could have taken the lane, as far as it alone is concerned; nil: there was
    /// none.
    package var lastContentPath: ContentPath? {
        ContentPath(rawValue: lastPath.count - 1)
    }

    /// Requests that are over, of each method and status that occurred, in a fixed order.
    package var answered: [(method: MethodName, status: Int, count: Int)] {
        requests.updateQuietly { $0 }.sorted { $0.key < $1.key }.compactMap { key, count in
            MethodName(rawValue: key / Self.statuses).map { ($0, key % Self.statuses, count) }
        }
    }

    /// What became of uploads, where anything did.
    package var outcomes: [(outcome: Outcome, dialect: DialectName, count: Int)] {
        Outcome.allCases.flatMap { outcome in
            DialectName.allCases.map { dialect in
                (outcome, dialect, uploads[Self.place(outcome, dialect)].count)
            }
        }.filter { $0.count > 0 }
    }

    /// Attempts to deliver, where there were any.
    package var results: [(result: Result, count: Int)] {
        Result.allCases.map { ($0, deliveries[$0.rawValue].count) }.filter { $0.count > 0 }
    }
}
