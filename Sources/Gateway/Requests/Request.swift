// One request: its state, the dispatch by operation, and the search for its upload.

import HTTPTypes
import SpoolgateDelivery
import SpoolgateExchange
import SpoolgateJournal
import SpoolgatePosix
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol
import SpoolgateUpstream

/// One request, used by one thread; unchanged after its admission.
///
/// A class because thousands of requests wait at a time, and their stack frames would hold copies of a structure.
final class Request: Answering {
    let gateway: Gateway
    let exchange: any Exchange
    let context: ExchangeContext
    let client: ClientName
    /// The head as received, with the fields that the authorizer has set or removed.
    private(set) var head: RequestHead
    /// The request's route, with the maximum size that the authorizer allows.
    private(set) var route: Route
    let journal: Journal
    /// How long to wait for another request that is using the upload, if the client must get its response soon.
    let inUseTimeout: Duration
    let interimRate: InterimRate
    private(set) var responses: any ResponseWording
    /// Whether the client used no field of an upload protocol.
    let isOrdinary: Bool
    /// Whether no field of the request names a protocol.
    let isUnmarked: Bool
    /// The request's place within the limits; nil if the request is being rejected.
    var ticket: AdmissionTicket?
    private(set) var grant = Grant()
    /// The client's credentials that the authorizer has replaced or removed.
    private(set) var replacedCredentials = HTTPFields()
    /// The request's content as it arrives (`RequestContent`).
    var arrival: Arrival
    /// Counts each byte of content once.
    let count: ContentCount
    /// The method as received, for the metrics.
    private let method: RouteMetrics.MethodName
    /// The origin of the page that sent the request, if other origins may read the response.
    private let origin: String?
    /// The status of the final response; 0 until it is sent.
    private var status = 0

    /// The client's fields for an attempt that this request causes.
    var completing: HTTPFields {
        guard !head.granted.isEmpty else { return head.fields }
        let policy = route.settings.fields
        return head.fields.filter { !policy.isGrantedCredential($0.name, head.granted) }
            + replacedCredentials
    }

    init(
        _ head: RequestHead,
        of exchange: any Exchange,
        _ context: ExchangeContext,
        at gateway: Gateway,
        route: Route,
        _ configuration: Deliveries.Configuration,
        _ asked: ClassifiedRequest
    ) {
        self.gateway = gateway
        self.exchange = exchange
        self.context = context
        client = ClientName(owner: context.owner, address: context.remoteAddress)
        method = RouteMetrics.MethodName(asked.method)
        arrival = Arrival(of: head, context)
        count = ContentCount(in: route.counts.content)
        self.head = head
        self.route = route
        journal = gateway.deliveries.journal.correlated(asked.correlation)
        inUseTimeout = configuration.settings.inUseTimeout
        interimRate = configuration.settings.interim
        responses = gateway.responses(to: head, asked.dialect, on: route)
        isOrdinary = asked.request.isOrdinary
        isUnmarked = asked.isUnmarked
        origin = route.settings.crossOrigin.isOn ? head.fields.value(of: .origin) : nil
        // Until `end`.
        exchange.beforeHead = { self.note(&$0) }
    }

    /// Counts and completes a head that is about to be sent.
    private func note(_ head: inout ResponseHead) {
        guard head.status.kind != .informational else {
            return gateway.metrics.addInterim(head.status.code)
        }
        status = head.status.code
        endContent()
        if route.settings.crossOrigin.isOn {
            route.settings.crossOrigin.mark(&head.fields, for: origin)
        }
    }

    /// Counts the request, which has ended; the exchange must not be used any more.
    func end() {
        exchange.beforeHead = nil
        endContent()
        route.counts.add(method, status: status)
    }

    var request: Request { self }

    func take(_ grant: Grant) {
        self.grant = grant
        var changed = head
        grant.apply(to: &changed)
        replacedCredentials = route.settings.fields.credentialsForAuthorizer(
            in: head.fields,
            changed.granted
        )
        head = changed
        (route, responses) = limited(responses, to: grant.maxSize)
    }

    /// Returns the route and `responses`, limited to `maxSize` if that is smaller than the route's own limit.
    func limited(
        _ responses: any ResponseWording,
        to maxSize: Int64?
    ) -> (Route, any ResponseWording) {
        guard let maxSize, maxSize < route.settings.limits.maxSize else {
            return (route, responses)
        }
        var responses = responses
        responses.limits.maxSize = maxSize
        return (route.changed { $0.limits.maxSize = maxSize }, responses)
    }

