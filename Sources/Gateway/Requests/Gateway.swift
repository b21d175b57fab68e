// Classification and dispatch of requests; the files named after the operations perform them.
//
// Invariant: nothing that happens to one request affects the uploads of others.

import HTTPTypes
import SpoolgateCrypto
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
    package let faults = WebServerFaults()
    package let deliveries: Deliveries
    package let transfers: Transfers
    /// Whether nginx has failed to write to a file of the spool since the settings were last read.
    let isLaneUnusable = Monitor(false)
    let admission: Admission
    /// The log lines about rejected requests, rate-limited for each reason.
    let rejected = Monitor(RareLines<String>())
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
        guard let (request, classified) = request(of: exchange) else { return }
        defer { request.end() }
        var decision = admission.admit(request.client, isShort: classified.isShort, isLast: isLast)
        if !classified.isShort, admission.isCrowded {
            // A client that cannot be told to return later gets the thread of another one that can resume.
            let needsRoom =
                if case .noThread = decision { classified.isAppend && !isLast } else { false }
            if interruptSlowest(needsRoom ? .fast : .lowestRate), needsRoom {
                decision = admission.admit(request.client, isShort: false, patience: .seconds(1))
            }
        }
        switch decision {
        case .admitted(let ticket):
            defer { admission.leave(ticket) }
            request.ticket = ticket
            request.run(classified)
        case .clientIsBusy: request.reject(classified, .clientBusy)
        case .noThread: request.reject(classified, .busy)
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
        if let preflight = route.preflightResponse(to: head) {
            route.counts.add(.options, status: preflight.head.status.code)
            exchange.respond(preflight)
            return nil
        }
        let classified = ClassifiedRequest(&head, on: route, configuration)
        noteFaults(context, route: route.name, isUpload: classified.request.isUpload)
        if let version = classified.unknownVersion { noteUnknownVersion(version) }
        let request = Request(
            head,
            of: exchange,
            at: self,
            route: route,
            configuration,
            classified
        )
        return (request, classified.request)
    }

    /// Asks a slow request to end; returns whether one was asked.
    private func interruptSlowest(_ limit: SlowContent.Limit) -> Bool {
        guard let client = slow.interruptSlowest(limit) else { return false }
        if let count = rejected.update({ $0.note("slow content") }) {
            log.slowRelease(client: "\(client)", count: count)
        }
        return true
    }

    /// Logs, at a limited rate, an unknown interop version and the setting that makes its clients resumable.
    private func noteUnknownVersion(_ version: Int) {
        let count = rejected.update {
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
        exchange.respond(refusal.response)
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
                reportsResponse: route.settings.tusFinalResponse == .upstream,
                now: clock.now.seconds
            )
        }
    }
}

extension Route {
    /// The response to a CORS preflight request (Fetch, "CORS-preflight request"); nil for other requests.
    fileprivate func preflightResponse(to head: RequestHead) -> Response? {
        let rules = settings.crossOrigin
        guard rules.isOn, let origin = head.fields.value(of: .origin), CrossOrigin.isPreflight(head)
        else { return nil }
        return rules.preflightResponse(
            to: origin,
            requesting: head.fields[.accessControlRequestHeaders]
        )
    }
}

// MARK: Classification

// Classification of a request by its protocol and the settings of its route.

struct ClassifiedRequest {
    /// The method as received.
    let method: HTTPRequest.Method
    let request: UploadRequest
    let dialect: Dialect
    /// Whether no field of the request names a protocol; the protocol of the addressed upload then applies.
    let isUnmarked: Bool
    /// The interop version that the request names, if that version is unknown; otherwise nil.
    ///
    /// Such a request is served like one of the newest known version, but without 104 responses.
    let unknownVersion: Int?
    let correlation: String?

    /// Classifies a request, and sets the effective method and the correlation field in `head`.
    init(
        _ head: inout RequestHead,
        on route: Route,
        _ configuration: Deliveries.Configuration
    ) {
        method = head.method
        let resources = route.resources
        // A captured `head` would be copied at each use.
        let target = head.target
        func isOnResource() -> Bool { resources.match(target: target) != .none }
        var family = ProtocolFamily(of: head, isOnResource: isOnResource())
        // The gateway does not interpret these tus fields.
        let isPassed = family == .tus && route.settings.tus == .pass && !isOnResource()
        if family == .tus, isPassed || route.settings.tus == .off { family = .ietf }
        head.method = UploadRequest.method(of: head, family)
        dialect =
            family == .tus
            ? Dialect.tus
            : Dialect(
                of: head.fields,
                aliases: configuration.settings.interopAliases,
                hasRFCClients: route.settings.hasRFCClients
            )
        unknownVersion = dialect.unknownVersion(in: head.fields)
        correlation = configuration.settings.correlationField.map { head.fields.correlate(by: $0) }
        let limits = route.settings.limits
        request =
            isPassed
            ? UploadRequest(passed: head, limits: limits)
            : UploadRequest(head, dialect: dialect, resources: resources, limits: limits)
        isUnmarked = family == nil
    }
}

