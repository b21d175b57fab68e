// An ordinary upload: received whole, however slowly it comes, then delivered with its length; or, where
// the route says `ordinary: pass`, streamed as it comes.
//
// It has no upload resource, so nobody can come back for it: what does not arrive whole is gone with the
// request. Its bytes live in memory if they are few, else in a nameless file; where the route replies
// `accepted`, in the spool. Invariant: it waits for no other upload.

import Delivery
import Exchange
import Journal
import Settings
import Spool
import UploadProtocol
import Upstream

extension Request {
    /// Takes an ordinary upload, or one that is to be delivered like one (`isUntold(_:)`), and answers as its
    /// route replies.
    func takeOrdinaryUpload(isMarked: Bool) {
        // What is marked as an upload is whole in one small message and has digests to be verified.
        if route.ordinary == .pass, !isMarked {
            return passThrough(atMost: route.limits.maxSize) { $0 }
        }
        let plan: DigestPlan
        do throws(Refusal) {
            plan = try DigestPlan(ordinary: head.fields, route: route.settings)
        } catch {
            return refuse(error)
        }
        do throws(SpoolError) {
            switch route.reply {
            case .upstream: try relayOrdinary(plan)
            case .accepted: try acceptOrdinary(plan)
            }
        } catch {
            note(error, upload: nil)
            refuse(error.refusal)
        }
    }

    /// Receives the content; nil where that came to no proper end, or nobody is there any more.
    private func receiveOrdinary(
        _ plan: DigestPlan,
        store: (RawSpan) throws(SpoolError) -> Void
    ) throws(SpoolError) -> Result<UploadDigests, Refusal>? {
        let reading = DigestReading(plan.algorithms)
        let end = try gateway.buffers.withBuffer { buffer throws(SpoolError) in
            try Reception(content: content, buffer: buffer).receive(
                room: route.limits.maxSize,
                store: { bytes throws(SpoolError) in
                    reading.update(bytes)
                    try store(bytes)
                }
            )
        }
        switch end {
        case .ended where !exchange.isPeerGone: return plan.checked(reading.finish())
        case .ended, .interrupted: return nil
        case .exceeded: return .failure(.tooLarge(maxSize: route.limits.maxSize))
        }
    }

    /// Answers a request whose content is not to be delivered; nil where it is.
    private func digests(after end: Result<UploadDigests, Refusal>?) -> UploadDigests? {
        switch end {
        case .success(let digests): return digests
        case .failure(let refusal): refuse(refusal)
        case nil: exchange.abort()
        }
        return nil
    }

    // MARK: Accepted

    private func acceptOrdinary(_ plan: DigestPlan) throws(SpoolError) {
        let upload = try gateway.spool.create(
            newResource(),
            length: head.contentLength.count,
            expecting: head.contentLength.count ?? 0,
            requestRelease: {}
        )
        defer { upload.unlock() }
        do throws(SpoolError) {
            let end = try receiveOrdinary(plan) { bytes throws(SpoolError) in
                try upload.append(bytes)
            }
            guard case .success = end else {
                try upload.remove()
                _ = digests(after: end)
                return
            }
            log.received(upload.creation.id, offset: upload.state.offset)
            journal.completed(upload)
            try accept(upload)
        } catch {
            // Its client sends it again: it must not be delivered as well.
            try? upload.remove(durably: true)
            throw error
        }
    }

    // MARK: Relayed

    /// Receives it and relays the upstream's response.
    private func relayOrdinary(_ plan: DigestPlan) throws(SpoolError) {
        let content = try OrdinaryContent(of: head.contentLength, in: gateway.spool)
        let end = try receiveOrdinary(plan) { bytes throws(SpoolError) in
            try content.append(bytes)
        }
        guard let digests = digests(after: end) else { return }
        let creation = newUpload()
        guard try inspectOrdinary(content, creation) else { return }
        let form: UploadForm
        do throws(FormFailure) {
            form = try UploadForm(
                creation,
                content.ofUpstream,
                length: content.length,
                route: route.settings,
                completing: head.fields,
                isOrdinary: true,
                digests: digests,
                time: gateway.clock.now
            )
        } catch {
            journal.ordinaryFailed(creation, length: content.length, reason: error.reason)
            return refuse(error.refusal(isKept: false))
        }
        deliverOrdinary(form, creation, length: content.length)
    }

