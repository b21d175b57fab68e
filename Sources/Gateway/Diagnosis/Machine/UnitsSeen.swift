// The state of the gateway's units in systemd.
//
// Pure, except for the query. A socket that systemd holds accepts connections even while the daemon crashes repeatedly,
// so only the service's state shows whether the daemon stays up.

import SpoolgatePosix
import SpoolgateTextFormats

/// The state of the gateway's systemd units, each given by its properties as `systemctl show` prints them.
package struct UnitsSeen: Sendable, Equatable {
    typealias Properties = [String: String]

    var service: Properties
    var socket: Properties
    var timer: Properties = [:]
    var purge: Properties = [:]
    /// The time of the query in microseconds on systemd's monotonic clock; 0 if unknown.
    var now: Int64 = 0

    private static let service = "spoolgate.service"
    private static let socket = "spoolgate.socket"
    private static let timer = "spoolgate-purge.timer"
    private static let purge = "spoolgate-purge.service"
    private static let properties = [
        "LoadState", "ActiveState", "SubState", "Result", "NRestarts", "ExecMainStatus",
        "UnitFileState", "TimeoutStopUSec", "ActiveEnterTimestampMonotonic",
    ]
    /// More restarts than this number are a failure if the last was less than `shortRun` ago.
    private static let mostRestarts: Int64 = 2
    private static let shortRun = Duration.seconds(60)
    /// The time after the last restart during which restarts still cause a warning.
    private static let longRun = Duration.seconds(600)
}

extension UnitsSeen {
    /// Queries systemd.
    ///
    /// Returns nil if systemd is not running or knows neither the service nor the socket.
    package init?() {
        let units = [Self.service, Self.socket, Self.timer, Self.purge]
        let command =
            ["systemctl", "show"] + units + ["-p", Self.properties.joined(separator: ",")]
        guard let text = try? SystemCommand.output(of: command).get() else { return nil }
        self.init(shown: text, now: Int64(clamping: Deadline.after(.zero).nanoseconds / 1_000))
    }

    /// Parses the output of `systemctl show` for service, socket, purge timer and purge service, in this order.
    init?(shown text: String, now: Int64) {
        let units = Self.readAll(text)
        guard units.count == 4 else { return nil }
        self.init(service: units[0], socket: units[1], timer: units[2], purge: units[3], now: now)
        let isKnown = [service, socket].contains { unit in
            !["not-found", nil].contains(unit["LoadState"])
        }
        guard isKnown else { return nil }
    }

    /// Parses blocks of `Name=value` lines, separated by empty lines.
    static func readAll(_ text: String) -> [Properties] {
        var all: [Properties] = []
        for block in text.split(separator: "\n\n") { all.append(read(String(block))) }
        return all
    }

    static func read(_ text: String) -> Properties {
        var properties: Properties = [:]
        for line in text.split(separator: "\n") {
            let parts = line.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            if parts.count == 2 { properties[String(parts[0])] = String(parts[1]) }
        }
        return properties
    }

    // MARK: State

    /// Whether the service is running.
    package enum Run: Sendable, Equatable {
        case running
        /// The next connection to the socket starts the service.
        case waiting
        /// No connection starts the service.
        case down
    }

    package var run: Run {
        switch service["ActiveState"] {
        case "active", "reloading", "refreshing": .running
        case "inactive" where socket["ActiveState"] == "active" && !Self.isMasked(service): .waiting
        default: .down
        }
    }

    private static func isMasked(_ unit: Properties) -> Bool { unit["LoadState"] == "masked" }

    private var named: [(name: String, unit: Properties)] {
        [
            (Self.service, service), (Self.socket, socket), (Self.timer, timer),
            (Self.purge, purge),
        ]
    }

    private var restarts: Int64 { service["NRestarts"].flatMap { Int64(digits: $0) } ?? 0 }

    /// The time since the service started; nil if the service is not running or its start time is unknown.
    private var age: Duration? {
        guard now > 0, run == .running,
            let start = service["ActiveEnterTimestampMonotonic"].flatMap({ Int64(digits: $0) }),
            start > 0, start <= now
        else { return nil }
        return .microseconds(now - start)
    }

    package var findings: [Finding] { [finding] + purgeFindings }

