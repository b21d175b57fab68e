// The upstream's final response on its way to the client: stored first, then relayed.
//
// Up to the cap the whole response is stored before its first byte leaves; beyond it the head is
// stored, and the content streams through, as all of it does for an upload without a record. Invariant: nothing of
// a response that is no final response is stored or relayed.

package import Exchange
package import HTTPTypes
package import Journal
import Settings
import Spool
package import UploadProtocol
import Upstream

/// Who hears the final response of a delivery, and how it is told.
package struct ResponseListener {
    /// The request that waits for it; nil: it is only stored.
    package var exchange: (any Exchange)?
    /// Builds what that request hears.
    let responses: any ResponseWording
    /// The upload resource's URI, where the request is the creation.
    package var location: String?
    /// Tells the client that the wait goes on; nil where it cannot hear that.
    package var heartbeat: Heartbeat?
    /// The fields of the request that completes the upload; nil if none does.
    let completing: HTTPFields?
    /// Whether some client hears, of a final response that is only stored, that there is none yet.
    package var isWitnessed = false
    /// Whether its client knows where the upload is, and comes back when its connection breaks.
    package var isResumable = false
    /// Whether its client has sent the whole upload in this message.
    package var hasSentAll = false
    /// Whether its client did not ask for the protocol's fields.
    private let isOrdinary: Bool

    /// Nobody: the final response is only stored.
    package init(
        _ responses: any ResponseWording,
        completing: HTTPFields?,
        isOrdinary: Bool = false
    ) {
        self.responses = responses
        self.completing = completing
        self.isOrdinary = isOrdinary
    }

    /// The final response as its client is told it.
    func final(_ head: ResponseHead, of upload: Upload) -> FinalHead {
        isOrdinary
            ? .ordinary(head)
            : responses.final(head, offset: upload.state.offset, location: location)
    }

    /// The same where nobody will hear anything.
    var unheard: ResponseListener { ResponseListener(responses, completing: completing) }

    /// Whether the client can still be told something.
    var isThere: Bool { exchange.map { !$0.isPeerGone } ?? isWitnessed }

    /// What the client knows; `isAccepted`: whether it was told 202.
    func knowledge(isAccepted: Bool) -> ClientKnowledge {
        if isAccepted { return .accepted }
        guard let exchange, !exchange.isPeerGone else { return .gone }
        return hasSentAll ? isResumable ? .all : .message : .resource
    }
}

