// The status of one daemon at one moment.
//
// The page, the screen and the JSON show this status, so that they agree. Invariant: no value waits for a stalled disk.

import SpoolgateDelivery
import SpoolgateExchange
import SpoolgateJournal
import SpoolgatePosix
import SpoolgateRequests
import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol
import SpoolgateUpstream

struct Status: Sendable {
    /// The severity, named as in Nagios plugins.
    enum Level: String, Sendable {
        case ok = "OK"
        case warning = "WARNING"
        case critical = "CRITICAL"
    }

    /// The first elements of one kind, and the total number.
    struct Part<Element: Sendable>: Sendable {
        var first: [Element]
        var count: Int

        /// Lists the first `maximum` elements of `all`, and counts `others` more.
        init(_ all: [Element], maximum: Int = Status.maximum, others: Int = 0) {
            first = Array(all.prefix(maximum))
            count = all.count + others
        }

        var rest: Int { count - first.count }
    }

    /// The maximum number listed of each kind.
    static let maximum = 20

    let host: String
    /// The routes, sorted by name.
    let routes: [Route]
    /// The name of this node; nil if there is only one.
    let node: String?
    let start: WallTime
    let now: WallTime
    let checks: [Check]
    let load: ListenerLoad
    let receiving: Int
    /// The number of ordinary uploads being received, which have no identity and are not in `transfers`.
    let ordinary: Int
    /// The rate at which content is received, in bytes per second.
    let rate: Int64
    let transfers: Part<Transfer>
    /// Deferred uploads in the order of their next attempts; those that wait for their clients are last.
    let waiting: Part<WaitingUpload>
    /// Uploads in `hold` that no operator put there, oldest first.
    ///
    /// An operator must decide about each.
    let needy: Part<WaitingUpload>
    /// Uploads that an operator put on hold, oldest first.
    let held: Part<WaitingUpload>
    /// Incomplete uploads that wait for their clients; newest activity first, as of the sampler's list.
    let partial: Part<PartialUpload>
    /// The routes whose deliveries are failing, sorted by name.
    let failing: [FailingRoute]
    /// The routes with redirects that were not taken for success and that no setting names, each in a few words.
    let lostRedirects: [String]
    /// Whether uploads are still being counted, so that more may be waiting.
    let isCounting: Bool
    /// Whether a daemon has crashed and the recovery of its uploads is not complete.
    let isAfterDeath: Bool
    /// The seconds since the oldest waiting upload was completed; nil if none waits.
    let oldestWait: Int64?
    let failures: [RecentFailure]
    let figures: SpoolFigures
    let sample: Sampler.Sample
    /// Why uploads are refused with 507, except small ones that stay in memory; empty if no uploads are refused.
    let full: [SpoolError]
    /// Faults in the web server's configuration in the last 15 minutes.
    let faults: [WebServerFault]
    let isReloadRefused: Bool
    let corrupt: Int
    /// The number of uploads and directories that recovery could not read or repair.
    let unrecovered: Int
    /// The recent errors of the spool, with the sentence of the last one.
    let spoolErrors: (count: Int, last: String)

    init(of admin: Admin) {
        let (gateway, metrics) = (admin.gateway, admin.gateway.metrics)
        host = HostName.current
        node = admin.node
        start = metrics.start
        now = gateway.deliveries.clock.now
        load = admin.load()
        checks = admin.checks(load)
        receiving = max(0, metrics.receiving.count)
        ordinary = max(0, metrics.receivingOrdinary.count)
        rate = admin.meter.rate
        // This order changes least from one refresh to the next.
        transfers = Part(gateway.transfers.all.sorted { $0.number < $1.number })
        // Read before the counts, so that incomplete counts are never reported as final.
        isCounting = metrics.waiting.isCounting
        isAfterDeath = gateway.deliveries.spool.isAfterDeath
        let (known, others) = metrics.waiting.all
        let deferred = known.filter { $0.cause == nil }
        waiting = Part(deferred.sorted(by: \.next), others: others)
        let now = now
        oldestWait = deferred.compactMap(\.since).min().map { max(0, now.seconds - $0.seconds) }
        let inHold = known.filter { $0.cause != nil }.sorted(by: \.since)
        needy = Part(inHold.filter { $0.cause != .held })
        held = Part(inHold.filter { $0.cause == .held })
        let queues = QueueFigures(of: gateway)
        // Ordinary uploads have no record.
        let left = max(0, queues.incoming - (receiving - ordinary))
        let active = Set(gateway.transfers.all.map(\.id))
        let idle = Array(admin.sampler.partial.filter { !active.contains($0.id) }.prefix(left))
        partial = Part(idle, others: left - idle.count)
        routes = admin.routes
        failing = routes.compactMap { route in
            route.counts.health.failing.map { FailingRoute(route: route, run: $0) }
        }
        lostRedirects = routes.compactMap { route in
            route.lostRedirect.map {
                "route \(route.name): a redirect to \($0) was not taken for success (name it in redirects.login or "
                    + "redirects.success)"
            }
        }
        failures = metrics.failures.newest
        figures = gateway.deliveries.spool.figures
        sample = admin.sampler.sample
        full = gateway.deliveries.spool.refusals(with: sample.space)
        faults = WebServerFault.allCases.filter(gateway.faults.recent.contains)
        isReloadRefused = metrics.refusedReload.count > 0
        corrupt = metrics.waiting.corrupt
        unrecovered = metrics.unrecovered.count
        spoolErrors = metrics.spoolErrors.recent
    }