    /// The finding about the service and the socket.
    var finding: Finding {
        if let masked { return masked }
        if let unread { return unread }
        let units = named.prefix(2)
        let states = units.map { "\($0.name) \($0.unit["ActiveState"] ?? "unknown")" }
            .joined(separator: ", ")
        switch run {
        case .waiting: return .ok("units", states)
        case .running:
            guard socket["ActiveState"] != "failed" else {
                return .failure("units", states + Self.result(of: socket), starting(socket))
            }
            return running(states)
        case .down: break
        }
        if restarts > 0, service["ActiveState"] != "failed" { return notStayingUp("") }
        if service["ActiveState"] == "activating" {
            return .warning(
                "units",
                "\(Self.service) is starting",
                ["wait: after a crash the daemon first reads every record of the spool"]
            )
        }
        return .failure(
            "units",
            states + Self.result(of: service),
            starting(service)
        )
    }

    private func running(_ states: String) -> Finding {
        guard restarts > 0 else { return .ok("units", states) }
        guard let age, age < Self.longRun else {
            return .ok("units", "\(states); automatic restarts: \(restarts)")
        }
        let since = "has run for \(DurationText.rounded(age.components.seconds))"
        if restarts > Self.mostRestarts, age < Self.shortRun {
            return notStayingUp("; it \(since)")
        }
        return .warning(
            "units",
            "\(Self.service) \(since); automatic restarts: \(restarts)",
            Self.causes(service)
        )
    }

    private func notStayingUp(_ more: String) -> Finding {
        let times = restarts == 1 ? "once" : "\(restarts) times"
        return .failure(
            "units",
            "\(Self.service) does not stay up: systemd has restarted it \(times)"
                + Self.result(of: service) + more,
            Self.causes(service)
        )
    }

    // MARK: Failures

    /// The finding if the service or the socket is masked.
    private var masked: Finding? {
        let all = named.filter { Self.isMasked($0.unit) }
        let main = all.filter { [Self.service, Self.socket].contains($0.name) }
        guard !main.isEmpty else { return nil }
        let names = main.map(\.name).joined(separator: ", ")
        let verb = main.count == 1 ? "is" : "are"
        let fix = Self.unmask(all)
        guard run == .running else {
            return .failure(
                "units",
                "\(names) \(verb) masked: systemd cannot start \(main.count == 1 ? "it" : "them")",
                [unmask ?? fix]
            )
        }
        return .warning(
            "units",
            "\(names) \(verb) masked: once the running daemon ends, systemd cannot start it again",
            [fix]
        )
    }

    /// The commands that unmask and start the daemon's units, or nil if neither is masked.
    package var unmask: String? {
        let all = named.filter { Self.isMasked($0.unit) }
        guard all.contains(where: { [Self.service, Self.socket].contains($0.name) }) else {
            return nil
        }
        return Self.unmask(all) + " && systemctl enable --now spoolgate"
    }

    /// Returns the commands that unmask units; those masked until the next boot need their own.
    private static func unmask(_ units: [(name: String, unit: Properties)]) -> String {
        func command(_ option: String, _ isRuntime: Bool) -> String? {
            let names = units.filter {
                ($0.unit["UnitFileState"] == "masked-runtime") == isRuntime
            }.map(\.name)
            return names.isEmpty
                ? nil : "systemctl unmask \(option)\(names.joined(separator: " "))"
        }
        return [command("", false), command("--runtime ", true)].compactMap { $0 }
            .joined(separator: " && ")
    }

    /// The finding if systemd cannot load the service or the socket.
    private var unread: Finding? {
        let bad = named.prefix(2).first { unit in
            guard let state = unit.unit["LoadState"] else { return false }
            return state != "loaded"
        }
        guard let bad else { return nil }
        let state = bad.unit["LoadState"] ?? ""
        let fix =
            state == "not-found"
            ? "apt install --reinstall spoolgate; systemctl daemon-reload"
            : "systemctl status \(bad.name); systemctl edit \(bad.name)  (a drop-in may have an error)"
        return .failure("units", "systemd cannot load \(bad.name) (\(state))", [fix])
    }

