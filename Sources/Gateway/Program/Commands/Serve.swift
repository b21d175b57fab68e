// `spoolgate serve`: the daemon, from reading its settings to its last response.
//
// Order matters: signals are blocked before the first thread starts, this daemon is registered in the spool before the
// first request, and the service manager is notified once requests are accepted.

import ArgumentParser
import Glibc
import Logging
import SpoolgateAdmin
import SpoolgateDelivery
import SpoolgateExchange
import SpoolgateFastCGIFront
import SpoolgateJournal
import SpoolgatePosix
import SpoolgateRequests
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol
import SpoolgateUpstream

struct Serve: SpoolgateCommand {
    static let configuration = CommandConfiguration(
        abstract: "Run the gateway in the foreground.",
        discussion: """
            Without settings it listens on \(Settings().listen.text) and delivers uploads to a \
            directory. SIGTERM finishes uploads and exits, SIGHUP reloads the settings, SIGUSR1 runs the \
            queue.
            """
    )

    @OptionGroup var options: SettingsOptions

    @OptionGroup var address: ListenOption

    @Option(
        help: .value(
            "target",
            "The upstream of the default route, overrides the settings: http://, https://, "
                + "unix:/path or directory:/path."
        ),
        transform: { text in
            do throws(UpstreamTargetError) {
                return try UpstreamTarget(text)
            } catch {
                throw ValidationError("'\(text)': \(error.reason).")
            }
        }
    )
    var upstream: UpstreamTarget?

    func perform() throws(CommandFailure) {
        let signals = Signals.block()
        Thread.prepareProcess()
        let settings = try effectiveSettings()
        try SpoolOwner.become(ofSpool: settings.spoolDirectory)
        if options.file == nil, settings.variables.isEmpty { try settings.makeDirectories() }
        let log = Log(
            Self.logger(settings.logLevel, node: settings.node),
            showsQueries: settings.showsQueries
        )
        for line in settings.ignored { log.settingIgnored(reason: line.description) }
        if !settings.variables.isEmpty {
            log.settingsFromEnvironment(settings.variables.map(\.name))
        }
        let spool = try Self.openSpool(settings, log)
        let threads = Self.threadBudget(settings, log)
        let gateway = Gateway(settings: settings, spool: spool, log: log, threads: threads)
        let server = try Self.startServer(settings, threads, gateway, log)
        let admin = Admin(gateway, node: settings.node) {
            ListenerLoad(
                busy: server.load.active,
                maximum: threads.maximum,
                isAccepting: server.isAccepting(within: .seconds(2))
            )
        }
        let adminServer = Self.startAdmin(settings, admin, log)
        let report = ServiceReport(ServiceManager())
        try Self.startThreads(of: gateway, admin, spool, report, server, log)
        log.serving(
            listen: settings.listen.text,
            spool: settings.spoolDirectory,
            routes: settings.routes.keys.sorted()
        )
        report.notify(.ready, log)
        let signal = obey(signals, gateway, report, settings, log)
        report.notify(.stopping, log)
        report.noteEnd()
        admin.noteEnd()
        log.draining(signal: signal)
        let deadline = Deadline.after(settings.drainTimeout)
        _ = gateway.deliveries.stopQueue(until: .after(.zero))
        let isDrained = server.drain(until: deadline) { spool.requestReleaseOfAll() }
        let left = gateway.deliveries.stopQueue(until: deadline)
        // Otherwise the next process would send an event twice.
        gateway.events.stopSending(until: .after(.seconds(1)))
        let undone = left + (isDrained ? 0 : server.load.active)
        do throws(SpoolError) { try spool.makeAllDurable() } catch {
            log.spoolFailed(error, upload: nil)
        }
        // The next start handles unfinished work, as after a crash.
        if undone == 0, !spool.isAfterDeath { spool.leave() }
        _ = adminServer?.drain(until: .after(.seconds(1))) {}
        log.stopped(left: undone)
    }

    /// Starts the threads for the queue, events, the status and the requests of other processes.
    private static func startThreads(
        of gateway: Gateway,
        _ admin: Admin,
        _ spool: Spool,
        _ report: ServiceReport,
        _ server: FastCGIServer,
        _ log: Log
    ) throws(CommandFailure) {
        do throws(SystemError) {
            // Every 100 ms, releases uploads that another process requests, and checks whether a command has changed
            // the spool.
            try Thread.start(name: "spool-watch") {
                for turn in 1... {
                    Thread.pause(.milliseconds(100))
                    // If the spool cannot be read, the next request that needs it reports the error.
                    try? spool.requestReleaseForOthers()
                    // On a file system that hosts share, each check is a request to a file server.
                    guard !spool.isShared || turn.isMultiple(of: 10) else { continue }
                    if spool.isWoken() { gateway.deliveries.noteChangedSpool() }
                }
            }
            try gateway.deliveries.startQueue()
            try gateway.events.startSending()
            try admin.start()
            try report.start(admin, server, log)
        } catch {
            let sentence = "cannot start a thread: \(error); raise the limit of tasks (TasksMax)"
            throw CommandFailure(.unavailable, sentence)
        }
    }

    private func effectiveSettings() throws(CommandFailure) -> Settings {
        var settings = try options.settings()
        address.apply(to: &settings)
        if let upstream {
            settings.routes[RouteSettings.defaultName, default: RouteSettings()].upstream.targets =
                [upstream]
            settings.noteOption("routes.\(RouteSettings.defaultName).upstream")
        }
        if let lack = settings.lack {
            throw CommandFailure(.configuration, "\(settings.source(options.file)): \(lack)")
        }
        return settings
    }

