// The gateway's units, as systemd tells them.
//
// Pure but for the asking.

import SpoolgateTextFormats

/// What systemd says of the gateway's units.
struct UnitsSeen: Sendable, Equatable {
    /// One unit's properties.
    typealias Properties = [String: String]

    /// spoolgate.service.
    var service: Properties
    /// spoolgate.socket.
    var socket: Properties
}

extension UnitsSeen {
    /// Asks systemd; nil where it does not run, or knows none of the units.
    init?() {
        func ask(_ unit: String) -> Properties? {
            let properties = "LoadState,ActiveState,SubState,Result,TimeoutStopUSec"
            let answer = SystemCommand.output(of: ["systemctl", "show", unit, "-p", properties])
            return (try? answer.get()).map(Self.read)
        }
        guard let service = ask("spoolgate.service"), let socket = ask("spoolgate.socket"),
            service["LoadState"] == "loaded"
        else { return nil }
        self.init(service: service, socket: socket)
    }

    /// Reads lines of `Name=value`.
    static func read(_ text: String) -> Properties {
        var properties: Properties = [:]
        for line in text.split(separator: "\n") {
            let parts = line.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            if parts.count == 2 { properties[String(parts[0])] = String(parts[1]) }
        }
        return properties
    }

    /// Whether they run.
    var finding: Finding {
        let units = [("spoolgate.socket", socket), ("spoolgate.service", service)]
        let states = units.map { "\($0.0) \($0.1["ActiveState"] ?? "unknown")" }
            .joined(separator: ", ")
        if service["ActiveState"] == "active" { return .ok("units", states) }
        // The socket starts it with the first connection.
        if socket["ActiveState"] == "active", service["ActiveState"] == "inactive" {
            return .ok("units", states)
        }
        let result = service["Result"].map { " (\($0))" } ?? ""
        return .failure(
            "units",
            states + result,
            ["systemctl start spoolgate.socket spoolgate; journalctl -u spoolgate"]
        )
    }

    /// Whether systemd leaves the daemon the time that it may take to end.
    func stopping(within drain: Duration) -> Finding {
        guard let text = service["TimeoutStopUSec"], let most = Self.time(text) else {
            return .skipped("stopping", "systemd does not tell TimeoutStopSec")
        }
        let shown = "TimeoutStopSec=\(text), timeouts.drain \(DurationText.text(drain))"
        guard most <= drain else { return .ok("stopping", shown) }
        return .warning(
            "stopping",
            "\(shown): the daemon is killed while deliveries may go on",
            [
                "TimeoutStopSec=\(DurationText.text(drain + .seconds(15)))  (systemctl edit spoolgate)"
            ]
        )
    }

    /// Reads systemd's `1min 30s`, `infinity`.
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