    /// Returns the commands that start a failed unit, then those that show why it failed.
    private func starting(_ unit: Properties) -> [String] {
        var start = "systemctl start spoolgate.socket spoolgate"
        if unit["Result"]?.hasSuffix("limit-hit") ?? false {
            start = "systemctl reset-failed spoolgate.socket spoolgate && \(start)"
        }
        return [start] + Self.causes(service)
    }

    /// Returns how a unit failed, such as ` (exit status 78)`; empty if it did not or the result is unknown.
    private static func result(of unit: Properties) -> String {
        switch unit["Result"] {
        case nil, "", "success": ""
        case "exit-code"?: " (exit status \(unit["ExecMainStatus"] ?? "unknown"))"
        case "signal"?, "core-dump"?: " (killed by signal \(unit["ExecMainStatus"] ?? "unknown"))"
        case "oom-kill"?: " (killed because memory ran out)"
        case "watchdog"?: " (it accepted no connections for WatchdogSec)"
        case "timeout"?: " (it took too long to start or to stop)"
        case "protocol"?: " (it ended before it was ready)"
        case let other?: " (\(other))"
        }
    }

    /// Returns the commands that show why a service ended.
    private static func causes(_ unit: Properties) -> [String] {
        let log = "journalctl -u spoolgate -n 20  (shows why it ended)"
        switch (unit["Result"], unit["ExecMainStatus"]) {
        case ("exit-code"?, "78"?):
            return ["spoolgate check  (reports the errors in the settings)", log]
        case ("exit-code"?, "226"?):
            return [
                "systemctl cat spoolgate  (a directory in ReadWritePaths= is missing or cannot be "
                    + "mounted)", log,
            ]
        case ("exit-code"?, "217"?): return ["systemd-sysusers  (creates the missing user)", log]
        case ("exit-code"?, "203"?):
            return ["systemctl cat spoolgate  (the program in ExecStart= cannot be run)", log]
        case ("oom-kill"?, _):
            return ["systemctl edit spoolgate  (raise MemoryMax=, if it is set)", log]
        default: return [log]
        }
    }

    // MARK: The purge

    /// The findings about the purge's units, which matter only while the daemon is stopped.
    private var purgeFindings: [Finding] {
        let masked = named.suffix(2).filter { Self.isMasked($0.unit) }
        if let first = masked.first {
            return [
                .warning(
                    "units",
                    "\(masked.map(\.name).joined(separator: ", ")) \(masked.count == 1 ? "is" : "are") "
                        + "masked: no uploads are purged while the daemon is stopped",
                    [
                        Self.unmask(masked)
                            + (first.name == Self.timer ? " && systemctl start \(Self.timer)" : "")
                    ]
                )
            ]
        }
        guard purge["ActiveState"] == "failed" else { return [] }
        return [
            .warning(
                "units",
                "\(Self.purge) failed\(Self.result(of: purge))",
                ["journalctl -u spoolgate-purge -n 20  (shows why)"]
            )
        ]
    }

    // MARK: Stopping

    /// Returns whether systemd gives the daemon more time to stop than `drain`.
    func stopping(within drain: Duration) -> Finding {
        guard let text = service["TimeoutStopUSec"], let most = Self.time(text),
            !Self.isMasked(service)
        else {
            return .skipped("stopping", "systemd reports no TimeoutStopSec")
        }
        let shown = "TimeoutStopSec=\(text), timeouts.drain \(DurationText.text(drain))"
        guard most <= drain else { return .ok("stopping", shown) }
        return .warning(
            "stopping",
            "\(shown): systemd may kill the daemon during deliveries",
            [
                "TimeoutStopSec=\(DurationText.text(drain + .seconds(15)))  (systemctl edit spoolgate)"
            ]
        )
    }

    /// Parses a time as systemd prints it, such as `1min 30s` or `infinity`.
    static func time(_ text: String) -> Duration? {
        if text == "infinity" { return .seconds(Int64.max / 4) }
        let units: [(String, Int64)] = [
            ("min", 60_000), ("ms", 1), ("us", 0), ("h", 3_600_000), ("d", 86_400_000),
            ("s", 1_000),
        ]
        var sum: Int64 = 0
        for part in text.split(separator: " ") {
            guard let (unit, size) = units.first(where: { part.hasSuffix($0.0) }),
                let number = Int64(digits: part.dropLast(unit.count))
            else { return nil }
            sum += number * size
        }
        return .milliseconds(sum)
    }
}
