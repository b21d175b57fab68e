// The gateway: one request in, one answer out. Here a request only finds its way; what is done with
// it stands in the files named for it.
//
// Invariant: whatever happens to one request, the uploads of others are untouched.

import HTTPTypes
package import SpoolgateDelivery
package import SpoolgateExchange
package import SpoolgateJournal
import SpoolgatePosix
package import SpoolgateSettings
package import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol

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
    /// Whether nginx could not use a file of the spool that it was given, since the settings were read.
    let isLaneUnusable = Monitor(false)
    let admission: Admission
    /// What requests are turned away for, told now and then.
    let turnedAway = Monitor(RareLines<String>())
    /// Whose content is under way.
    let slow = SlowContent()
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
        transfers = Transfers(deliveries.journal.metrics, spool.buffers)
    }

    /// Puts new settings in force for the requests that begin from now on.
    package func reload(_ settings: Settings) {
        deliveries.reload(settings)
        admission.setBounds(RequestBounds(settings, threads))
        spool.setBounds(UploadBounds(settings))
        spool.setReserve(settings.spoolReserve)
        faults.reload()
        isLaneUnusable.updateQuietly { $0 = false }
    }

    /// Answers one request, or ends it without an answer where that is the right thing to do.
    ///
    /// - Parameters:
    ///   - exchange: the request.
    ///   - isLast: whether no other thread accepts: then only what ends soon is done.
    package func serve(_ exchange: any Exchange, isLast: Bool = false) {
        guard let (request, asked) = request(of: exchange) else { return }
        defer { request.exchange.end() }
        let answer = admission.admit(
            request.client,
            isShort: asked.isShort,
            isLast: isLast,
            patience: !asked.isShort && relieve() ? .seconds(1) : .zero
        )
        switch answer {
        case .admitted(let ticket):
            defer { admission.leave(ticket) }
            request.ticket = ticket
            request.run(asked)
        case .clientIsBusy: request.turnAway(asked, .clientBusy)
        case .noThread: request.turnAway(asked, .busy)
        }
    }

    /// Finds out what a request is and asks for; nil where it was answered.
    ///
    /// By itself, as what `Request.run` names.
    @inline(never)
    private func request(of received: any Exchange) -> (Request, UploadRequest)? {
        let configuration = deliveries.current
        let context = received.context
        guard var head = head(of: received, context),
            let route = route(of: head, context, configuration, received)
        else { return nil }
        let exchange = RequestExchange(received, head, context, on: route, metrics, slow)
        guard !exchange.answersPreflight(head) else {
            exchange.end()
            return nil
        }
        let asked = ClassifiedRequest(&head, on: route, configuration)
        noteFaults(context, route: route.name, isUpload: asked.request.isUpload)
        if let version = asked.unknownVersion { noteUnknownVersion(version) }
        let request = Request(
            head,
            of: exchange,
            context,
            at: self,
            route: route,
            configuration,
            asked
        )
        return (request, asked.request)
    }

    /// Has slow requests let go where threads run short: one for the request that comes, and one so that
    /// there is room again.
    ///
    /// - Returns: whether there was one.
    private func relieve() -> Bool {
        let most = threads.maximum
        guard admission.active >= most - max(1, most / 8), let client = slow.letGo() else {
            return false
        }
        _ = slow.letGo()
        if let count = turnedAway.update({ $0.note("slow content") }) {
            log.slowLetGo(client: "\(client)", count: count)
        }
        return true
    }

    /// Says which line of the settings would have such clients resume.
    private func noteUnknownVersion(_ version: Int) {
        let count = turnedAway.update {
            $0.note("interop version \(version)", next: .after(.seconds(3600)))
        }
        guard let count else { return }
        log.unknownVersion(version, servedAs: Dialect.versions.upperBound, count: count)
    }

    /// The head of a request that is one; nil where it was answered.
    private func head(of exchange: any Exchange, _ context: ExchangeContext) -> RequestHead? {
        switch exchange.head {
        case .success(var head):
            head.fields.takeHost(from: context)
            return head
        case .failure(let refusal):
            noteMissing(context, reason: refusal.detail)
            log.refused(refusal, target: nil)
            refuse(refusal, exchange, .other)
            return nil
        }
    }

    /// The route that the web server names; nil where there is none, and the request was answered.
    private func route(
        of head: RequestHead,
        _ context: ExchangeContext,
        _ configuration: Deliveries.Configuration,
        _ exchange: any Exchange
    ) -> Route? {
        let name = context.route ?? RouteSettings.defaultName
        if let route = configuration.routes[exactly: name] { return route }
        noteUnknownRoute(name, target: head.target)
        refuse(.unknownRoute(name: name), exchange, RouteMetrics.MethodName(head.method))
        return nil
    }

    /// Refuses, and counts, a request before it has a route.
    private func refuse(
        _ refusal: Refusal,
        _ exchange: any Exchange,
        _ method: RouteMetrics.MethodName
    ) {
        metrics.refusals[refusal.code].add()
        metrics[Metrics.noRoute].add(method, status: refusal.status.code)
        exchange.answer(refusal.response)
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
