// One request on its way through the gateway: what it needs in one place, the switch over what it
// asks for, and the answers every kind of request can get.

import Delivery
import Exchange
import HTTPTypes
import Journal
import Posix
import Settings
import Spool
import TextFormats
import UploadProtocol
import Upstream

/// One request and everything it needs, held by reference: thousands wait at a time, each with frames that
/// would hold copies of it.
///
/// Lives on one thread.
final class Request {
    let gateway: Gateway
    let exchange: any Exchange
    /// What the web server says of it.
    let context: ExchangeContext
    let content: RequestContent
    /// Whose request it is.
    let client: ClientName
    var head: RequestHead
    var route: Route
    var journal: Journal
    /// How long to wait for another request on the same upload where the answer must not keep the client
    /// waiting.
    let inUseTimeout: Duration
    let interimRate: InterimRate
    var responses: any ResponseWording
    /// Whether its client did not ask for the protocol's fields.
    let isOrdinary: Bool
    /// Whether nothing in it tells a protocol: then it speaks that of the upload it is on.
    let isUnmarked: Bool
    /// Its place among the requests at work; nil where it has none and is turned away.
    var visit: Visit?
    /// What the authorizer lets this request's upload have.
    var grant = Grant()

    var log: Log { journal.log }
    var dialect: Dialect { responses.dialect }
    /// Whether the client is told progress where it can hear it: not that of a creation without content
    /// (`Dialect.allowsInterim(toCreationOf:)`).
    var tellsProgress = true

    /// Begins with a request as it came, without a place.
    init(
        _ head: RequestHead,
        of exchange: any Exchange,
        _ context: ExchangeContext,
        at gateway: Gateway,
        client: ClientName,
        route: Route,
        journal: Journal,
        settings: Settings,
        responses: any ResponseWording,
        isOrdinary: Bool,
        isUnmarked: Bool
    ) {
        self.gateway = gateway
        self.exchange = exchange
        self.context = context
        content = RequestContent(exchange, head, context)
        self.client = client
        self.head = head
        self.route = route
        self.journal = journal
        inUseTimeout = settings.inUseTimeout
        interimRate = settings.interim
        self.responses = responses
        self.isOrdinary = isOrdinary
        self.isUnmarked = isUnmarked
    }

    /// Another one that is the same.
    init(_ other: Request) {
        gateway = other.gateway
        exchange = other.exchange
        context = other.context
        content = other.content
        client = other.client
        head = other.head
        route = other.route
        journal = other.journal
        inUseTimeout = other.inUseTimeout
        interimRate = other.interimRate
        responses = other.responses
        isOrdinary = other.isOrdinary
        isUnmarked = other.isUnmarked
        visit = other.visit
        grant = other.grant
        tellsProgress = other.tellsProgress
    }

    /// How this request's client can hear of progress.
    var progressReport: ProgressReport? {
        tellsProgress ? ProgressReport(to: exchange, context, responses) : nil
    }

    /// Does what the request asks for.
    ///
    /// What is over before content is awaited, or comes after it, is in functions of their own here and in
    /// those called from here: frames of the wait that held what they need would cost each waiting request a
    /// page of its stack.
    func run(_ asked: UploadRequest) {
        guard let request = admitted(asked) else { return }
        switch asked {
        case .creation(let creation):
            if isUntold(creation) {
                request.takeOrdinaryUpload(isMarked: true)
            } else {
                request.create(creation)
            }
        case .concatenation(let urls): request.concatenate(urls)
        case .offsetRetrieval(let id): retrieveOffset(id)
        case .append(let id, let append): self.append(append, to: id)
        case .cancellation(let id): cancel(id)
        case .resourceOptions: exchange.answer(resourceOptions)
        case .status(let id): tellStatus(of: id)
        case .elsewhere: putOff(.otherNode)
        case .options: passOptions()
        case .ordinaryUpload(let isMarked): request.takeOrdinaryUpload(isMarked: isMarked)
        case .passedUpload(let room, _):
            request.passThrough(atMost: min(room, request.maxSize), isUpload: true) { $0 }
        case .passThrough: passThrough(atMost: maxSize) { $0 }
        case .refused(let refusal): refuse(refusal)
        }
    }

