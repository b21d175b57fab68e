// The gateway: one request in, one answer out. Here a request only finds its way; what is done with
// it stands in the files named for it.
//
// Invariant: whatever happens to one request, the uploads of others are untouched.

package import Delivery
package import Exchange
import HTTPTypes
package import Journal
import Posix
package import Settings
package import Spool
import TextFormats
import UploadProtocol

/// The gateway.
///
/// Any thread; one exchange occupies its thread until it is answered.
package final class Gateway: Sendable {
    let spool: Spool
    /// What is wrong with the web server's configuration, as its requests show it.
    package let faults = FrontFaults()
    /// What delivers whole uploads, now or later.
    package let deliveries: Deliveries
    /// What content comes just now.
    package let transfers: Transfers
    let admission: Admission
    /// What requests are turned away for, told now and then.
    let turnedAway = Monitor(RareLines<String>())
    /// How many requests the front serves at a time.
    private let threads: ThreadBudget

    /// What time it is.
    var clock: SpoolClock { spool.clock }
    /// What happens to uploads, for other programs.
    package var events: Events { deliveries.journal.events }
    var log: Log { deliveries.journal.log }
    /// What is counted.
    package var metrics: Metrics { deliveries.journal.metrics }

    /// Makes a gateway over an opened and recovered spool.
    ///
    /// - Parameters:
    ///   - settings: the settings in force.
    ///   - spool: the spool.
    ///   - log: the log.
    ///   - threads: how many requests the front serves at a time; nil: as many as the settings say.
    package init(settings: Settings, spool: Spool, log: Log, threads: ThreadBudget? = nil) {
        self.spool = spool
        let budget = threads ?? ThreadBudget(settings)
        self.threads = budget
        admission = Admission(RequestBounds(settings, budget))
        spool.setBounds(UploadBounds(settings))
        deliveries = Deliveries(settings, spool: spool, log: log, admission: admission)
        transfers = Transfers(deliveries.journal.metrics)
    }

    /// Puts new settings in force for the requests that begin from now on.
    package func reload(_ settings: Settings) {
        deliveries.reload(settings)
        admission.setBounds(RequestBounds(settings, threads))
        spool.setBounds(UploadBounds(settings))
        spool.setReserve(settings.spoolReserve)
        faults.reload()
    }

    /// Answers one request, or ends it without an answer where that is the right thing to do.
    ///
    /// - Parameters:
    ///   - exchange: the request.
    ///   - place: where the front has room for it.
    package func serve(_ exchange: any Exchange, at place: ThreadPlace = .regular) {
        guard let (request, asked, counted) = request(of: exchange) else { return }
        defer { counted.end() }
        switch admission.admit(request.client, isShort: asked.isShort, at: place) {
        case .admitted(let visit):
            defer { admission.leave(visit) }
            request.visit = visit
            request.run(asked)
        case .clientIsBusy: request.turnAway(asked, .clientBusy)
        case .noThread: request.turnAway(asked, .busy)
        }
    }

    /// Finds out what a request is and asks for; nil where it was answered.
    ///
    /// By itself, as what `Request.run` names.
    @inline(never)
    private func request(
        of exchange: any Exchange
    ) -> (Request, UploadRequest, CountedExchange)? {
        let configuration = deliveries.current
        let context = exchange.context
        var head: RequestHead
        switch exchange.head {
        case .success(let received): head = received
        case .failure(let refusal):
            noteMissing(context, reason: refusal.detail)
            log.refused(refusal, target: nil)
            count(refusal, .other)
            exchange.answer(refusal.response)
            return nil
        }
        head.fields.takeHost(from: context)
        let name = context.route ?? RouteSettings.defaultName
        guard let route = configuration.routes[exactly: name] else {
            noteUnknownRoute(name, target: head.target)
            let refusal = Refusal.unknownRoute(name: name)
            count(refusal, RouteMetrics.MethodName(head.method))
            exchange.answer(refusal.response)
            return nil
        }
        let counted = CountedExchange(exchange, head.method, metrics, route.counts)
        guard let exchange = crossing(counted, head, on: route) else {
            counted.end()
            return nil
        }
        let resources = route.resources
        // Not of the head, which every use would be a copy of then.
        let target = head.target
        func isOnResource() -> Bool { resources.match(target: target) != .none }
        var family = ProtocolFamily(of: head, isOnResource: isOnResource())
        // What it says is the upstream's to read, or nobody's.
        let isPassed = family == .tus && route.settings.tus == .pass && !isOnResource()
        if family == .tus, isPassed || route.settings.tus == .off { family = .ietf }
        head.method = UploadRequest.method(of: head, family)
        let dialect =
            family == .tus
            ? Dialect.tus
            : Dialect(
                of: head.fields,
                aliases: configuration.settings.interopAliases,
                hasRFCClients: route.settings.hasRFCClients
            )
        let correlation = configuration.settings.correlationField.map { name in
            head.fields.correlate(by: name)
        }
        let asked =
            isPassed
            ? UploadRequest(passed: head, limits: route.settings.limits)
            : UploadRequest(
                head,
                dialect: dialect,
                resources: resources,
                limits: route.settings.limits
            )
        noteFaults(context, route: name, isUpload: asked.isUpload)
        let request = Request(
            head,
            of: exchange,
            context,
            at: self,
            client: ClientName(owner: context.owner, address: context.remoteAddress),
            route: route,
            journal: deliveries.journal.correlated(correlation),
            settings: configuration.settings,
            responses: responses(to: head, dialect, on: route),
            isOrdinary: asked.isOrdinary,
            isUnmarked: family == nil
        )
        return (request, asked, counted)
    }

    /// Counts a request that is refused before it has a route.
    private func count(_ refusal: Refusal, _ method: RouteMetrics.MethodName) {
        metrics.refusals[refusal.code].add()
        metrics[Metrics.noRoute].add(method, status: refusal.status.code)
    }

    /// What words the answers to a request.
    func responses(
        to head: RequestHead,
        _ dialect: Dialect,
        on route: Route
    ) -> any ResponseWording {
        switch dialect.family {
        case .ietf: ResponseBuilder(dialect: dialect, limits: route.settings.limits)
        case .tus:
            TusResponseBuilder(
                head,
                limits: route.settings.limits,
                tellsAnswer: route.settings.tusAnswer == .upstream,
                now: clock.now.seconds
            )
        }
    }
}
