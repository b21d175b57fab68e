// One attempt to deliver an upload: one regular request, what the upstream answers, and what becomes of the upload.
//
// What an outcome means is AttemptFate's to say; the response on its way is in FinalResponse. Invariant: an upload is in
// `active` exactly while its attempt runs.

import HTTPTypes
import Journal
import Posix
import Spool
import UploadProtocol
import Upstream

/// One attempt to deliver an upload, and what is known of the response.
///
/// One thread.
final class DeliveryAttempt {
    let upload: Upload
    let digests: UploadDigests
    let listener: ResponseListener
    let delivery: Delivery
    /// Whether the upstream may be sent it again.
    let isRepeatable: Bool
    /// Whether the client was told 202.
    let isAccepted: Bool
    /// Given back when the head is there; nil: it needs none.
    let slot: DeliverySlot?
    /// The final response's head as it is told, once it came.
    var head: ResponseHead?
    var contentLength: Int64?
    var content: [UInt8] = []
    var isStreaming = false
    /// What the attempt came to by the response, and what becomes of the upload.
    var result = AttemptResult.taken
    var fate = AttemptFate.delivered
    /// The challenges of a 401.
    var challenges: [String] = []
    /// Seconds the upstream asked to wait, where it did.
    var retryAfter: Int?
    var isStored = false
    /// Why the final response could not be stored.
    var spoolError: SpoolError?
    /// Whether the client was told the final response.
    var hasBegun = false
    /// Whether the client is told its content as well.
    var relaysContent = true

    var route: Route { delivery.route }
    var journal: Journal { delivery.journal }
    var deliveries: Deliveries { delivery.deliveries }
    var log: Log { delivery.journal.log }

    /// An attempt to deliver a whole upload with these digests, for a listener.
    init(
        _ upload: Upload,
        _ digests: UploadDigests,
        to listener: ResponseListener,
        by delivery: Delivery,
        in slot: DeliverySlot?
    ) {
        self.upload = upload
        self.digests = digests
        self.listener = listener
        self.delivery = delivery
        self.slot = slot
        isRepeatable = upload.isRecorded && delivery.isRepeatable(upload)
        isAccepted = delivery.route.hasAccepted(nextAttempt: upload.nextAttempt)
    }

    /// Makes it; results and errors are those of `Delivery.deliver`.
    func run() throws(SpoolError) -> Refusal? {
        let form: UploadForm
        do throws(FormFailure) {
            form = try UploadForm(
                of: upload,
                on: route,
                completing: listener.completing,
                digests,
                time: deliveries.clock.now,
                onProgress: onProgress
            )
        } catch {
            journal.notSent(on: route.counts, of: upload.creation.client, reason: error.reason)
            return try postpone(error.reason, telling: error.refusal(isKept: upload.isRecorded))
        }
        let outcome = try send(form)
        return upload.isRecorded ? try end(outcome, form) : endUnrecorded(outcome, form)
    }

    /// What becomes of an upload without a record: nothing of it is kept.
    private func endUnrecorded(_ outcome: AttemptOutcome, _ form: UploadForm) -> Refusal? {
        form.end(status: status)
        guard let reason = outcome.reason,
            let refusal = outcome.refusal(isRepeatable: false, isKept: false)
        else {
            journal.delivered(upload, status: status)
            return nil
        }
        if case .unheard = outcome {
            // The upstream has answered; only its client does not hear all of it.
            journal.delivered(upload, status: status)
            let target = upload.creation.head.target
            log.clientGone(route: route.name, target: target, reason: reason)
            breakOff()
            return nil
        }
        if outcome.isUnsent { form.takeBack() }
        journal.failed(upload, reason: reason)
        guard hasBegun else { return refusal }
        breakOff()
        return nil
    }

    /// What becomes of an upload with a record.
    private func end(_ outcome: AttemptOutcome, _ form: UploadForm) throws(SpoolError) -> Refusal? {
        if outcome == .answered { finish() }
        form.end(status: isStored ? status : nil)
        if let error = spoolError {
            // The upstream has taken the upload: its client must hear that, stored or not.
            guard hasBegun else { throw error }
            log.spoolFailed(error, upload: upload.creation.id)
        }
        guard let reason = outcome.reason,
            let refusal = outcome.refusal(isRepeatable: isRepeatable, isKept: true)
        else {
            if fate.tellsResponse {
                noteFinalResponse()
                return nil
            }
            return try postpone(
                "the upstream answered \(status)",
                asked: retryAfter,
                telling: self.refusal,
                lacksCredentials: fate == .deferredForClient
            )
        }
        // Over the cap the final response was stored before its content was relayed; what the client has of
        // that content is not the whole.
        if isStored || hasBegun {
            noteFinalResponse()
            breakOff()
            return nil
        }
        let result: AttemptResult = outcome.isUnsent ? .unsent : .unanswered
        if AttemptFate(after: result, isRepeatable: isRepeatable, .gone) == .deferred {
            return try postpone(reason, asked: outcome.retryAfter, telling: refusal)
        }
        try upload.hold(.indeterminate, reason: reason)
        deliveries.holdSizes.add(upload)
        journal.indeterminate(upload, reason: reason)
        return refusal
    }

    private func postpone(
        _ reason: String,
        asked: Int? = nil,
        telling refusal: Refusal,
        lacksCredentials: Bool = false
    ) throws(SpoolError) -> Refusal {
        try delivery.postpone(
            upload,
            reason: reason,
            listener,
            asked: asked,
            telling: refusal,
            lacksCredentials: lacksCredentials
        )
    }

    private func noteFinalResponse() {
        guard let cause = upload.holdCause else {
            return journal.delivered(upload, status: status)
        }
        deliveries.holdSizes.add(upload)
        let reason = upload.reason ?? ""
        if cause == .failed {
            journal.failed(upload, status: status, reason: reason)
        } else {
            journal.indeterminate(upload, reason: reason)
        }
    }

    // MARK: Sending

    /// The most redirects that one delivery follows.
    private static let mostRedirects = 2

    /// Sends the request, and once more for each redirect within the upstream; counts the last.
    private func send(_ form: UploadForm) throws(SpoolError) -> AttemptOutcome {
        let watch = Stopwatch()
        let outcome =
            upload.isRecorded
            ? try sendRecorded(form.request) : route.upstream.attempt(form.request, sink: self)
        journal.attempted(
            on: route.counts,
            outcome,
            of: upload.creation.client,
            status: status,
            isPutOff: !fate.tellsResponse,
            nanoseconds: watch.nanoseconds
        )
        return outcome
    }

    private func sendRecorded(_ first: UpstreamRequest) throws(SpoolError) -> AttemptOutcome {
        journal.metrics.delivering.add()
        defer { journal.metrics.delivering.add(-1) }
        var request = first
        var redirects = 0
        try upload.beginAttempt(isRepeatable: isRepeatable)
        while true {
            journal.delivering(upload)
            // One too many is for the response, as one that leads elsewhere.
            request.interceptsRedirects = redirects < Self.mostRedirects
            let outcome = route.upstream.attempt(request, sink: self)
            guard case .redirected(let target) = outcome else { return outcome }
            request.target = target
            redirects += 1
            try upload.beginNextAttempt()
        }
    }
}