    /// Most bytes of content that it may have.
    private var maxSize: Int64 { route.settings.limits.maxSize }

    // MARK: Answers

    /// Refuses a request; `offset` must be durable.
    @inline(never)
    func refuse(_ refusal: Refusal, offset: Int64? = nil) {
        log.refused(refusal, target: head.target)
        journal.metrics.refusals[refusal.code].add()
        let told = isOrdinary ? refusal.ofOrdinaryRequest : refusal
        exchange.answer(responses.refused(told, offset: offset))
    }

    /// Refuses because the spool failed, after writing a log line; breaks off where the upload is there
    /// and waiting helps.
    @inline(never)
    func refuse(_ error: SpoolError, upload: UploadID, exists: Bool = true) {
        note(error, upload: upload)
        if exists { putOff(error.refusal) } else { refuse(error.refusal) }
    }

    /// Writes a log line of what failed in the spool, or what a bound kept out of it.
    func note(_ error: SpoolError, upload: UploadID?) {
        if case .tooMany(_, .ofClient) = error {
            noteTurnedAway(error.refusal)
        } else {
            log.spoolFailed(error, upload: upload)
        }
    }

    /// Ends a request whose client is gone, or whose content broke off.
    func giveUp(_ reason: String) {
        log.clientGone(route: route.name, target: head.target, reason: reason)
        exchange.abort()
    }

    // MARK: Finding an upload

    /// How long to wait for another request whose delivery may be under way: the answer is its final
    /// response.
    ///
    /// A client of tus knows "locked" and comes back; it must hear that before a proxy on its way gives up, or it
    /// begins anew.
    var deliveryTimeout: Duration {
        guard !dialect.knowsLocked else { return inUseTimeout }
        let upstream = route.settings.upstream
        let most = upstream.connectTimeout + upstream.stallTimeout + upstream.responseTimeout
        return max(inUseTimeout, most)
    }

    /// Calls `body` with the upload held, or answers the request itself: 404 for an upload that does not
    /// exist, expired, or is not this client's, unless there is an `otherwise`; `patience` is for another
    /// request on it.
    func withUpload(
        _ id: UploadID,
        patience: Duration,
        otherwise: (() -> Void)? = nil,
        _ body: (Upload) throws(SpoolError) -> Void
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
                on(upload).journal.expired(upload)
                return refuseUnknown()
            case .sinceResponse, .sinceActivity, .none: break
            }
            try body(upload)
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

    /// How long to wait for another request on the same upload: briefly, and for as long as `patience`
    /// with a place among those that wait, if the client is there.
    private func limit(_ patience: Duration, _ place: WaitingPlace) -> WaitLimit {
        let end = Deadline.after(patience)
        return WaitLimit(.after(min(patience, WaitingPlace.briefWait))) { [exchange] in
            guard !end.hasPassed, !exchange.isPeerGone, place.take() else { return nil }
            return min(end, .after(WaitingPlace.briefWait))
        }
    }

    /// Seconds the upload will still be kept without activity.
    func remainingAge(of upload: Upload) -> Int64 {
        let idle = gateway.clock.confirmed.seconds - upload.lastActivity.seconds
        return route.settings.limits.maxAge - max(0, idle)
    }

    /// Whether the client may use an upload.
    func isOurs(_ creation: UploadCreation) -> Bool {
        creation.route.hasSameBytes(as: route.name) && creation.owner == context.owner
    }

    /// The upload resource's URI as the client must use it (draft-12 §4.2.2).
    func location(_ path: String) -> String {
        if let origin = context.origin { return origin + path }
        // What follows two slashes would be taken for a host (RFC 3986 §4.2).
        return path.beginsWithBytes(of: "//") ? "/." + path : path
    }
}

extension SpoolError {
    /// What a client is told.
    var refusal: Refusal {
        switch self {
        case .full, .fewFiles, .noSpace, .overQuota: .spoolFull
        case .tooMany(_, .total): .tooManyUploads
        case .tooMany(_, .ofClient): .clientHasUploads
        case .exhausted: .noDescriptor
        case .busy: .uploadInUse
        case .corrupt: .uploadLost
        case .disk, .newer, .contradiction, .unusable, .bootUnknown: .spoolFailed
        }
    }
}
