// One request on its way through the gateway: what it needs in one place, the switch over what it
// asks for, and the answers every kind of request can get.

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

/// One request and everything it needs, held by reference: thousands wait at a time, each with frames that
/// would hold copies of it.
///
/// Lives on one thread. It stays as it is from its admission on; what an operation on an upload needs beside it is in
/// `UploadOperation`.
final class Request: Answering {
    let gateway: Gateway
    let exchange: RequestExchange
    /// What the web server says of it.
    let context: ExchangeContext
    /// Whose request it is.
    var client: ClientName { exchange.client }
    /// As it came, with the fields that the authorizer has set.
    private(set) var head: RequestHead
    /// Its route, with the size that the authorizer allows.
    private(set) var route: Route
    let journal: Journal
    /// How long to wait for another request on the same upload where the answer must not keep the client
    /// waiting.
    let inUseTimeout: Duration
    let interimRate: InterimRate
    private(set) var responses: any ResponseWording
    /// Whether its client did not ask for the protocol's fields.
    let isOrdinary: Bool
    /// Whether nothing in it tells a protocol: then it speaks that of the upload it is on.
    let isUnmarked: Bool
    /// Its place among the requests at work; nil where it has none and is turned away.
    var ticket: AdmissionTicket?
    /// What the authorizer lets this request's upload have.
    private(set) var grant = Grant()

    /// Begins with a request as it came, without a place.
    init(
        _ head: RequestHead,
        of exchange: RequestExchange,
        _ context: ExchangeContext,
        at gateway: Gateway,
        route: Route,
        _ configuration: Deliveries.Configuration,
        _ asked: ClassifiedRequest
    ) {
        self.gateway = gateway
        self.exchange = exchange
        self.context = context
        self.head = head
        self.route = route
        journal = gateway.deliveries.journal.correlated(asked.correlation)
        inUseTimeout = configuration.settings.inUseTimeout
        interimRate = configuration.settings.interim
        responses = gateway.responses(to: head, asked.dialect, on: route)
        isOrdinary = asked.request.isOrdinary
        isUnmarked = asked.isUnmarked
    }

    var request: Request { self }

    /// Takes what the authorizer grants.
    func take(_ grant: Grant) {
        self.grant = grant
        head.fields = grant.applied(to: head.fields, route.settings.fields)
        (route, responses) = limited(responses, to: grant.maxSize)
    }

    /// Its route and these words with a size of an upload's own.
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

    /// Does what the request asks for.
    ///
    /// What is over before content is awaited, or comes after it, is in functions of their own here and in
    /// those called from here: frames of the wait that held what they need would cost each waiting request a
    /// page of its stack.
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

    /// Most bytes of content that it may have.
    private var maxSize: Int64 { route.settings.limits.maxSize }

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

    /// Calls `body` with an operation on an upload that is held, or answers the request itself: 404 for an upload
    /// that does not exist, expired, or is not this client's, unless there is an `otherwise`; `patience` is for another
    /// request on it.
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
