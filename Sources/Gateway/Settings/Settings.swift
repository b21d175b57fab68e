// Every setting: its type, unit and default. The keys and ranges are in Settings+Keys; routes have RouteSettings.

package import HTTPTypes
package import Logging
package import SpoolgatePosix
import SpoolgateSpool
import SpoolgateUpstream

/// The daemon's settings; every default is safe and finite.
package struct Settings: Sendable, Equatable {
    /// The address to which the web server connects.
    ///
    /// Use TCP only in networks whose only other host is the web server.
    package var listen = ListenAddress.unix(
        path: "/run/spoolgate/spoolgate.sock",
        mode: 0o660,
        group: nil
    )
    /// The path of the admin socket, or nil for `admin.sock` in the directory of `listen`.
    package var adminPath: String?
    /// The name of this node if several nodes serve uploads behind one web server; otherwise nil.
    package var node: String?
    package var spoolDirectory = "/var/spool/spoolgate"
    /// Whether several hosts share the spool; each must have its own `node`.
    package var sharesSpool = false
    /// The number of bytes that must stay free on the file system.
    package var spoolReserve: Int64 = 256 << 20
    /// The maximum number of bytes of content and records, or 0 for no limit.
    package var spoolQuota: Int64 = 0
    /// The maximum number of uploads, including delivered ones with a stored response, or 0 for no limit.
    package var maximumUploads = 1_000_000
    /// The maximum number of concurrent requests; each uses one thread.
    package var maximumThreads = 4096
    package var clients = ClientSettings()
    /// The maximum time without receiving a byte from the web server or sending one to it.
    package var stallTimeout = Duration.seconds(60)
    /// How long deliveries, and uploads that cannot be resumed, may continue after SIGTERM.
    package var drainTimeout = Duration.seconds(30)
    /// How long a request waits for the lock of its upload.
    package var inUseTimeout = Duration.seconds(20)
    package var logLevel = Logger.Level.info
    /// Whether log lines, events and lists show the queries of request targets.
    package var showsQueries = false
    /// The maximum number of concurrent attempts on all routes.
    package var maximumDeliveries = 48
    /// The time between two searches for uploads whose next attempt is due.
    ///
    /// Not a setting of the operator.
    package var queueRunInterval = Duration.seconds(30)
    package var interim = InterimRate()
    /// Interop versions unknown to this program, each with the known version that it is treated as.
    package var interopAliases: [Int: Int] = [:]
    package var events = EventSettings()
    /// The request field that correlates a request with other programs' logs; nil for no correlation.
    package var correlationField: HTTPField.Name?
    /// The routes by name; a request without `SPOOLGATE_ROUTE` uses the route `default`.
    package var routes: [String: RouteSettings] = [RouteSettings.defaultName: RouteSettings()]
    /// The lines of the settings file that have no effect, because their settings were removed.
    package internal(set) var ignored: [SettingsError] = []
    package internal(set) var variables: [SettingsVariable] = []

    /// Creates settings with the default values.
    package init() {}

    /// The admin socket, with the mode and group of `listen`, or with 0660 and no group if `listen` has neither.
    package var admin: ListenAddress {
        .unix(path: adminSocket, mode: listen.mode ?? 0o660, group: listen.group)
    }

    package var adminSocket: String {
        if let adminPath { return adminPath }
        guard case .unix(let path, _, _) = listen else { return "/run/spoolgate/admin.sock" }
        return "\(PathAccess.parent(of: path))/admin.sock"
    }

    /// The node name in the paths of upload resources, or nil if any node serves all uploads.
    package var ownerNode: String? { sharesSpool ? nil : node }
    /// The name of this node if it shares the spool; otherwise nil.
    package var sharedNode: String? { sharesSpool ? node : nil }

    /// The first setting that contradicts others, and the reason; otherwise nil.
    var contradiction: (key: String, reason: String)? {
        guard sharesSpool else { return nil }
        if node == nil {
            return (
                "spool.shared", "each host that shares the spool needs its own node name (node: n1)"
            )
        }
        let weak = routes.filter { $0.value.promise == .process }.keys.sorted()
        guard let route = weak.first else { return nil }
        return (
            "spool.shared",
            "routes.\(route).promise is process, which does not survive the failure of a host; use promise: power-cut"
        )
    }

    /// Records that the command line set the setting `key`, which overrides an environment variable.
    package mutating func noteOption(_ key: String) { variables.removeAll { $0.key == key } }

    /// A sentence that names the routes without an upstream, which prevent the daemon's start; otherwise nil.
    package var lack: String? {
        let keys = routes.filter { $0.value.upstream.targets.isEmpty }.keys.sorted()
            .map { "routes.\($0).upstream" }
        guard !keys.isEmpty else { return nil }
        return
            "\(keys.joined(separator: ", ")): not set; set it to the application that receives the uploads, "
            + "for example upstream: http://127.0.0.1:3000"
            + (variables.isEmpty ? "" : " or SPOOLGATE_UPSTREAM=http://127.0.0.1:3000")
    }
}

/// The limits for each client: an owner, an IPv4 address or an IPv6 network of 64 bits.
package struct ClientSettings: Sendable, Equatable {
    /// The maximum number of concurrent requests; 0 means no limit, nil half of `threads.maximum`.
    package var maximumConcurrent: Int?
    /// The maximum number of undelivered uploads, or 0 for no limit.
    package var maximumUploads = 10_000
}

/// How often a client is sent an interim 104 response (Upload Resumption Supported), if the client and web server
/// support it.
package struct InterimRate: Sendable, Equatable {
    /// The minimum time between two reports while content is being received; nil to send none.
    package var progressInterval: Duration? = .seconds(5)
    /// The minimum number of bytes received between two reports.
    ///
    /// Not a setting of the operator.
    package var progressSize: Int64 = 1 << 20
    /// The time between two reports during a delivery, or zero to send none.
    package var heartbeat = Duration.seconds(5)

    /// Creates the default rates.
    package init() {}

    /// The setting, which determines both times.
    var interval: Duration {
        get { heartbeat }
        set { (heartbeat, progressInterval) = (newValue, newValue > .zero ? newValue : nil) }
    }
}

/// Where upload events are sent.
package struct EventSettings: Sendable, Equatable {
    /// Where event lines are written.
    package enum Destination: Sendable, Equatable {
        /// Standard error.
        case journal
        /// A file's absolute path.
        case file(String)

        var text: String {
            switch self {
            case .journal: "journal"
            case .file(let path): path
            }
        }
    }

    /// Where event lines are written, or nil to write none.
    package var destination: Destination?
    /// The service that receives each event in a POST request.
    package var webhook = ServiceSettings()
    /// How long after an event the gateway retries sending it.
    ///
    /// Not a setting of the operator.
    package var lifetime = Duration.seconds(86_400)
}