    private var threads: String { "\(load.busy) of \(load.maximum) threads" }

    var running: String {
        "spoolgate \(ProgramVersion.text(build: ProgramBuild.identity))\(node.map { ", node \($0)" } ?? ""), "
            + "on \(host), up \(since(start)), \(threads)"
    }

    func since(_ time: WallTime) -> String { DurationText.rounded(now.seconds - time.seconds) }

    // MARK: Severity

    var level: Level {
        if !checks.allSatisfy(\.isGood) || !full.isEmpty { return .critical }
        return concerns.isEmpty ? .ok : .warning
    }

    /// The problems that an operator should look at, each in a few words.
    var concerns: [String] {
        var all = checks.filter { !$0.isGood }.map { "\($0.name): \($0.fault ?? "")" }
        all += full.map { "uploads are refused with 507: \($0.sentence)" }
        all += failing.map(\.concern) + lostRedirects
        if needy.count > 0 { all.append(needs) }
        all += spoolConcerns
        if isAfterDeath {
            all.append(
                isCounting
                    ? "a daemon crashed; its uploads are being counted"
                    : "a daemon crashed; not all of its uploads could be read (see the log)"
            )
        }
        if let oldestWait, oldestWait > 900 {
            all.append("an upload has been waiting for \(DurationText.rounded(oldestWait))")
        }
        all += roomConcerns
        let dead = sample.nodes.filter { !$0.isAlive }.map(\.name)
        if !dead.isEmpty {
            all.append(
                "node \(dead.joined(separator: ", ")) failed; its uploads have not been recovered yet"
            )
        }
        if load.busy * 10 > load.maximum * 8 { all.append("\(threads) are in use") }
        if let purge = sample.lastPurge, now.seconds - purge.seconds > 10_800 {
            all.append("the last purge was \(since(purge)) ago")
        }
        if !faults.isEmpty {
            let words = faults.map(\.rawValue).joined(separator: ", ")
            all.append("web server misconfigured: \(words) (see the log)")
        }
        if isReloadRefused { all.append("settings reload failed (run spoolgate check)") }
        return all
    }

    /// The failures of single uploads, which leave the daemon ready for others.
    private var spoolConcerns: [String] {
        var all: [String] = []
        if corrupt > 0 {
            all.append(
                "\(corrupt, of: "corrupt upload") (run spoolgate list --state corrupt; the log has "
                    + "the reasons)"
            )
        }
        if unrecovered > 0 {
            all.append(
                "recovery failed for \(unrecovered, of: "upload") (the log has the reasons)"
            )
        }
        if spoolErrors.count > 0 {
            all.append(
                "\(spoolErrors.count, of: "spool error") in the last \(SpoolErrors.minutes) minutes; last: "
                    + "\(spoolErrors.last.prefix(300))"
            )
        }
        return all
    }

    /// The kinds of space that are low but not exhausted.
    private var roomConcerns: [String] {
        let causes = full.map(\.fullness)
        var all: [String] = []
        if let free = sample.space?.freeBytes, free < 2 * figures.reserve,
            !causes.contains(.reserve)
        {
            all.append("only \(ByteSize.decimal(free)) free")
        }
        if let quota = figures.quota, quota > 0, figures.bytes > quota / 10 * 9,
            !causes.contains(.quota)
        {
            let used = ByteSize.decimal(figures.bytes)
            all.append("\(used) of the quota of \(ByteSize.decimal(quota)) used")
        }
        if let files = sample.space?.freeFiles, files < 2_000, !causes.contains(.files) {
            all.append("only \(files) free inodes")
        }
        return all
    }