    /// Handles signals until one ends the daemon, and returns its name.
    private func obey(
        _ signals: Signals,
        _ gateway: Gateway,
        _ report: ServiceReport,
        _ started: Settings,
        _ log: Log
    ) -> String {
        while true {
            switch signals.next() {
            case .terminate: return "TERM"
            case .interrupt: return "INT"
            case .user1: gateway.deliveries.runQueue()
            case .user2: continue
            case .hangUp:
                report.notify(.reloading, log)
                // The file may have been rotated even if the settings are wrong.
                gateway.events.reopen()
                do throws(CommandFailure) {
                    let settings = try effectiveSettings()
                    gateway.reload(settings)
                    for line in settings.ignored { log.settingIgnored(reason: line.description) }
                    gateway.metrics.refusedReload.set(0)
                    log.reloaded(unchanged: settings.needingRestart(since: started))
                } catch {
                    gateway.metrics.refusedReload.set(1)
                    log.reloadRefused(reason: error.sentence)
                }
                report.notify(.ready, log)
            }
        }
    }

    /// Creates a logger whose lines have the key `node` unless `node` is nil.
    static func logger(_ level: Logger.Level, node: String?) -> Logger {
        var handler = LineHandler(level: level)
        handler[metadataKey: "node"] = node.map { "\($0)" }
        return Logger(label: "spoolgate") { _ in handler }
    }

    /// Creates the spool if necessary, and registers this process as one of its daemons.
    private static func openSpool(
        _ settings: Settings,
        _ log: Log
    ) throws(CommandFailure) -> Spool {
        do throws(SpoolError) {
            let spool = try Spool(directory: settings.spoolDirectory) { options in
                options.reserve = settings.spoolReserve
                options.quota = settings.spoolQuota == 0 ? nil : settings.spoolQuota
                options.node = settings.sharedNode
            }
            // The state on the disk no longer belongs to this daemon, so it must be neither reported nor repaired.
            spool.onFenced { error in
                log.fenced(reason: "\(error)")
                _exit(CommandFailure.Code.inUse.rawValue)
            }
            try spool.enter()
            return spool
        } catch {
            throw CommandFailure(.cannotCreate, error.sentence)
        }
    }

    /// Returns the number of threads in the settings; logs and returns fewer if file descriptors are scarce.
    private static func threadBudget(_ settings: Settings, _ log: Log) -> ThreadBudget {
        let descriptors = DescriptorLimit.raise()
        let budget = ThreadBudget(settings).within(
            descriptors: descriptors,
            open: DescriptorLimit.open,
            deliveries: settings.maximumDeliveries
        )
        if budget.maximum < settings.maximumThreads {
            let wanted = settings.maximumThreads
            log.threadsLowered(to: budget.maximum, from: wanted, descriptors: descriptors)
        }
        return budget
    }

    private static func startServer(
        _ settings: Settings,
        _ threads: ThreadBudget,
        _ gateway: Gateway,
        _ log: Log
    ) throws(CommandFailure) -> FastCGIServer {
        var listener = FastCGIServer.Settings()
        listener.maximum = threads.threads
        listener.stallTimeout = settings.stallTimeout
        do throws(SystemError) {
            let server = try FastCGIServer(
                settings: listener,
                listener: try Listener.open(settings.listen),
                report: { Self.note($0, log) },
                respond: { exchange, isLast in gateway.serve(exchange, isLast: isLast) }
            )
            try server.start()
            return server
        } catch {
            let sentence = "cannot listen on \(settings.listen.text): \(error)"
            throw CommandFailure(.cannotCreate, sentence)
        }
    }

    private static func note(_ event: ListenerEvent, _ log: Log) {
        switch event {
        case .acceptFailed(let error): log.listenerFailed("cannot accept a connection: \(error)")
        case .threadFailed(let error): log.listenerFailed("cannot start a thread: \(error)")
        case .noRequest: log.noRequest()
        case .incompleteResponse: log.incompleteResponse()
        }
    }

    /// Opens the admin socket; logs a failure and returns nil, because uploads do not need this socket.
    private static func startAdmin(
        _ settings: Settings,
        _ admin: Admin,
        _ log: Log
    ) -> FastCGIServer? {
        var listener = FastCGIServer.Settings()
        listener.name = "admin"
        (listener.minimumSpare, listener.maximum) = (2, 3)
        listener.maximumKept = 4
        listener.stallTimeout = .seconds(10)
        do throws(SystemError) {
            let server = try FastCGIServer(
                settings: listener,
                listener: try Listener.open(settings.admin, backlog: 16),
                report: { Self.note($0, log) },
                respond: { exchange, _ in admin.serve(exchange) }
            )
            try server.start()
            return server
        } catch {
            log.adminUnavailable(reason: "\(error)")
            return nil
        }
    }
}

extension Settings {
    /// Creates the directories of the built-in defaults, so that `serve` works without preparation.
    ///
    /// Paths from a settings file are never created: if one is missing, a disk is probably not mounted.
    fileprivate func makeDirectories() throws(CommandFailure) {
        var needed = [PathAccess.parent(of: spoolDirectory)]
        if case .unix(let path, _, _) = listen { needed.append(PathAccess.parent(of: path)) }
        for route in routes.values {
            if let path = route.upstream.store?.directory { needed.append(path) }
        }
        for path in needed where access(path, F_OK) != 0 {
            try makeDirectory(path)
        }
    }

    private func makeDirectory(_ path: String) throws(CommandFailure) {
        let above = PathAccess.parent(of: path)
        if access(above, F_OK) != 0 { try makeDirectory(above) }
        guard mkdir(path, 0o750) == 0 || errno == EEXIST else {
            let error = SystemError(call: "mkdir", subject: path, errno: errno)
            let sentence = "\(error); use other paths with --spool, --listen and --upstream"
            throw CommandFailure(.cannotCreate, sentence)
        }
    }
}
