// What a request gets that cannot be served now, and what it waits in.
//
// Invariant: an upload is as it was after its request was turned away.

import SpoolgateExchange
import SpoolgateJournal
import SpoolgatePosix
import SpoolgateUploadProtocol

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
    var waitingPlace: WaitingPlace { WaitingPlace(gateway.admission, for: ticket) }

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

extension Answering {
    /// Tells, once in a while, of a request that a bound turned away.
    func noteTurnedAway(_ refusal: Refusal) {
        guard let bound = refusal.bound,
            let count = gateway.turnedAway.update({ $0.note(bound) })
        else { return }
        gateway.log.turnedAway(bound: bound, client: "\(request.client)", count: count)
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
