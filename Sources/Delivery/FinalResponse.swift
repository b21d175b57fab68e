// The upstream's final response on its way to the client: stored first, then relayed, also where storing failed.
//
// Up to the cap the whole response is stored before its first byte leaves; beyond it the head is
// stored, and the content streams through, as all of it does for an upload without a record. Invariant: nothing of
// a response that is no final response is stored or relayed.

import Exchange
import HTTPTypes
package import Journal
import Settings
import Spool
package import UploadProtocol
import Upstream

extension DeliveryAttempt: ResponseSink {
    /// The upstream's status; 0 before its head came.
    var status: Int { head?.status.code ?? 0 }

    func onProgress() {
        if !hasBegun { listener.heartbeat?.beat(upload, failingInto: log) }
    }

    func receive(interim head: ResponseHead) { listener.exchange?.send(interim: head) }

    func receive(head: ResponseHead, contentLength: Int64?) throws {
        slot?.giveBack()
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
        let client = listener.knowledge(isAccepted: isAccepted)
        let fate = AttemptFate(after: result, isRepeatable: isRepeatable, client)
        guard fate == .heldWithResponse, deliveries.isHoldFull(route) else { return fate }
        deliveries.noteHoldFull(route)
        return .delivered
    }

    func receive(content part: RawSpan) throws {
        guard fate.tellsResponse else { return }
        if !isStreaming {
            if Int64(content.count + part.byteCount) <= route.settings.maxResponseSize {
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
