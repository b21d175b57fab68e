// Every setting: its type, unit and default. Their keys and ranges are in SettingsKeys and RouteSettingsKeys.

package import HTTPTypes
package import Logging
package import SpoolgatePosix
import SpoolgateSpool
import SpoolgateUpstream

/// The daemon's settings.
///
/// Every default is safe and finite.
package struct Settings: Sendable, Equatable {
    /// Where the web server connects.
    ///
    /// TCP only where the web server is the sole peer on that network.
    package var listen = ListenAddress.unix(
        path: "/run/spoolgate/spoolgate.sock",
        mode: 0o660,
        group: nil
    )
    /// The path of the socket where an operator asks how things are; nil: `admin.sock` beside `listen`.
    package var adminPath: String?
    /// This node among several behind one web server, in its upload resources' paths; nil: there is one.
    package var node: String?
    /// The spool directory.
    package var spoolDirectory = "/var/spool/spoolgate"
    /// Whether several hosts share it, each with a `node` of its own.
    package var sharesSpool = false
    /// Bytes that must stay free on the spool's file system.
    package var spoolReserve: Int64 = 256 << 20
    /// Most bytes of content and records that the spool may hold; 0: no limit.
    package var spoolQuota: Int64 = 0
    /// Most uploads that the spool may hold, those included whose response is kept; 0: no limit.
    package var maximumUploads = 1_000_000
    /// Most requests at work at any time; one thread each.
    package var maximumThreads = 4096
    /// Most requests that wait for others; nil: half of the requests at work, 0: no limit.
    package var maximumWaitingThreads: Int?
    /// What one client may have.
    package var clients = ClientSettings()
    /// Longest time without a byte from or to the web server.
    package var stallTimeout = Duration.seconds(60)
    /// How long deliveries, and uploads that cannot be resumed, may go on after SIGTERM.
    package var drainTimeout = Duration.seconds(30)
    /// How long a request waits for another one that uses the same upload.
    package var inUseTimeout = Duration.seconds(20)
    /// Least level of the log lines written.
    package var logLevel = Logger.Level.info
    /// Whether log lines, events and lists show the queries of targets.
    package var showsQueries = false
    /// Most delivery attempts at any time.
    package var maximumDeliveries = 48
    /// Time between two looks at the whole spool for uploads that wait for an attempt.
    package var queueRunInterval = Duration.seconds(30)
    /// How often clients hear of progress.
    package var interim = InterimRate()
    /// Interop versions that are not known here, each with the known one that it is served as.
    package var interopAliases: [Int: Int] = [:]
    /// Where the events of uploads go.
    package var events = EventSettings()
    /// The field that correlates a request with other logs; nil: none.
    package var correlationField: HTTPField.Name?
    /// The routes by name; a request without `SPOOLGATE_ROUTE` takes `default`, if there is one.
    package var routes: [String: RouteSettings] = [RouteSettings.defaultName: RouteSettings()]
    /// The lines of the file that set what is no setting any more, and so have no effect.
    package internal(set) var ignored: [SettingsError] = []
    /// The variables of the environment that have given settings.
    package internal(set) var variables: [SettingsVariable] = []

    /// The product's defaults.
    package init() {}

    /// Where an operator asks how things are: with the mode and the group of `listen`, or 0660 and none where
    /// that has none.
    package var admin: ListenAddress {
        .unix(path: adminSocket, mode: listen.mode ?? 0o660, group: listen.group)
    }

    /// The path of that socket.
    package var adminSocket: String {
        if let adminPath { return adminPath }
        guard case .unix(let path, _, _) = listen else { return "/run/spoolgate/admin.sock" }
        return "\(PathAccess.parent(of: path))/admin.sock"
    }

    /// The node that has the uploads it takes for itself, and so stands in the paths of their resources; nil: there
    /// is one, or any node serves all.
    package var ownerNode: String? { sharesSpool ? nil : node }
    /// The node that a shared spool knows this host by; nil: the spool is this host's alone.
    package var sharedNode: String? { sharesSpool ? node : nil }

    /// The first setting that does not go with the others, and why; nil where all can be carried out.
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

    /// Notes that a command line gives the setting `key`, and no variable of the environment.
    package mutating func noteOption(_ key: String) { variables.removeAll { $0.key == key } }

    /// What a daemon cannot serve without: one sentence about routes whose upstream is not named.
    ///
    /// Nil where nothing is missing.
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

/// What one client may have at a time: an owner, an IPv4 address or an IPv6 network of 64 bits.
package struct ClientSettings: Sendable, Equatable {
    /// Most requests at work; nil: half of `threads.maximum`, 0: no limit.
    package var maximumConcurrent: Int?
    /// Most uploads that are not delivered yet; 0: no limit.
    package var maximumUploads = 10_000
}

/// How often 104 (Upload Resumption Supported) tells progress, where client and web server know it.
package struct InterimRate: Sendable, Equatable {
    /// Least time between two reports while content comes.
    package var progressInterval = Duration.seconds(5)
    /// Least number of new bytes between two reports while content comes.
    package var progressSize: Int64 = 1 << 20
    /// Time between two reports while the upstream works; zero: there are none.
    package var heartbeat = Duration.seconds(5)
}

/// Where the events of uploads go.
package struct EventSettings: Sendable, Equatable {
    /// Where each event becomes a line.
    package enum Destination: Sendable, Equatable {
        /// Standard error.
        case journal
        /// A file's absolute path.
        case file(String)

        /// The destination as it is written in the settings.
        var text: String {
            switch self {
            case .journal: "journal"
            case .file(let path): path
            }
        }
    }

    /// Where each event becomes a line; nil: nowhere.
    package var destination: Destination?
    /// Who gets each event by POST.
    package var webhook = ServiceSettings()
    /// How long an event is tried again.
    package var lifetime = Duration.seconds(86_400)
}