    /// The concerns that `line` does not mention.
    var furtherConcerns: [String] { concerns.filter { $0 != needs } }

    private var needs: String { "\(needy.count) \(needy.count == 1 ? "needs" : "need") attention" }

    /// The status in one line, shown for example by `systemctl status`.
    var line: String {
        // The last measured rate may be from an earlier transfer.
        let speed = receiving > 0 ? " \(ByteSize.decimal(rate))/s" : ""
        var parts = ["\(receiving) receiving\(speed)", "\(waiting.count) waiting", needs]
        if held.count > 0 { parts.append("\(held.count) held") }
        if partial.count > 0 { parts.append("\(partial.count) partial") }
        if isCounting { parts.append("still counting") }
        if !full.isEmpty { parts.append("spool full") }
        if let free = sample.space?.freeBytes { parts.append("\(ByteSize.decimal(free)) free") }
        return parts.joined(separator: ", ")
    }
}

/// Why space is lacking, named as in the metrics.
enum SpoolFullness: String, CaseIterable {
    case reserve
    case quota
    /// The file system can hold too few new files.
    case files
    /// `spool.maximum-uploads`, or the limit for one client, is reached.
    case uploads
}

extension SpoolError {
    /// Why space is lacking; nil if the error has another cause.
    var fullness: SpoolFullness? {
        switch self {
        case .full: .reserve
        case .overQuota: .quota
        case .fewFiles: .files
        case .tooMany: .uploads
        default: nil
        }
    }
}

extension Route {
    /// The targets as written in the settings.
    var targetList: String { targets.joined(separator: ", ") }
}

struct FailingRoute: Sendable {
    let route: Route
    /// The failures since the last successful delivery.
    let run: FailureRun

    var count: String {
        let noun = run.count == 1 ? "delivery" : "deliveries"
        return "\(run.count) \(noun) failed in \(DurationText.rounded(run.age)), none succeeded"
            + (run.wasReached ? "" : ", none reached the upstream")
    }

    /// The problem in a few words, for the line printed by `status --check`.
    var concern: String {
        "route \(route.name) is failing: \(count) (\(route.targetList)); last failure: "
            + "\(run.reason.prefix(300))"
    }
}

extension Admin {
    /// The status in one line, which the daemon reports to the service manager.
    package var statusLine: String { Status(of: self).line }
}

extension Transfer {
    /// The received percentage; nil if the length is unknown.
    var percent: Int? {
        length.map { $0 == 0 ? 100 : Int(Double(offset) / Double($0) * 100) }
    }

    /// The seconds until completion at the current rate; nil if unknown.
    var secondsLeft: Int64? {
        guard let length, rate > 0 else { return nil }
        return max(0, length - offset) / rate
    }
}

extension [WaitingUpload] {
    /// Returns the uploads by time, those without a time last; then by identity.
    fileprivate func sorted(by time: KeyPath<WaitingUpload, WallTime?>) -> [WaitingUpload] {
        func key(_ upload: WaitingUpload) -> (WallTime, String) {
            (upload[keyPath: time] ?? WallTime(seconds: .max), upload.id.description)
        }
        return sorted { key($0) < key($1) }
    }
}

extension WaitingUpload {
    func when(_ now: WallTime) -> String {
        guard let next else { return "waits for its client" }
        return next <= now
            ? "next now" : "next in \(DurationText.rounded(next.seconds - now.seconds))"
    }

    /// A check for the operator to make before choosing one of `steps`; nil if none is needed.
    var prompt: String? {
        cause == .indeterminate ? "check whether the upstream has the upload" : nil
    }

    /// The commands for the operator to choose from, each with its purpose or condition.
    var steps: [(when: String, command: String)] {
        switch cause {
        case nil: []
        case .held?: [("to release it", "spoolgate release \(id)")]
        case .failed?:
            [("to see why", "spoolgate show \(id)"), ("to retry", "spoolgate requeue \(id)")]
        case .indeterminate?:
            // An operator decides, because the upstream could receive the upload twice.
            [
                ("to inspect it", "spoolgate show \(id)"),
                ("if it does not", "spoolgate requeue \(id)"),
                ("if it does", "spoolgate purge --force \(id)"),
            ]
        }
    }
}

extension UploadNaming {
    /// The client's name for the file; nil if the client gave none or the path ends with that name.
    var file: String? {
        let name = ClientFileName(target: path, fields: fields).text
        return name == ClientFileName.unnamed || path.hasSuffix("/\(name)") ? nil : name
    }
}
