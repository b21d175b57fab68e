// The answers that every kind of request can get: a refusal, or a connection that breaks.
//
// Clients that resume do so when their connection breaks; a complete answer they take for the upload's
// (URLSession), whatever its status. So a request on an upload that exists is never answered with what
// only means "later".

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
