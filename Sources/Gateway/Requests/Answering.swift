// The answers that every kind of request can get, and what a request gets that cannot be served now: an answer that
// says so, or a connection that breaks.
//
// Clients that resume do so when their connection breaks; a complete answer they take for the upload's
// (URLSession), whatever its status. So a request on an upload that exists is never answered with what
// only means "later". Invariant: an upload is as it was after its request was turned away.

import SpoolgateDelivery
import SpoolgateExchange
import SpoolgateJournal
import SpoolgatePosix
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateUploadProtocol

/// Whoever answers a request: the request itself, or its operation on an upload, in that upload's words and name.
protocol Answering: AnyObject {
    var request: Request { get }
    var journal: Journal { get }
    var responses: any ResponseWording { get }
}

extension Answering {
    var gateway: Gateway { request.gateway }
    var exchange: RequestExchange { request.exchange }
    var log: Log { journal.log }
    var dialect: Dialect { responses.dialect }

    /// Refuses a request; `offset` must be durable.
    @inline(never)
    func refuse(_ refusal: Refusal, offset: Int64? = nil) {
        log.refused(refusal, target: request.head.target)
        journal.metrics.refusals[refusal.code].add()
        let told = request.isOrdinary ? refusal.ofOrdinaryRequest : refusal
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
        log.clientGone(route: request.route.name, target: request.head.target, reason: reason)
        exchange.abort()
    }

    /// Puts a client off whose upload exists: breaks its connection off where a refusal says no more than
    /// "later".
    func putOff(_ refusal: Refusal) {
        if refusal.isOnlyLater { breakOff(refusal) } else { refuse(refusal) }
    }

    /// Breaks the client's connection, so that it comes back.
    func breakOff(_ refusal: Refusal) {
        log.brokenOff(refusal, target: request.head.target)
        journal.metrics.refusals[refusal.code].add()
        exchange.abort()
    }

    /// Tells, once in a while, of a request that a bound turned away.
    func noteTurnedAway(_ refusal: Refusal) {
        guard let bound = refusal.bound,
            let count = gateway.turnedAway.update({ $0.note(bound) })
        else { return }
        gateway.log.turnedAway(bound: bound, client: "\(request.client)", count: count)
    }
}

extension Request {
    /// Turns a request away before anything was done for it.
    func turnAway(_ request: UploadRequest, _ refusal: Refusal) {
        noteTurnedAway(refusal)
        switch request {
        case .append, .offsetRetrieval, .cancellation, .elsewhere: breakOff(refusal)
        case .creation, .concatenation: refuse(refusal)
        case .resourceOptions, .options, .status, .ordinaryUpload, .passedUpload, .passThrough,
            .refused:
            refuse(refusal.ofOrdinaryRequest)
        }
    }

    /// The request's place among those that wait; not taken yet.
    var waitingPlace: WaitingPlace { WaitingPlace(gateway.admission, for: visit) }

    /// The place, taken; nil where there is none and the request was refused.
    func takeWaitingPlace() -> WaitingPlace? {
        let place = waitingPlace
        if place.take() { return place }
        let refusal = place.refusal ?? .tooManyWait
        noteTurnedAway(refusal)
        refuse(refusal)
        return nil
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

extension UploadRequest {
    /// Whether its client speaks no upload protocol, or not with the gateway.
    var isOrdinary: Bool {
        switch self {
        case .ordinaryUpload, .passedUpload, .passThrough, .options: true
        case .creation, .concatenation, .append, .offsetRetrieval, .cancellation,
            .resourceOptions, .status, .elsewhere, .refused:
            false
        }
    }

    /// Whether it asks for no more than a look at an upload, or its removal, and so ends within moments.
    var isShort: Bool {
        switch self {
        case .offsetRetrieval, .cancellation, .resourceOptions, .status, .elsewhere, .refused: true
        case .creation, .concatenation, .append, .options, .ordinaryUpload, .passedUpload,
            .passThrough:
            false
        }
    }
}

extension Refusal {
    /// The setting, or `clients.waiting`, that turned a request away; nil where none did.
    fileprivate var bound: String? {
        switch self {
        case .busy: "threads.maximum"
        case .tooManyWait: "threads.maximum-waiting"
        case .clientBusy: "clients.maximum-concurrent"
        case .clientWaits: "clients.waiting"
        case .clientHasUploads: "clients.maximum-uploads"
        default: nil
        }
    }
}
