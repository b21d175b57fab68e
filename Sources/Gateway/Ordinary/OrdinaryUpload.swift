// An ordinary upload: received whole, however slowly it comes, then delivered with its length; or, where
// the route says `ordinary: pass`, streamed as it comes.
//
// It has no upload resource, so nobody can come back for it: what does not arrive whole is gone with the
// request. Its bytes stay in the buffer they came in if they are few, else in a nameless file; where the route
// replies `accepted`, in the spool. Invariant: it waits for no other upload.

import Delivery
import Exchange
import Journal
import Posix
import Settings
import Spool
import UploadProtocol
import Upstream

extension Request {
    /// Takes an ordinary upload, or one that is to be delivered like one (`isUntold(_:)`), and answers as its
    /// route replies.
    func takeOrdinaryUpload(isMarked: Bool) {
        // What is marked as an upload is whole in one small message and has digests to be verified.
        if route.settings.ordinary == .pass, !isMarked {
            return passThrough(atMost: route.settings.limits.maxSize, isUpload: true) { $0 }
        }
        let plan: DigestPlan
        do throws(Refusal) {
            plan = try DigestPlan(ordinary: head.fields, route: route)
        } catch {
            return refuse(error)
        }
        do throws(SpoolError) {
            switch route.settings.reply {
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
        _ receive: (DigestReading) throws(SpoolError) -> ReceptionEnd
    ) throws(SpoolError) -> Result<UploadDigests, Refusal>? {
        let reading = DigestReading(plan.algorithms)
        switch try gateway.transfers.counting({ () throws(SpoolError) in try receive(reading) }) {
        case .ended where !exchange.isPeerGone: return plan.checked(reading.finish())
        case .ended, .interrupted: return nil
        case .exceeded: return .failure(.tooLarge(maxSize: route.settings.limits.maxSize))
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
            let end = try receiveOrdinary(plan) { reading throws(SpoolError) in
                try gateway.buffers.receive(
                    content,
                    room: route.settings.limits.maxSize,
                    reading,
                    store: { bytes throws(SpoolError) in try upload.append(bytes) },
                    whenSlow: { () throws(SpoolError) in try upload.store() }
                )
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
        let content = try OrdinaryContent(of: head.contentLength, in: gateway)
        defer { content.end() }
        let end = try receiveOrdinary(plan) { reading throws(SpoolError) in
            try content.receive(self.content, room: route.settings.limits.maxSize, reading)
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
                route: route,
                completing: head.fields,
                isOrdinary: true,
                digests: digests,
                time: gateway.clock.now
            )
        } catch {
            journal.notSent(on: route.counts, of: client, reason: error.reason)
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
            transform: { [isOrdinary, responses] in
                isOrdinary ? $0 : responses.final($0, offset: length, location: nil).head
            },
            route: route,
            log: log
        )
        let watch = Stopwatch()
        let outcome = route.upstream.attempt(form.request, sink: relay)
        journal.attempted(
            on: route.counts,
            outcome,
            of: client,
            status: relay.status,
            nanoseconds: watch.nanoseconds
        )
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
            let status = Refusal.notTakenStatus
            journal.ordinaryInspected(creation, length: length, status: status, message: message)
            exchange.answer(Refusal.notTaken(message: message).response)
        case .failed(let reason):
            journal.notSent(on: route.counts, of: client, reason: reason)
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

extension BufferShelf {
    /// Receives content through a buffer, read for its digests and stored part by part.
    fileprivate func receive(
        _ content: RequestContent,
        room: Int64,
        _ reading: DigestReading,
        store: (RawSpan) throws(SpoolError) -> Void,
        whenSlow: () throws(SpoolError) -> Void = {}
    ) throws(SpoolError) -> ReceptionEnd {
        try withBuffer { buffer throws(SpoolError) in
            try Reception(content: content, buffer: buffer).receive(
                room: room,
                store: { bytes throws(SpoolError) in
                    reading.update(bytes)
                    try store(bytes)
                },
                whenSlow: whenSlow
            )
        }
    }
}

/// The content of an ordinary upload, in the buffer that received it while it is little, else in a
/// nameless file.
///
/// One thread.
final class OrdinaryContent {
    /// Most content that is held in memory.
    static let memoryLimit = 128 << 10

    private let spool: Spool
    private let shelf: BufferShelf
    /// What is held in memory; nil: it is in the file, or was given back.
    private var buffer: ContentBuffer?
    private var file: ScratchFile?

    /// Makes room for content of that length, before any of it is read; `end` must follow.
    init(of length: ContentLength, in gateway: Gateway) throws(SpoolError) {
        spool = gateway.spool
        shelf = gateway.buffers
        if case .known(let length) = length, length > Self.memoryLimit {
            file = try spool.scratch(expecting: length)
        } else {
            buffer = try shelf.take()
        }
    }

    /// Its bytes.
    var length: Int64 { file?.length ?? Int64(buffer?.count ?? 0) }

    /// Receives it until it ends, within `room`.
    func receive(
        _ content: RequestContent,
        room: Int64,
        _ reading: DigestReading
    ) throws(SpoolError) -> ReceptionEnd {
        if let buffer {
            let most = min(Int64(Self.memoryLimit), room)
            let end = Reception(content: content, buffer: buffer).hold(atMost: Int(most))
            buffer.withBytes { reading.update($0) }
            if let end { return end }
            guard length <= room else { return .exceeded }
        }
        let file = try asFile()
        return try shelf.receive(
            content,
            room: room - file.length,
            reading,
            store: { bytes throws(SpoolError) in try file.append(bytes) }
        )
    }

    /// The file; what was in memory is moved there.
    func asFile() throws(SpoolError) -> ScratchFile {
        if let file { return file }
        let file = try spool.scratch(expecting: length)
        try buffer?.withBytes { bytes throws(SpoolError) in try file.append(bytes) }
        self.file = file
        end()
        return file
    }

    /// Gives its memory back: nothing of it may be read from there any more.
    func end() {
        if let buffer { shelf.put(buffer) }
        buffer = nil
    }

    /// What an upstream is sent, before `end`.
    var ofUpstream: UpstreamContent {
        if let buffer { return .held(buffer) }
        guard let file else { return .none }
        return .file(descriptor: file.dataFile, length: file.length) { buffer, position in
            try file.read(into: buffer, at: position)
        }
    }
}
