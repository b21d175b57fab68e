// Rejection of requests that exceed a limit, and the places of requests that wait.
//
// Invariant: rejecting a request leaves its upload unchanged.

import SpoolgateExchange
import SpoolgateJournal
import SpoolgatePosix
import SpoolgateUploadProtocol

extension Request {
    /// Rejects a request whose operation has not begun.
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

    /// A place among the waiting requests, not taken yet.
    var waitingPlace: WaitingPlace { WaitingPlace(gateway.admission, for: ticket) }

    /// Takes a place among the waiting requests; returns nil if none was free and a refusal was sent.
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
    func noteTurnedAway(_ refusal: Refusal) {
        guard let bound = refusal.bound,
            let count = gateway.turnedAway.update({ $0.note(bound) })
        else { return }
        gateway.log.turnedAway(bound: bound, client: "\(request.client)", count: count)
    }
}

extension UploadRequest {
    /// Whether the client uses no upload protocol, or uses one only with the upstream.
    var isOrdinary: Bool {
        switch self {
        case .ordinaryUpload, .passedUpload, .passThrough, .options: true
        case .creation, .concatenation, .append, .offsetRetrieval, .cancellation,
            .resourceOptions, .status, .elsewhere, .refused:
            false
        }
    }

    /// Whether the request continues an upload, so that its client would take any response for the upload's.
    var isAppend: Bool { if case .append = self { true } else { false } }

    /// Whether the request only reads or removes an upload, so that it ends quickly.
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
    /// The exceeded limit: a setting, `threads.waiting` or `clients.waiting`; nil if the refusal has another reason.
    fileprivate var bound: String? {
        switch self {
        case .busy: "threads.maximum"
        case .tooManyWait: "threads.waiting"
        case .clientBusy: "clients.maximum-concurrent"
        case .clientWaits: "clients.waiting"
        case .clientHasUploads: "clients.maximum-uploads"
        default: nil
        }
    }
}
