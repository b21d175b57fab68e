// The gateway: one request in, one answer out. Here a request only finds its way; what is done with
// it stands in the files named for it (UploadTransactions, Delivery, PlainUpload, PassThrough).
//
// Invariant: whatever happens to one request, the uploads of others are untouched.

package import Spool
import Synchronization
import UploadProtocol
import Upstream

/// The gateway.
///
/// Any thread; one exchange occupies its thread until it is answered.
package final class Gateway: Sendable {
    let spool: Spool
    let log: Log
    /// What is wrong with the web server's configuration, as its requests show it.
    package let faults = FrontFaults()
    /// What time it is.
    var clock: SpoolClock { spool.clock }
    let slots: DeliverySlots
    let queue = DeliveryQueue()
    let upkeep = Upkeep()
    let holdSizes = HoldSizes()
    let buffers = BufferShelf()
    let admission: Admission
    /// What requests are turned away for, told now and then.
    let turnedAway = TurnedAway()
    /// How many requests the front serves at a time.
    private let threads: ThreadBudget
    /// What happens to uploads, for other programs.
    package let events: Events
    private let configuration: Mutex<Configuration>

    /// The settings in force and the upstreams made from them.
    ///
    /// One reference, so that a request has the lock for the time of one retain.
    final class Configuration: Sendable {
        let settings: Settings
        let bounds: DeliveryBounds
        let routes: [String: RouteInForce]
        let upstreams: [String: Upstream]
        let checks: [String: RouteChecks]

        init(_ settings: Settings, keeping old: Configuration?, log: Log) {
            self.settings = settings
            bounds = DeliveryBounds(settings)
            routes = settings.routes.mapValues { RouteInForce($0) }
            checks = settings.routes.reduce(into: [:]) { checks, route in
                checks[route.key] = RouteChecks(route.value, keeping: old?.checks[route.key])
            }
            // An upstream whose settings did not change keeps its open connections.
            upstreams = settings.routes.reduce(into: [:]) { upstreams, route in
                let kept = old?.upstreams[route.key]
                upstreams[route.key] =
                    kept?.settings == route.value.upstream
                    ? kept
                    : Upstream(route.value.upstream) {
                        log.upstreamSkipped(route: route.key, reason: $0)
                    }
            }
        }
    }

    /// Makes a gateway over an opened and recovered spool.
    ///
    /// - Parameters:
    ///   - settings: the settings in force.
    ///   - spool: the spool.
    ///   - log: the log.
    ///   - threads: how many requests the front serves at a time; nil: as many as the settings say.
    package init(settings: Settings, spool: Spool, log: Log, threads: ThreadBudget? = nil) {
        self.spool = spool
        self.log = log
        let budget =
            threads
            ?? ThreadBudget(maximum: settings.maximumThreads, reserve: settings.reserveThreads)
        self.threads = budget
        admission = Admission(RequestBounds(settings, budget))
        spool.setBounds(settings.uploadBounds)
        events = Events(settings, spool: spool, log: log)
        let first = Configuration(settings, keeping: nil, log: log)
        slots = DeliverySlots(first.bounds)
        configuration = Mutex(first)
    }

    /// Puts new settings in force for the requests that begin from now on.
    package func reload(_ settings: Settings) {
        configuration.withLock { $0 = Configuration(settings, keeping: $0, log: log) }
        slots.setBounds(current.bounds)
        admission.setBounds(RequestBounds(settings, threads))
        spool.setBounds(settings.uploadBounds)
        faults.reload()
        events.reload(settings)
        // The pause before the next run was the old settings', and uploads may have a route again.
        queue.askForRun()
    }

    /// The configuration in force.
    var current: Configuration { configuration.withLock { $0 } }

    /// Answers one request, or ends it without an answer where that is the right thing to do.
    ///
    /// - Parameters:
    ///   - exchange: the request.
    ///   - place: where the front has room for it.
    package func serve(_ exchange: any Exchange, at place: ThreadPlace = .regular) {
        let configuration = current
        var head: RequestHead
        switch exchange.head {
        case .success(let received): head = received
        case .failure(let refusal):
            noteMissing(exchange.context, reason: refusal.detail)
            log.refused(refusal, target: nil)
            return exchange.answer(refusal.response)
        }
        head.fields.takeHost(from: exchange.context)
        let name = exchange.context.route ?? Route.defaultName
        guard let route = configuration.routes[name],
            let upstream = configuration.upstreams[name],
            let checks = configuration.checks[name]
        else {
            noteUnknownRoute(name, target: head.target)
            return exchange.answer(Refusal.unknownRoute(name: name).response)
        }
        let dialect = Dialect(
            of: head.fields,
            aliases: configuration.settings.interopAliases
        )
        let correlation = configuration.settings.correlationField.map { name in
            head.fields.correlate(by: name)
        }
        let exchange = ContinuingExchange.wrapping(exchange, head)
        let client = ClientName(
            owner: exchange.context.owner,
            address: exchange.context.remoteAddress
        )
        var transaction = Transaction(
            gateway: self,
            exchange: exchange,
            client: client,
            head: head,
            routeName: name,
            route: route,
            upstream: upstream,
            checks: checks,
            log: log.correlated(correlation),
            inUseTimeout: configuration.settings.inUseTimeout,
            interimRate: configuration.settings.interim,
            answers: UploadResponse(dialect: dialect, limits: route.limits)
        )
        let request = UploadRequest(
            head,
            dialect: dialect,
            resources: route.resources,
            limits: route.limits
        )
        noteFaults(exchange.context, route: name, isUpload: request.isUpload)
        switch admission.admit(client, isShort: request.isShort, at: place) {
        case .admitted(let visit):
            defer { admission.leave(visit) }
            transaction.visit = visit
            transaction.run(request)
        case .clientIsBusy: transaction.turnAway(request, .clientBusy)
        case .noThread: transaction.turnAway(request, .busy)
        }
    }
}

extension Settings {
    fileprivate var uploadBounds: UploadBounds {
        UploadBounds(
            total: maximumUploads == 0 ? nil : maximumUploads,
            ofClient: clients.maximumUploads == 0 ? nil : clients.maximumUploads
        )
    }
}
