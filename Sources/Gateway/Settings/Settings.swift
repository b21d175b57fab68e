// Every setting: its type, unit and default. The keys and ranges are in SettingsKeys and RouteSettingsKeys.

package import HTTPTypes
package import Logging
package import SpoolgatePosix
import SpoolgateSpool
import SpoolgateUpstream

/// The daemon's settings.
///
/// Every default is safe and finite.
package struct Settings: Sendable, Equatable {
    /// The address to which the web server connects.
    ///
    /// TCP is for networks whose only other host is the web server.
    package var listen = ListenAddress.unix(
        path: "/run/spoolgate/spoolgate.sock",
        mode: 0o660,
        group: nil
    )
    /// The path of the admin socket; nil: `admin.sock` next to `listen`.
    package var adminPath: String?
    /// The name of this node among several behind one web server, which is in its upload resources' paths; nil: there
    /// are no others.
    package var node: String?
    package var spoolDirectory = "/var/spool/spoolgate"
    /// Whether several hosts share the spool, each with its own `node`.
    package var sharesSpool = false
    /// Bytes that must stay free on the spool's file system.
    package var spoolReserve: Int64 = 256 << 20
    /// The maximum number of bytes of content and records in the spool; 0: no limit.
    package var spoolQuota: Int64 = 0
    /// The maximum number of uploads in the spool, including those with a stored response; 0: no limit.
    package var maximumUploads = 1_000_000
    /// The maximum number of concurrent requests, each with one thread.
    package var maximumThreads = 4096
    /// The maximum number of requests that wait for others; nil: half of `maximumThreads`, 0: no limit.
    package var maximumWaitingThreads: Int?
    /// The limits of one client.
    package var clients = ClientSettings()
    /// The longest time without a byte from or to the web server.
    package var stallTimeout = Duration.seconds(60)
    /// The time that deliveries, and uploads that cannot be resumed, have after SIGTERM.
    package var drainTimeout = Duration.seconds(30)
    /// The time that a request waits for the lock of its upload.
    package var inUseTimeout = Duration.seconds(20)
    /// The minimum level of log lines.
    package var logLevel = Logger.Level.info
    /// Whether log lines, events and lists show the queries of targets.
    package var showsQueries = false
    /// The maximum number of concurrent delivery attempts.
    package var maximumDeliveries = 48
    /// The time between two walks through the spool for uploads that wait for an attempt.
    package var queueRunInterval = Duration.seconds(30)
    /// The rate of progress reports to clients.
    package var interim = InterimRate()
    /// Unknown interop versions, each with the known version that replaces it.
    package var interopAliases: [Int: Int] = [:]
    /// The destinations of upload events.
    package var events = EventSettings()
    /// The field that correlates a request with other logs; nil: none.
    package var correlationField: HTTPField.Name?
    /// The routes by name; a request without `SPOOLGATE_ROUTE` has `default`, if that exists.
    package var routes: [String: RouteSettings] = [RouteSettings.defaultName: RouteSettings()]
    /// The lines of the file without effect, because their settings were removed from the product.
    package internal(set) var ignored: [SettingsError] = []
    /// The variables of the environment that set settings.
    package internal(set) var variables: [SettingsVariable] = []

    /// Creates the product's defaults.
    package init() {}

    /// The address of the admin socket: with the mode and group of `listen`, or 0660 and no group if that has none.
    package var admin: ListenAddress {
        .unix(path: adminSocket, mode: listen.mode ?? 0o660, group: listen.group)
    }

    /// The path of the admin socket.
    package var adminSocket: String {
        if let adminPath { return adminPath }
        guard case .unix(let path, _, _) = listen else { return "/run/spoolgate/admin.sock" }
        return "\(PathAccess.parent(of: path))/admin.sock"
    }

    /// The node in the paths of upload resources, if only that node serves them; nil: there are no others, or any node
    /// serves all uploads.
    package var ownerNode: String? { sharesSpool ? nil : node }
    /// The name of this host in a shared spool; nil: the spool belongs to this host alone.
    package var sharedNode: String? { sharesSpool ? node : nil }

    /// The first setting that contradicts others, and why; nil: there are no contradictions.
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

    /// Notes that the command line sets the setting `key`, instead of a variable of the environment.
    package mutating func noteOption(_ key: String) { variables.removeAll { $0.key == key } }

    /// One sentence about routes without an upstream, which a daemon cannot serve; nil: every route has one.
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

/// The limits of one client: an owner, an IPv4 address or an IPv6 network of 64 bits.
package struct ClientSettings: Sendable, Equatable {
    /// The maximum number of concurrent requests; nil: half of `threads.maximum`, 0: no limit.
    package var maximumConcurrent: Int?
    /// The maximum number of undelivered uploads; 0: no limit.
    package var maximumUploads = 10_000
}

/// The rate of progress reports by 104 (Upload Resumption Supported), if client and web server support it.
package struct InterimRate: Sendable, Equatable {
    /// The least time between two reports while content is received.
    package var progressInterval = Duration.seconds(5)
    /// The least number of new bytes between two reports while content is received.
    package var progressSize: Int64 = 1 << 20
    /// The time between two reports during a delivery; zero: no reports.
    package var heartbeat = Duration.seconds(5)
}

/// The destinations of upload events.
package struct EventSettings: Sendable, Equatable {
    /// The destination of event lines.
    package enum Destination: Sendable, Equatable {
        /// Standard error.
        case journal
        /// A file's absolute path.
        case file(String)

        /// The destination as written in the settings.
        var text: String {
            switch self {
            case .journal: "journal"
            case .file(let path): path
            }
        }
    }

    /// The destination of event lines; nil: none.
    package var destination: Destination?
    /// The service that receives each event by POST.
    package var webhook = ServiceSettings()
    /// The longest time between an event and its last retry.
    package var lifetime = Duration.seconds(86_400)
}
