// The daemon's settings: one row per key, in the order in which `check` prints them.
//
// A new setting needs a property of Settings with its default, a row here, an entry of spoolgate.yaml(5) and a line of
// deploy/spoolgate.yaml. Tests compare all four.

import Logging
import SpoolgateCurl
import SpoolgatePosix
import SpoolgateUploadProtocol
import SpoolgateUpstream

extension Settings {
    private typealias Key = SettingsKey<Settings>

    /// The settings outside the section `routes`, which has its own table.
    static let keys: [SettingsKey<Settings>] =
        [
            Key("listen", \.listen, .address(), needsRestart: true),
            Key("socket-mode", \.listen.mode, .mode(), needsRestart: true),
            Key("socket-group", \.listen.group, .text(), needsRestart: true),
            Key("admin-listen", \.adminPath, .socket(), needsRestart: true),
            Key("node", \.node, .node(), needsRestart: true),
            Key("log-level", \.logLevel, .word(), needsRestart: true),
            Key("log-queries", \.showsQueries, .boolean(), needsRestart: true),
            Key("spool.directory", \.spoolDirectory, .path(), needsRestart: true),
            Key("spool.shared", \.sharesSpool, .boolean(), needsRestart: true),
            Key("spool.reserve", \.spoolReserve, .size(0...(1 << 50))),
            Key("spool.quota", \.spoolQuota, .size(0...(1 << 50)), needsRestart: true),
            Key("spool.maximum-uploads", \.maximumUploads, .integer(0...100_000_000)),
            Key("threads.maximum", \.maximumThreads, .integer(1...65_536), needsRestart: true),
            Key("clients.maximum-concurrent", \.clients.maximumConcurrent, .integer(0...65_536)),
            Key("clients.maximum-uploads", \.clients.maximumUploads, .integer(0...100_000_000)),
            Key("timeouts.stall", \.stallTimeout, .duration(1...86_400), needsRestart: true),
            Key("timeouts.drain", \.drainTimeout, .duration(0...86_400), needsRestart: true),
            Key("timeouts.in-use", \.inUseTimeout, .duration(1...3_600)),
            Key("delivery.maximum-concurrent", \.maximumDeliveries, .integer(1...4096)),
            Key("interim.heartbeat", \.interim.interval, .duration(1...3_600, allowsZero: true)),
            Key("interop-alias", \.interopAliases, .aliases()),
            Key("correlation-field", \.correlationField, .passingName()),
            Key("events.to", \.events.destination, .destination()),
        ]
        + ServiceSettings.keys.map { Key("events.webhook", \.events.webhook, $0) }

    /// The replacement of each removed setting, keyed by dotted key.
    ///
    /// The key of a route's setting begins with a dot, in place of the route's name. For one release, a line with a
    /// removed setting is ignored instead of refused, so that the daemon starts after an upgrade.
    static let removed = [
        "threads.maximum-waiting": "half of threads.maximum may wait",
        ".incremental": "use ordinary: pass to stream such uploads",
        ".trust-forwarded": "forwarding: trust stands for trust-forwarded: true",
        ".cors.max-age": "browsers may cache a preflight for two hours",
        ".cors.request-fields": "pages of the allowed origins may send any field",
        ".multipart.metadata":
            "each pair of the client's Upload-Metadata becomes a field of the form",
        ".path.encoding": "the request is always a form",
        ".limits.min-append-size": "appends of any size are accepted",
        ".limits.min-rate": "slow requests are ended if few threads are free",
        ".max-response-size": "responses of up to 256KiB are stored",
        "events.webhook.lifetime": "an event is dropped after 24 hours",
        ".s3.part-size": "uploads of more than 1GiB are sent in parts of 1GiB",
        "interim.progress-interval":
            "interim.heartbeat is the time between reports while content arrives, too",
        "interim.progress-size": "a report while content arrives follows at least 1MiB",
        "delivery.queue-run-interval":
            "a run starts 30s after the end of the previous one, and on SIGUSR1",
        ".inspect.maximum-concurrent":
            "half as many commands as processors run at a time, but at least two",
    ]

    /// Every setting's dotted key and value as written in a file, in the file's order.
    package var table: [(key: String, value: String)] {
        var table = Self.keys.map { (key: $0.name, value: $0.text(self)) }
        for (name, route) in routes.sorted(by: { $0.key < $1.key }) {
            table += RouteSettings.keys.map { ("routes.\(name).\($0.name)", $0.text(route)) }
        }
        return table
    }

    /// Returns the dotted keys of settings that differ from `started` and take effect only after a restart.
    package func needingRestart(since started: Settings) -> [String] {
        Self.keys.filter { $0.needsRestart && $0.text(self) != $0.text(started) }.map(\.name)
    }
}

extension ServiceSettings {
    static let keys: [SettingsKey<ServiceSettings>] = [
        SettingsKey("url", \.url, .service()),
        SettingsKey("timeout", \.timeout, .duration(1...3_600)),
        SettingsKey("tls.ca", \.tls.authorities, .path()),
        SettingsKey("tls.certificate", \.tls.certificate, .path()),
        SettingsKey("tls.key", \.tls.key, .path()),
    ]
}
