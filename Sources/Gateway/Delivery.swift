// The delivery of one upload: one regular request to the upstream, the verdict stored, then relayed.
//
// The client may be gone by then; the verdict is stored for it all the same. Invariant: an upload is
// in `active` exactly while its attempt runs.

import HTTPTypes
import Posix
import Spool
import UploadProtocol
import Upstream

extension Transaction {
    /// Delivers a whole upload and answers with the upstream's response (draft-12 §4.1.2).
    func deliver(_ upload: Upload, isCreation: Bool) throws(SpoolError) {
        // A web server that gave up on this request has told the client so; the client comes back.
        guard !exchange.isAbandoned else {
            log.interrupted(
                upload.creation.id,
                offset: upload.state.offset,
                reason: .truncated
            )
            return exchange.abort()
        }
        let relay = VerdictRelay(
            upload: upload,
            exchange: exchange,
            answers: answers,
            cap: Int(route.responseCap),
            location: isCreation ? location(upload.creation.resourcePath) : nil,
            heartbeat: Heartbeat(progressReport, rate: interimRate),
            log: log
        )
        if let refusal = try attemptDelivery(upload, relay) {
            refuse(refusal, offset: upload.state.offset)
        }
    }

    /// Delivers an upload that waits for its next attempt, its final response only stored; returns
    /// whether it is delivered now.
    func deliverUnseen(_ upload: Upload) throws(SpoolError) -> Bool {
        let relay = VerdictRelay(
            upload: upload,
            exchange: nil,
            answers: answers,
            cap: Int(route.responseCap),
            location: nil,
            heartbeat: nil,
            log: log
        )
        return try attemptDelivery(upload, relay) == nil
    }

    /// One attempt; nil when the verdict is in and went to the relay, else why there is none.
    ///
    /// The offset is durable then.
    private func attemptDelivery(
        _ upload: Upload,
        _ relay: VerdictRelay
    ) throws(SpoolError) -> Refusal? {
        if let slot = try waitForSlot(upload, relay.heartbeat) {
            defer { slot.giveBack() }
            relay.slot = slot
            return try attemptInSlot(upload, relay)
        }
        try postpone(upload, reason: "no free place among the deliveries")
        return .deliveryUnderWay
    }

    /// Waits for a slot; nil when none came free in time, or a newer request wants the upload.
    private func waitForSlot(
        _ upload: Upload,
        _ heartbeat: Heartbeat?
    ) throws(SpoolError) -> DeliverySlot? {
        let deadline = Deadline.after(holdTimeout)
        while true {
            // Whoever asks for the upload must not wait for a slot as well.
            let look = Deadline.after(.milliseconds(100))
            let next = min(deadline, look, heartbeat?.next ?? deadline)
            if let slot = gateway.slots.take(until: next) { return slot }
            if deadline.hasPassed || upload.isAsked { return nil }
            // One that fails may have cut the content back: then this is no whole upload any more.
            try heartbeat?.beat(upload)
        }
    }

    private func attemptInSlot(
        _ upload: Upload,
        _ relay: VerdictRelay
    ) throws(SpoolError) -> Refusal? {
        let id = upload.creation.id
        try upload.beginAttempt()
        log.delivering(id, length: upload.state.offset)
        let outcome = upstream.attempt(request(for: upload), sink: relay)
        if outcome == .answered { relay.finish() }
        if let error = relay.spoolError {
            // The upstream has taken the upload: its client must hear that, stored or not.
            guard relay.hasBegun else { throw error }
            log.spoolFailed(error, upload: id)
        }
        switch outcome {
        case .answered:
            log.delivered(id, status: relay.status)
            return nil
        case .notReached(let reason):
            try postpone(upload, reason: reason)
            return .notReached(isKept: true)
        case .noRoom(let reason):
            try postpone(upload, reason: reason)
            return .destinationFull(isKept: true)
        case .indeterminate(let reason), .abandoned(let reason):
            // Over the cap the verdict was stored before its content was relayed; what the client
            // has of that content is not the whole.
            if relay.isStored || relay.hasBegun {
                log.delivered(id, status: relay.status)
                relay.breakOff()
                return nil
            }
            if upload.creation.isRepeatable {
                try postpone(upload, reason: reason)
                return .notReached(isKept: true)
            }
            try upload.indeterminate(reason: reason)
            log.indeterminate(id, reason: reason)
            return .silent
        }
    }

    /// The bytes stay; a completing append tries again.
    private func postpone(_ upload: Upload, reason: String) throws(SpoolError) {
        try upload.deferred(reason: reason)
        try upload.settle()
        log.deferred(upload.creation.id, reason: reason)
    }

