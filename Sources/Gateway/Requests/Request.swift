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
final class Request: Responding {
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
    /// The request's content as it arrives.
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
        at gateway: Gateway,
        route: Route,
        _ configuration: Deliveries.Configuration,
        _ classified: ClassifiedRequest
    ) {
        self.gateway = gateway
        self.exchange = exchange
        context = exchange.context
        client = ClientName(owner: context.owner, address: context.remoteAddress)
        method = RouteMetrics.MethodName(classified.method)
        arrival = Arrival(of: head, context)
        count = ContentCount(in: route.counts.content)
        self.head = head
        self.route = route
        journal = gateway.deliveries.journal.correlated(classified.correlation)
        inUseTimeout = configuration.settings.inUseTimeout
        interimRate = configuration.settings.interim
        responses = gateway.responses(to: head, classified.dialect, on: route)
        isOrdinary = classified.request.isOrdinary
        isUnmarked = classified.isUnmarked
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
    func run(_ classified: UploadRequest) {
        guard isAdmitted(classified) else { return }
        switch classified {
        case .creation(let creation):
            if isUnreported(creation) {
                takeOrdinaryUpload(isMarked: true)
            } else {
                create(creation)
            }
        case .concatenation(let urls): concatenate(urls)
        case .offsetRetrieval(let id): retrieveOffset(id)
        case .append(let id, let append): self.append(append, to: id)
        case .cancellation(let id): cancel(id)
        case .resourceOptions: exchange.respond(resourceOptions)
        case .status(let id): reportStatus(of: id)
        case .elsewhere: respondLater(.otherNode)
        case .options: passOptions()
        case .ordinaryUpload(let isMarked): takeOrdinaryUpload(isMarked: isMarked)
        case .passedUpload(let room, _):
            passThrough(upTo: min(room, maxSize), isUpload: true) { $0 }
        case .passThrough: passThrough(upTo: maxSize) { $0 }
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
        let maximum = upstream.connectTimeout + upstream.stallTimeout + upstream.responseTimeout
        return max(inUseTimeout, maximum)
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
            if let refusal = place.refusal { noteRejected(refusal) }
            let isLook = head.method == .head || head.method == .get
            if isLook || dialect.knowsLocked,
                case .refuse(let refusal) = UploadState.inUse.decideRetrieval(dialect)
            {
                return refuse(refusal)
            }
            abort(.uploadInUse)
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

// MARK: Content

// The content of a request as it arrives.
//
// Invariants: each byte is counted once, here; if the web server leaves 100 (Continue) to the gateway (RFC 9110
// §10.1.1), a waiting client receives it before its content is read, and never if no content is read.

/// What a request knows of its content apart from the bytes.
struct Arrival {
    /// The maximum size in bytes of content that the web server never offers to write into a file.
    private static let maximumSmallSize: Int64 = 256 << 10

    fileprivate var isContinueAwaited: Bool
    /// Whether the web server may offer to write the content into a file, because it may be large.
    fileprivate let isLarge: Bool
    fileprivate var isLaneTaken = false
    /// The upload into which the content is received, set before the content is read; nil if the client does not know
    /// an upload resource.
    var upload: UploadID?
    /// The entry in the list of slow requests while content is received; otherwise nil.
    fileprivate var entry: SlowContent.Entry?

    init(of head: RequestHead, _ context: ExchangeContext) {
        let length = head.contentLength
        isContinueAwaited =
            context.interimStatuses.contains(100) && length != .known(0) && head.expectsContinue
        isLarge = length.count ?? .max > Self.maximumSmallSize
    }
}

extension Request {
    /// Waits for content, as `Exchange.receive(into:)`.
    func receive(into buffer: ContentBuffer) throws(ContentError) -> Bool {
        beginContent()
        let before = buffer.count
        // Also counts bytes that arrive together with an early end.
        defer { count.add(buffer.count - before) }
        let hasMore = try exchange.receive(into: buffer)
        if !hasMore { endContent() }
        return hasMore
    }

    /// Waits for content, and returns the lane if the web server offers to write the content into a file.
    ///
    /// Returns nil without waiting if the content is too small for an offer.
    func offeredLane() throws(ContentError) -> (any ContentLane)? {
        guard arrival.isLarge, let lane = exchange.lane else { return nil }
        beginContent()
        return try lane.isOffered() ? lane : nil
    }

    func noteLaneTaken() { arrival.isLaneTaken = true }

    /// Counts bytes written by the web server; `total` is their number so far.
    func noteWritten(_ total: Int64) {
        let new = Int(total) - count.writtenByNginx
        if new > 0 { count.add(new, byNginx: true) }
    }

    /// How the content reached the spool; call it after the content's end.
    ///
    /// `obstacle`, the reason to decline the web server's offer, is returned only after an offer.
    func contentPath(_ obstacle: ContentPath?) -> ContentPath {
        if arrival.isLaneTaken { return .used }
        guard arrival.isLarge else { return .small }
        guard exchange.lane?.wasOffered == true else { return .notOffered }
        return obstacle ?? .full
    }

    private func beginContent() {
        if arrival.isContinueAwaited { exchange.send(interim: ResponseHead(status: .continue)) }
        arrival.isContinueAwaited = false
        guard arrival.entry == nil else { return }
        arrival.entry = gateway.slow.begin(
            client,
            upload: arrival.upload,
            count,
            exchange.interrupt
        )
    }

    /// The request is no longer a slow one that could be asked to end.
    func endContent() {
        if let entry = arrival.entry { gateway.slow.end(entry) }
        arrival.entry = nil
    }
}

extension RequestHead {
    var expectsContinue: Bool { fields.value(of: .expect)?.lowercased() == "100-continue" }
}

// MARK: Refusals

// The responses that any request can receive: a refusal, or a closed connection.
//
// A client that resumes does so when its connection closes, and takes any complete response for the upload's final
// response (URLSession). Therefore no response to a request on an existing upload only means "later".

protocol Responding: AnyObject {
    var request: Request { get }
    var journal: Journal { get }
    var responses: any ResponseWording { get }
}

extension Responding {
    var gateway: Gateway { request.gateway }
    var exchange: any Exchange { request.exchange }
    var log: Log { journal.log }
    var dialect: Dialect { responses.dialect }

    /// Sends a refusal that states the upload's offset if `offset` is not nil; `offset` must be durable.
    @inline(never)
    func refuse(_ refusal: Refusal, offset: Int64? = nil) {
        log.refused(refusal, target: request.head.target)
        journal.metrics.refusals[refusal.code].add()
        let shown = request.isOrdinary ? refusal.ofOrdinaryRequest : refusal
        exchange.respond(responses.refused(shown, offset: offset))
    }

    /// Logs a failure of the spool and refuses the request.
    ///
    /// If `exists` is true and a retry may succeed, closes the connection instead.
    @inline(never)
    func refuse(_ error: SpoolError, upload: UploadID, exists: Bool = true) {
        note(error, upload: upload)
        if exists { respondLater(error.refusal) } else { refuse(error.refusal) }
    }

    /// Logs a failure of the spool, or a limit that an upload would exceed.
    func note(_ error: SpoolError, upload: UploadID?) {
        if case .tooMany(_, .ofClient) = error {
            noteRejected(error.refusal)
        } else {
            journal.spoolFailed(error, upload: upload)
        }
    }

    /// Logs that the client disconnected or its content ended early, and closes the connection without a response.
    func giveUp(_ reason: String) {
        log.clientGone(route: request.route.name, target: request.head.target, reason: reason)
        exchange.abort()
    }

    /// Refuses a request on an existing upload, or closes the connection if the client only needs to retry later.
    func respondLater(_ refusal: Refusal) {
        if refusal.isOnlyLater { abort(refusal) } else { refuse(refusal) }
    }

    /// Closes the connection so that the client retries; `refusal` is only logged and counted.
    func abort(_ refusal: Refusal) {
        log.requestAborted(refusal, target: request.head.target)
        journal.metrics.refusals[refusal.code].add()
        exchange.abort()
    }
}

extension SpoolError {
    var refusal: Refusal {
        switch self {
        case .full, .fewFiles, .noSpace, .overQuota: .spoolFull
        case .tooMany(_, .total): .tooManyUploads
        case .tooMany(_, .ofClient): .clientHasUploads
        case .exhausted: .noDescriptor
        case .busy: .uploadInUse
        case .corrupt: .uploadLost
        case .disk, .newer, .contradiction, .unusable, .unrecovered, .otherBoot,
            .bootUnknown:
            .spoolFailed
        }
    }
}