    /// Performs the request's operation.
    ///
    /// Work before and after the wait for content has functions of its own. Otherwise its variables in the frames of
    /// waiting functions would cost each request another page of stack.
    func run(_ asked: UploadRequest) {
        guard isAdmitted(asked) else { return }
        switch asked {
        case .creation(let creation):
            if isUntold(creation) {
                takeOrdinaryUpload(isMarked: true)
            } else {
                create(creation)
            }
        case .concatenation(let urls): concatenate(urls)
        case .offsetRetrieval(let id): retrieveOffset(id)
        case .append(let id, let append): self.append(append, to: id)
        case .cancellation(let id): cancel(id)
        case .resourceOptions: exchange.answer(resourceOptions)
        case .status(let id): tellStatus(of: id)
        case .elsewhere: putOff(.otherNode)
        case .options: passOptions()
        case .ordinaryUpload(let isMarked): takeOrdinaryUpload(isMarked: isMarked)
        case .passedUpload(let room, _):
            passThrough(atMost: min(room, maxSize), isUpload: true) { $0 }
        case .passThrough: passThrough(atMost: maxSize) { $0 }
        case .refused(let refusal): refuse(refusal)
        }
    }

    private var maxSize: Int64 { route.settings.limits.maxSize }

    // MARK: Uploads

    /// How long to wait for another request that may be delivering the upload, because the response needs its result.
    ///
    /// A tus client retries after 423 (Locked), but starts a new upload if a proxy's timeout expires first.
    var deliveryTimeout: Duration {
        guard !dialect.knowsLocked else { return inUseTimeout }
        let upstream = route.settings.upstream
        let most = upstream.connectTimeout + upstream.stallTimeout + upstream.responseTimeout
        return max(inUseTimeout, most)
    }

    /// Locks an upload and calls `body` with an operation on it; otherwise sends a refusal.
    ///
    /// If the upload is missing, expired or another client's, calls `otherwise` or, if `otherwise` is nil, refuses with
    /// 404. `patience` limits the wait for another request that is using the upload.
    func withUpload(
        _ id: UploadID,
        patience: Duration,
        otherwise: (() -> Void)? = nil,
        _ body: (UploadOperation) throws(SpoolError) -> Void
    ) {
        let place = waitingPlace
        func refuseUnknown() { if let otherwise { otherwise() } else { refuse(.unknownUpload) } }
        do throws(SpoolError) {
            let found = try gateway.spool.lock(
                id,
                until: limit(patience, place),
                admits: isOurs,
                requestRelease: exchange.interrupt
            )
            place.giveBack()
            guard let upload = found else { return refuseUnknown() }
            defer { upload.unlock() }
            switch upload.state.lifetime {
            case .sinceResponse
            where route.settings.isResponseOld(
                since: upload.lastActivity,
                at: gateway.clock.confirmed
            ):
                try upload.remove()
                log.responseExpired(id)
                return refuseUnknown()
            case .sinceActivity where remainingAge(of: upload) <= 0:
                try upload.remove(durably: true)
                gateway.deliveries.journal.of(upload.creation).expired(upload)
                return refuseUnknown()
            case .sinceResponse, .sinceActivity, .none: break
            }
            try body(UploadOperation(self, upload))
        } catch {
            guard case .busy = error else { return refuse(error, upload: id) }
            if let refusal = place.refusal { noteTurnedAway(refusal) }
            let isLook = head.method == .head || head.method == .get
            if isLook || dialect.knowsLocked,
                case .refuse(let refusal) = UploadState.inUse.decideRetrieval(dialect)
            {
                return refuse(refusal)
            }
            breakOff(.uploadInUse)
        }
    }

    /// Returns a brief limit, extended up to `patience` while the client is connected and a waiting place is free.
    private func limit(_ patience: Duration, _ place: WaitingPlace) -> WaitLimit {
        let end = Deadline.after(patience)
        return WaitLimit(.after(min(patience, WaitingPlace.briefWait))) { [exchange] in
            guard !end.hasPassed, !exchange.isPeerGone, place.take() else { return nil }
            return min(end, .after(WaitingPlace.briefWait))
        }
    }

    /// How many more seconds the upload is kept without activity.
    func remainingAge(of upload: Upload) -> Int64 {
        let idle = gateway.clock.confirmed.seconds - upload.lastActivity.seconds
        return route.settings.limits.maxAge - max(0, idle)
    }

    func isOurs(_ creation: UploadCreation) -> Bool {
        creation.route.hasSameBytes(as: route.name) && creation.owner == context.owner
    }

    /// The URI of the upload resource with this path (draft-12 §4.2.2).
    func location(_ path: String) -> String {
        if let origin = context.origin { return origin + path }
        // A path that begins with two slashes would be parsed as a host (RFC 3986 §4.2).
        return path.beginsWithBytes(of: "//") ? "/." + path : path
    }
}