    /// The one regular request, built from the creation alone.
    private func request(for upload: Upload) -> UpstreamRequest {
        let creation = upload.creation
        var fields = UpstreamFields.delivered(creation.head.fields)
        fields.addForwarding(address: creation.remoteAddress, scheme: creation.scheme)
        if route.honoursIdempotencyKey, fields[.idempotencyKey] == nil {
            fields[.idempotencyKey] = "\"\(creation.id)\""
        }
        return UpstreamRequest(
            method: creation.head.method,
            target: creation.head.target,
            fields: fields,
            content: .file(descriptor: upload.dataFile, length: upload.state.offset) {
                buffer,
                position in try upload.read(into: buffer, at: position)
            },
            isUpload: true,
            id: creation.id
        )
    }

    /// Answers with the stored final response of an upload whose client lost it.
    func replay(_ upload: Upload) throws(SpoolError) {
        guard let response = try upload.response() else { return refuse(.uploadLost) }
        var head = response.head
        if response.content == nil { head.fields[.contentType] = nil }
        exchange.answer(
            Response(
                answers.final(head, offset: upload.state.offset, location: nil),
                content: response.content ?? []
            )
        )
    }
}

/// Stores the upstream's final response, then relays it, also where storing failed.
///
/// Up to the cap the whole response is stored before its first byte leaves; beyond it the head is
/// stored, and the content streams through. Without an exchange it is only stored. One that cannot
/// be stored is relayed all the same.
private final class VerdictRelay: ResponseSink {
    private let upload: Upload
    private let exchange: (any Exchange)?
    private let answers: UploadResponse
    private let cap: Int
    private let location: String?
    /// Tells the client that the wait goes on; nil where it cannot hear that.
    let heartbeat: Heartbeat?
    private let log: Log
    /// Given back when the head is there.
    var slot: DeliverySlot?
    private var head: ResponseHead?
    private var contentLength: Int64?
    private var content: [UInt8] = []
    private var isStreaming = false
    private(set) var isStored = false
    /// Why the verdict could not be stored.
    private(set) var spoolError: SpoolError?
    /// Whether the client was told the verdict.
    private(set) var hasBegun = false

    init(
        upload: Upload,
        exchange: (any Exchange)?,
        answers: UploadResponse,
        cap: Int,
        location: String?,
        heartbeat: Heartbeat?,
        log: Log
    ) {
        self.upload = upload
        self.exchange = exchange
        self.answers = answers
        self.cap = cap
        self.location = location
        self.heartbeat = heartbeat
        self.log = log
    }

    /// The upstream's status; 0 before its head came.
    var status: Int { head?.status.code ?? 0 }

    func attemptGoesOn() {
        guard let heartbeat, !hasBegun else { return }
        do throws(SpoolError) { try heartbeat.beat(upload) } catch {
            // The client hears nothing more of the wait; the verdict may still come.
            log.spoolFailed(error, upload: upload.creation.id)
        }
    }

    func receive(interim head: ResponseHead) { exchange?.send(interim: head) }

    func receive(head: ResponseHead, contentLength: Int64?) {
        slot?.giveBack()
        self.head = ResponseHead(
            status: head.status,
            fields: UpstreamFields.relayed(head.fields)
        )
        self.contentLength = contentLength
    }

    func receive(content part: RawSpan) throws {
        if !isStreaming {
            if content.count + part.byteCount <= cap {
                part.withUnsafeBytes { content.append(contentsOf: $0) }
                return
            }
            isStreaming = true
            store(content: nil)
            try sendHead(contentLength: contentLength)
            let held = content
            content = []
            try exchange?.send(content: held.span.bytes)
        }
        try exchange?.send(content: part)
    }

    /// Stores and relays a response that ended within the cap.
    func finish() {
        guard !isStreaming else { return }
        store(content: content)
        let held = content
        do throws(ClientGone) {
            try sendHead(contentLength: contentLength ?? Int64(held.count))
            if !held.isEmpty { try exchange?.send(content: held.span.bytes) }
        } catch {
            // The verdict is stored; the client can come back for it.
        }
    }

    /// Ends a response whose content did not come whole.
    func breakOff() { exchange?.abort() }

    private func store(content: [UInt8]?) {
        guard let head else { return }
        do throws(SpoolError) {
            try upload.delivered(StoredResponse(head: head, content: content))
            isStored = true
        } catch {
            spoolError = error
        }
    }

    private func sendHead(contentLength: Int64?) throws(ClientGone) {
        guard let head, let exchange else { return }
        hasBegun = true
        try exchange.send(
            head: answers.final(head, offset: upload.state.offset, location: location),
            contentLength: head.status.hasContent ? contentLength : nil
        )
    }
}

extension Refusal {
    /// The upstream was not reached.
    ///
    /// Why stands in the log: it names hosts and files of the inside.
    static func notReached(isKept: Bool) -> Refusal {
        .upstreamNotReached(reason: "no connection could be made", isKept: isKept)
    }

    /// The upstream was sent the request and did not answer; the log says why.
    static let silent = Refusal.upstreamSilent(reason: "the connection ended or its time ran out")
}