// MARK: Correlation

// The field that identifies a request across several logs.
//
// A valid value from the client is used; otherwise one is generated. Invariant: if the settings name a field, every
// request has exactly one value for it, of 1 to 128 visible ASCII characters.

extension HTTPFields {
    private static let correlationLimit = 128

    /// Ensures that the field `name` has exactly one valid value, and returns the value.
    mutating func correlate(by name: HTTPField.Name) -> String {
        if let value = self[name], Self.isCorrelation(value) { return value }
        let value = RandomToken.make()
        self[name] = value
        return value
    }

    private static func isCorrelation(_ value: String) -> Bool {
        // A repeated field is invalid because its values are joined by a comma and a space.
        !value.isEmpty && value.utf8.count <= correlationLimit
            && value.utf8.allSatisfy { (0x21...0x7e).contains($0) }
    }
}

// MARK: The web server's mistakes

// Mistakes in the web server's configuration that its requests reveal: all are counted, some are logged.
//
// A mistake affects every request, so one line for each request would flood the log.

/// The web server's faults found by one process; thread-safe.
package final class WebServerFaults: Sendable {
    /// One kind of fault on one route; its log lines are rate-limited together.
    private struct Subject: Hashable {
        var fault: WebServerFault
        var route: String
    }

    private struct State {
        var counts: [WebServerFault: Int] = [:]
        var recent: [WebServerFault: Deadline] = [:]
        var lines = RareLines<Subject>()
    }

    private let state = Monitor(State())
    private let interval: Duration
    /// Limited because clients can choose route names in some configurations of the web server.
    private static let maximumSubjects = 200

    /// `interval` is the minimum time between two log lines about the same subject.
    init(interval: Duration = .seconds(60)) { self.interval = interval }

    /// How often each kind of fault was found since the process started; kinds that were not found are missing.
    package var counts: [WebServerFault: Int] { state.update { $0.counts } }

    /// The kinds of faults found in the last 15 minutes.
    package var recent: Set<WebServerFault> {
        state.update { Set($0.recent.filter { !$0.value.hasPassed }.keys) }
    }

    /// Counts a fault; `route` must be empty if the route is unknown.
    ///
    /// - Returns: how many faults the log line must report; nil if it is too soon for another line.
    func note(_ fault: WebServerFault, route: String = "") -> Int? {
        state.update { state in
            state.counts[fault, default: 0] += 1
            state.recent[fault] = .after(.seconds(900))
            var subject = Subject(fault: fault, route: route)
            // A variable with the subjects would make the next change copy them.
            if state.lines.subjects.count >= Self.maximumSubjects,
                !state.lines.subjects.contains(subject)
            {
                subject.route = ""
            }
            // A missing origin does no harm, so it is logged only once.
            return state.lines.note(subject, next: fault == .noOrigin ? .never : .after(interval))
        }
    }

    /// Allows faults that are logged only once to be logged again after a reconfiguration.
    func reload() {
        state.update { $0.lines.forget { $0.fault == .noOrigin } }
    }
}

extension Gateway {
    /// Logs a request that lacks a required parameter, which `reason` names.
    func noteMissing(_ context: ExchangeContext, reason: String) {
        guard context.faults.contains(.noMethod), let count = faults.note(.noMethod) else { return }
        log.webServerMisconfigured(reason: reason, count: count)
    }

    func noteFaults(_ context: ExchangeContext, route: String, isUpload: Bool) {
        if context.faults.contains(.noOrigin), faults.note(.noOrigin, route: route) != nil {
            log.noOrigin(route: route)
        }
        if let text = context.badOrigin, context.faults.contains(.badOrigin),
            let count = faults.note(.badOrigin, route: route)
        {
            log.badOrigin(text, route: route, count: count)
        }
        // Buffering is harmless for other requests.
        guard isUpload else { return }
        if context.faults.contains(.bufferingUnknown),
            let count = faults.note(.bufferingUnknown, route: route)
        {
            log.webServerMayBuffer(route: route, count: count)
        }
        if context.faults.contains(.buffered), let count = faults.note(.buffered, route: route) {
            log.webServerBuffers(route: route, count: count)
        }
    }

    func noteUnknownRoute(_ route: String, target: String) {
        guard let count = faults.note(.unknownRoute, route: route) else { return }
        log.unknownRoute(route, target: target, count: count)
    }
}