    private func deliverOrdinary(_ form: UploadForm, _ creation: UploadCreation, length: Int64) {
        // No place among the deliveries: its client waits for nobody but the upstream, as it would
        // without a gateway.
        let relay = StreamRelay(
            exchange,
            fields: UpstreamFields.relayed,
            // Who asked for the protocol's fields gets them.
            transform: { isOrdinary ? $0 : responses.final($0, offset: length, location: nil) },
            log: log
        )
        let outcome = route.upstream.attempt(form.request, sink: relay)
        form.end(status: relay.status)
        guard let reason = outcome.reason,
            let refusal = outcome.refusal(isRepeatable: false, isKept: false)
        else {
            return journal.ordinaryDelivered(creation, length: length, status: relay.status)
        }
        if case .unheard = outcome {
            // The upstream has answered; only its client does not hear all of it.
            journal.ordinaryDelivered(creation, length: length, status: relay.status)
            return giveUp(reason)
        }
        if outcome.isUnsent { form.takeBack() }
        journal.ordinaryFailed(creation, length: length, reason: reason)
        fail(refusal, relay)
    }

    /// Runs the route's inspection; false where the request was answered here.
    private func inspectOrdinary(
        _ content: OrdinaryContent,
        _ creation: UploadCreation
    ) throws(SpoolError) -> Bool {
        guard let inspection = route.inspection else { return true }
        guard let place = takeWaitingPlace() else { return false }
        defer { place.giveBack() }
        let length = content.length
        let found = try content.asFile().withPath { path throws(SpoolError) in
            try inspection.run(path, about: creation, length: length) {}
        }
        switch found {
        case .taken:
            return true
        case .refused(let message):
            let status = inspection.settings.status
            journal.ordinaryInspected(creation, length: length, status: status, message: message)
            exchange.answer(Refusal.notTaken(status: status, message: message).response)
        case .failed(let reason):
            journal.ordinaryFailed(creation, length: length, reason: reason)
            refuse(.notChecked(isKept: false))
        }
        return false
    }

    // MARK: Answers

    /// Ends a request that the upstream failed: refused, or broken off where its answer has begun.
    func fail(_ refusal: Refusal, _ relay: StreamRelay) {
        if relay.hasBegun { exchange.abort() } else { refuse(refusal) }
    }
}

/// The content of an ordinary upload, in memory while it is little, else in a nameless file.
///
/// One thread.
final class OrdinaryContent {
    /// Most content that is held in memory.
    static let memoryLimit = 128 << 10

    private let spool: Spool
    private var memory: [UInt8] = []
    private var file: ScratchFile?

    /// Makes room for content of that length, before any of it is read.
    init(of length: ContentLength, in spool: Spool) throws(SpoolError) {
        self.spool = spool
        guard case .known(let length) = length else { return }
        if length > Self.memoryLimit {
            file = try spool.scratch(expecting: length)
        } else {
            memory.reserveCapacity(Int(length))
        }
    }

    /// Its bytes.
    var length: Int64 { file?.length ?? Int64(memory.count) }

    func append(_ bytes: RawSpan) throws(SpoolError) {
        if file == nil, memory.count + bytes.byteCount <= Self.memoryLimit {
            return bytes.withUnsafeBytes { memory.append(contentsOf: $0) }
        }
        try asFile().append(bytes)
    }

    /// The file; what was in memory is moved there.
    func asFile() throws(SpoolError) -> ScratchFile {
        if let file { return file }
        let file = try spool.scratch(expecting: Int64(memory.count))
        let held = memory
        memory = []
        try file.append(held.span.bytes)
        self.file = file
        return file
    }

    /// What an upstream is sent.
    var ofUpstream: UpstreamContent {
        guard let file else { return .bytes(memory) }
        return .file(descriptor: file.dataFile, length: file.length) { buffer, position in
            try file.read(into: buffer, at: position)
        }
    }
}
