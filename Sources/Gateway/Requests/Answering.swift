// The responses that any request can receive: a refusal, or a closed connection.
//
// A client that resumes does so when its connection closes, and takes any complete response for the upload's final
// response (URLSession). Therefore no response to a request on an existing upload only means "later".

import SpoolgateDelivery
import SpoolgateExchange
import SpoolgateJournal
import SpoolgatePosix
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateUploadProtocol

protocol Answering: AnyObject {
    var request: Request { get }
    var journal: Journal { get }
    var responses: any ResponseWording { get }
}

extension Answering {
    var gateway: Gateway { request.gateway }
    var exchange: any Exchange { request.exchange }
    var log: Log { journal.log }
    var dialect: Dialect { responses.dialect }

    /// Sends a refusal that states the upload's offset if `offset` is not nil; `offset` must be durable.
    @inline(never)
    func refuse(_ refusal: Refusal, offset: Int64? = nil) {
        log.refused(refusal, target: request.head.target)
        journal.metrics.refusals[refusal.code].add()
        let told = request.isOrdinary ? refusal.ofOrdinaryRequest : refusal
        exchange.answer(responses.refused(told, offset: offset))
    }

    /// Logs a failure of the spool and refuses the request.
    ///
    /// If `exists` is true and a retry may succeed, closes the connection instead.
    @inline(never)
    func refuse(_ error: SpoolError, upload: UploadID, exists: Bool = true) {
        note(error, upload: upload)
        if exists { putOff(error.refusal) } else { refuse(error.refusal) }
    }

    /// Logs a failure of the spool, or a limit that an upload would exceed.
    func note(_ error: SpoolError, upload: UploadID?) {
        if case .tooMany(_, .ofClient) = error {
            noteTurnedAway(error.refusal)
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
    func putOff(_ refusal: Refusal) {
        if refusal.isOnlyLater { breakOff(refusal) } else { refuse(refusal) }
    }

    /// Closes the connection so that the client retries; `refusal` is only logged and counted.
    func breakOff(_ refusal: Refusal) {
        log.brokenOff(refusal, target: request.head.target)
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
