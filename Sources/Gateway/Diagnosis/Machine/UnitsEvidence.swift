// The state of the gateway's units in systemd.
//
// Pure, except for the query. A socket that systemd holds accepts connections even while the daemon crashes repeatedly,
// so only the service's state shows whether the daemon stays up.

import SpoolgateTextFormats

/// The state of the gateway's systemd units, each given by its properties as `systemctl show` prints them.
package struct UnitsEvidence: Evidence, Sendable, Equatable {
    var check: String { "units" }
    typealias Properties = [String: String]

    var service: Properties
    var socket: Properties
    var purge: Properties = [:]

    private static let service = "spoolgate.service"
    private static let socket = "spoolgate.socket"
    private static let purge = "spoolgate-purge.service"
    private static let properties = "LoadState,ActiveState,Result,NRestarts,ExecMainStatus"
}

extension UnitsEvidence {
    /// Queries systemd.
    ///
    /// Returns nil if systemd is not running or knows neither the service nor the socket.
    package init?() {
        let command =
            ["systemctl", "show", Self.service, Self.socket, Self.purge, "-p", Self.properties]
        guard let text = try? SystemCommand.output(of: command).get() else { return nil }
        self.init(shown: text)
    }

    /// Parses the output of `systemctl show` for service, socket and purge service: blocks of `Name=value` lines,
    /// separated by empty lines.
    init?(shown text: String) {
        let units = text.split(separator: "\n\n").map { block in
            let lines = block.split(separator: "\n").map {
                $0.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            }
            return Properties(
                lines.filter { $0.count == 2 }.map { (String($0[0]), String($0[1])) },
                uniquingKeysWith: { $1 }
            )
        }
        guard units.count == 3,
            units.prefix(2).contains(where: { !["not-found", nil].contains($0["LoadState"]) })
        else { return nil }
        self.init(service: units[0], socket: units[1], purge: units[2])
    }

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
        case "inactive" where socket["ActiveState"] == "active": .waiting
        default: .down
        }
    }

    private var restarts: Int64 { service["NRestarts"].flatMap { Int64(digits: $0) } ?? 0 }

    /// Returns the findings about the units, or that systemd does not know them.
    static func findings(_ units: UnitsEvidence?) -> [Finding] {
        guard let units else {
            return [.skipped("units", "systemd does not know spoolgate.service")]
        }
        guard units.purge["ActiveState"] == "failed" else { return [units.finding] }
        return [
            units.finding,
            units.warning(
                "\(purge) failed\(result(of: units.purge))",
                "journalctl -u spoolgate-purge -n 20  (shows why)"
            ),
        ]
    }

    /// The finding about the service and the socket.
    private var finding: Finding {
        let named = [(Self.service, service), (Self.socket, socket)]
        for (name, unit) in named {
            guard let state = unit["LoadState"], state != "loaded" else { continue }
            return failure(
                "systemd cannot load \(name) (\(state))",
                "systemctl status \(name); systemctl edit \(name)  (a drop-in may have an error)"
            )
        }
        let states = named.map { "\($0) \($1["ActiveState"] ?? "unknown")" }
            .joined(separator: ", ")
        switch run {
        case .waiting: return ok(states)
        case .running where socket["ActiveState"] == "failed":
            return failure(states + Self.result(of: socket), starting)
        case .running:
            return ok(states + (restarts > 0 ? "; automatic restarts: \(restarts)" : ""))
        case .down: break
        }
        if restarts > 0, service["ActiveState"] != "failed" {
            let times = restarts == 1 ? "once" : "\(restarts) times"
            return failure(
                "\(Self.service) does not stay up: systemd has restarted it \(times)"
                    + Self.result(of: service),
                causes
            )
        }
        if service["ActiveState"] == "activating" {
            return warning(
                "\(Self.service) is starting",
                "wait: after a crash the daemon first reads every record of the spool"
            )
        }
        return failure(states + Self.result(of: service), starting)
    }

    /// The command that starts the units, then those that show why the service ended.
    private var starting: [String] { ["systemctl start spoolgate.socket spoolgate"] + causes }

    /// Returns how a unit failed, such as ` (exit status 78)`; empty if it did not or the result is unknown.
    private static func result(of unit: Properties) -> String {
        switch unit["Result"] {
        case nil, "", "success": ""
        case "exit-code"?: " (exit status \(unit["ExecMainStatus"] ?? "unknown"))"
        case "signal"?, "core-dump"?: " (killed by signal \(unit["ExecMainStatus"] ?? "unknown"))"
        case let other?: " (\(other))"
        }
    }

    /// The commands that show why the service ended.
    private var causes: [String] {
        let log = "journalctl -u spoolgate -n 20  (shows why it ended)"
        switch (service["Result"], service["ExecMainStatus"]) {
        case ("exit-code"?, "78"?):
            return ["spoolgate check  (reports the errors in the settings)", log]
        case ("exit-code"?, "226"?):
            return [
                "systemctl cat spoolgate  (a directory in ReadWritePaths= is missing or cannot be "
                    + "mounted)", log,
            ]
        default: return [log]
        }
    }
}