/// Stores the upstream's final response, then relays it, also where storing failed.
package final class FinalResponseRelay: ResponseSink {
    private let upload: Upload
    let digests: UploadDigests
    private let listener: ResponseListener
    private let delivery: Delivery
    /// Whether the client was told 202.
    private let isAccepted: Bool
    private let isRepeatable: Bool
    /// Given back when the head is there.
    private let slot: DeliverySlot?
    private var head: ResponseHead?
    private var contentLength: Int64?
    private var content: [UInt8] = []
    private var isStreaming = false
    /// What the attempt came to by this response, and what becomes of the upload.
    private var result = AttemptResult.taken
    private(set) var fate = AttemptFate.delivered
    /// The challenges of a 401.
    private(set) var challenges: [String] = []
    /// Seconds the upstream asked to wait, where it did.
    private(set) var retryAfter: Int?
    private(set) var isStored = false
    /// Why the final response could not be stored.
    private(set) var spoolError: SpoolError?
    /// Whether the client was told the final response.
    private(set) var hasBegun = false
    /// Whether the client is told its content as well.
    private var relaysContent = true

    /// Relays to `listener` what comes of a delivery of `upload`.
    ///
    /// - Parameters:
    ///   - upload: what is delivered.
    ///   - digests: the upload's, of which the client may want one.
    ///   - listener: who hears of it.
    ///   - delivery: by which rules.
    ///   - isRepeatable: whether the upstream may be sent it again.
    ///   - slot: the delivery's; nil: it needs none.
    init(
        _ upload: Upload,
        _ digests: UploadDigests,
        to listener: ResponseListener,
        of delivery: Delivery,
        isRepeatable: Bool,
        in slot: DeliverySlot?
    ) {
        self.upload = upload
        self.digests = digests
        self.listener = listener
        self.delivery = delivery
        self.isRepeatable = isRepeatable
        self.slot = slot
        isAccepted = delivery.route.hasAccepted(nextAttempt: upload.nextAttempt)
    }

    private var log: Log { delivery.journal.log }
    /// The upstream's status; 0 before its head came.
    var status: Int { head?.status.code ?? 0 }

    func onProgress() {
        if !hasBegun { listener.heartbeat?.beat(upload, failingInto: log) }
    }

    func receive(interim head: ResponseHead) { listener.exchange?.send(interim: head) }

    func receive(head: ResponseHead, contentLength: Int64?) throws {
        slot?.giveBack()
        let route = delivery.route
        route.counts.noteSteering(head.fields, route: route.name, log)
        var told = ResponseHead(
            status: head.status,
            fields: UpstreamFields.relayed(head.fields)
        ).fitting(telling: log, upload: upload.isRecorded ? upload.creation.id : nil)
        digests.plan.tell(digests.values, in: &told)
        self.head = told
        self.contentLength = contentLength
        guard upload.isRecorded else {
            // Nothing of it is stored, so it need not be whole.
            isStreaming = true
            return try begin(contentLength: contentLength)
        }
        result = AttemptResult(
            head.status,
            method: route.method(for: upload.creation.head),
            notProcessed: route.settings.notProcessed
        )
        fate = fateOfUpload
        challenges = head.fields[values: .wwwAuthenticate]
        retryAfter = head.fields[.retryAfter].flatMap { Int($0) }.flatMap { $0 >= 0 ? $0 : nil }
    }

    private var fateOfUpload: AttemptFate {
        let route = delivery.route
        let client = listener.knowledge(isAccepted: isAccepted)
        let fate = AttemptFate(after: result, isRepeatable: isRepeatable, client)
        guard fate == .heldWithResponse, delivery.deliveries.isHoldFull(route) else { return fate }
        delivery.deliveries.noteHoldFull(route)
        return .delivered
    }

    func receive(content part: RawSpan) throws {
        guard fate.tellsResponse else { return }
        if !isStreaming {
            if Int64(content.count + part.byteCount) <= delivery.route.settings.maxResponseSize {
                part.withUnsafeBytes { content.append(contentsOf: $0) }
                return
            }
            isStreaming = true
            store(content: nil)
            try begin(contentLength: contentLength)
        }
        if relaysContent { try listener.exchange?.send(content: part) }
    }

    /// Stores and relays a response that ended.
    func finish() {
        guard !isStreaming, fate.tellsResponse else { return }
        store(content: content)
        // `try?`: the final response is stored, and a client that is gone can come back for it.
        try? begin(contentLength: contentLength ?? Int64(content.count))
    }

    /// What the client hears of a response that is not its final one.
    var refusal: Refusal {
        switch fate {
        case .deferredForClient: .credentialsRefused(challenges)
        case .deferred where result == .redirect: .upstreamRedirects
        case .delivered, .failed, .heldWithResponse, .held, .deferred:
            .upstreamBusy(retryAfter: retryAfter)
        }
    }

    /// Relays the head, and what there is of the content.
    private func begin(contentLength: Int64?) throws(ClientGone) {
        let held = content
        content = []
        guard let head, let exchange = listener.exchange else { return }
        hasBegun = true
        let final = listener.final(head, of: upload)
        relaysContent = final.hasContent
        let isWithContent =
            final.hasContent && (final.head.status.hasContent || !upload.isRecorded)
        try exchange.send(head: final.head, contentLength: isWithContent ? contentLength : nil)
        if final.hasContent, !held.isEmpty { try exchange.send(content: held.span.bytes) }
    }

    /// Ends a response whose content did not come whole.
    func breakOff() { listener.exchange?.abort() }

    private func store(content: [UInt8]?) {
        guard let head else { return }
        let response = StoredResponse(head: head, content: content)
        do throws(SpoolError) {
            let reason = "the upstream answered \(head.status.code)"
            switch fate {
            case .failed: try upload.hold(.failed, reason: reason, response: response)
            case .heldWithResponse:
                try upload.hold(.indeterminate, reason: reason, response: response)
            case .delivered, .held, .deferred, .deferredForClient:
                try upload.finish(with: response)
            }
            isStored = true
        } catch {
            spoolError = error
        }
    }
}

extension HTTPField.Name {
    fileprivate static let retryAfter = HTTPField.Name.made("retry-after")
}

extension ResponseHead {
    /// The head as it can be relayed, with a log line where that is not all of it.
    package func fitting(telling log: Log, upload: UploadID? = nil) -> ResponseHead {
        guard fieldBytes > Self.mostFieldBytes else { return self }
        log.headCut(upload: upload, bytes: fieldBytes)
        return fitting
    }
}
