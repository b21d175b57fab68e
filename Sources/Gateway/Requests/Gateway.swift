// Classification and dispatch of requests; the files named after the operations perform them.
//
// Invariant: nothing that happens to one request affects the uploads of others.

import HTTPTypes
package import SpoolgateDelivery
package import SpoolgateExchange
package import SpoolgateJournal
package import SpoolgatePosix
package import SpoolgateSettings
package import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol

/// Serves the requests of the web server.
///
/// Thread-safe. Each request occupies its thread until the response is sent.
package final class Gateway: Sendable {
    let spool: Spool
    package let faults = FrontFaults()
    package let deliveries: Deliveries
    package let transfers: Transfers
    /// Whether nginx has failed to write to a file of the spool since the settings were last read.
    let isLaneUnusable = Monitor(false)
    let admission: Admission
    /// The log lines about rejected requests, rate-limited for each reason.
    let turnedAway = Monitor(RareLines<String>())
    let slow: SlowContent
    private let threads: ThreadBudget

    var clock: SpoolClock { spool.clock }
    package var events: Events { deliveries.journal.events }
    var log: Log { deliveries.journal.log }
    package var metrics: Metrics { deliveries.journal.metrics }

    /// Creates a gateway for an open spool, whose recovery may still be running.
    ///
    /// If `threads` is nil, the settings determine how many requests are served at a time. `contentClock` returns the
    /// present, for the rates of content.
    package init(
        settings: Settings,
        spool: Spool,
        log: Log,
        threads: ThreadBudget? = nil,
        contentClock: @escaping @Sendable () -> Deadline = { .after(.zero) }
    ) {
        self.spool = spool
        slow = SlowContent(now: contentClock)
        let budget = threads ?? ThreadBudget(settings)
        self.threads = budget
        admission = Admission(RequestBounds(settings, budget))
        spool.setBounds(UploadBounds(settings))
        deliveries = Deliveries(settings, spool: spool, log: log, admission: admission)
        transfers = Transfers(deliveries.journal.metrics)
    }

    /// Applies new settings to requests that begin after this call.
    package func reload(_ settings: Settings) {
        deliveries.reload(settings)
        admission.setBounds(RequestBounds(settings, threads))
        spool.setBounds(UploadBounds(settings))
        spool.setReserve(settings.spoolReserve)
        faults.reload()
        isLaneUnusable.updateQuietly { $0 = false }
    }

    /// Serves one request; returns once the request has its response or was aborted.
    ///
    /// If `isLast` is true, only short requests are served, because no other thread accepts connections.
    package func serve(_ exchange: any Exchange, isLast: Bool = false) {
        guard let (request, asked) = request(of: exchange) else { return }
        defer { request.end() }
        var answer = admission.admit(request.client, isShort: asked.isShort, isLast: isLast)
        if !asked.isShort, admission.isCrowded {
            // A client that cannot be told to return later gets the thread of another one that can resume.
            let needsRoom =
                if case .noThread = answer { asked.isAppend && !isLast } else { false }
            if interruptSlowest(needsRoom ? .fast : .lowestRate), needsRoom {
                answer = admission.admit(request.client, isShort: false, patience: .seconds(1))
            }
        }
        switch answer {
        case .admitted(let ticket):
            defer { admission.leave(ticket) }
            request.ticket = ticket
            request.run(asked)
        case .clientIsBusy: request.turnAway(asked, .clientBusy)
        case .noThread: request.turnAway(asked, .busy)
        }
    }

    /// Classifies a request; returns nil if a response has already been sent.
    ///
    /// Not inlined, for the reason stated at `Request.run`.
    @inline(never)
    private func request(of exchange: any Exchange) -> (Request, UploadRequest)? {
        let configuration = deliveries.current
        let context = exchange.context
        guard var head = head(of: exchange, context),
            let route = route(of: head, context, configuration, exchange)
        else { return nil }
        if let preflight = route.preflightAnswer(to: head) {
            route.counts.add(.options, status: preflight.head.status.code)
            exchange.answer(preflight)
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

    /// Asks a slow request to end; returns whether one was asked.
    private func interruptSlowest(_ limit: SlowContent.Limit) -> Bool {
        guard let client = slow.interruptSlowest(limit) else { return false }
        if let count = turnedAway.update({ $0.note("slow content") }) {
            log.slowLetGo(client: "\(client)", count: count)
        }
        return true
    }

    /// Logs, at a limited rate, an unknown interop version and the setting that makes its clients resumable.
    private func noteUnknownVersion(_ version: Int) {
        let count = turnedAway.update {
            $0.note("interop version \(version)", next: .after(.seconds(3600)))
        }
        guard let count else { return }
        log.unknownVersion(version, servedAs: Dialect.versions.upperBound, count: count)
    }

    /// Returns the request's head; nil if the request was invalid and a refusal was sent.
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

    /// Returns the request's route; nil if the route is unknown and a refusal was sent.
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

    private func refuse(
        _ refusal: Refusal,
        _ exchange: any Exchange,
        _ method: RouteMetrics.MethodName
    ) {
        metrics.refusals[refusal.code].add()
        metrics[Metrics.noRoute].add(method, status: refusal.status.code)
        exchange.answer(refusal.response)
    }

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

extension Route {
    /// The response to a CORS preflight request (Fetch, "CORS-preflight request"); nil for other requests.
    fileprivate func preflightAnswer(to head: RequestHead) -> Response? {
        let rules = settings.crossOrigin
        guard rules.isOn, let origin = head.fields.value(of: .origin), CrossOrigin.isPreflight(head)
        else { return nil }
        return rules.preflightAnswer(
            to: origin,
            asking: head.fields[.accessControlRequestHeaders]
        )
    }
}
