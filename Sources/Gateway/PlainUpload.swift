// An ordinary upload: received whole, however slowly it comes, then delivered with its length; or, where
// the route says `ordinary: pass`, streamed as it comes.
//
// It has no upload resource, so nobody can come back for it: its bytes live in memory if they are
// few, else in a nameless file, and are gone with the request. Invariant: it waits for no other upload.

import HTTPTypes
import Posix
import Spool
import UploadProtocol
import Upstream

extension Transaction {
    /// Most content of an ordinary upload that is held in memory.
    static let memoryLimit = 128 << 10

    /// Takes an ordinary upload and answers as its route replies.
    func takePlainUpload(isMarked: Bool) {
        // What is marked as an upload is whole in one small message and has digests to be verified.
        if route.ordinary == .pass, !isMarked {
            return passThrough(atMost: route.limits.maxSize) { $0 }
        }
        let duty: DigestDuty
        do throws(Refusal) {
            duty = try DigestDuty(plain: head.fields, route: route.settings)
        } catch {
            return refusePlain(error)
        }
        switch route.reply {
        case .upstream: receivePlainUpload(duty)
        case .accepted: acceptPlainUpload(duty)
        }
    }

    /// Receives an ordinary upload and relays the upstream's response.
    private func receivePlainUpload(_ duty: DigestDuty) {
        let reading = DigestReading(duty.algorithms)
        do throws(SpoolError) {
            let content = try gateway.buffers.withBuffer { buffer throws(SpoolError) in
                try receivePlainContent(buffer, reading)
            }
            guard let content else { return }
            let digests = reading.finish()
            if let refusal = duty.refusal(digests) { return refusePlain(refusal.ofOrdinaryRequest) }
            try deliverPlain(content, UploadDigests(duty: duty, values: digests))
        } catch {
            log.spoolFailed(error, upload: nil)
            refusePlain(error.refusal)
        }
    }

    /// The whole content of an ordinary upload.
    enum PlainContent {
        case memory([UInt8])
        case file(ScratchFile)

        /// Its bytes.
        var length: Int64 {
            switch self {
            case .memory(let bytes): Int64(bytes.count)
            case .file(let scratch): scratch.length
            }
        }

        var ofUpstream: UpstreamContent {
            switch self {
            case .memory(let bytes): .bytes(bytes)
            case .file(let scratch):
                .file(descriptor: scratch.dataFile, length: scratch.length) { buffer, position in
                    try scratch.read(into: buffer, at: position)
                }
            }
        }
    }

    /// The whole content, or nil when the request was ended here.
    private func receivePlainContent(
        _ buffer: ContentBuffer,
        _ reading: DigestReading
    ) throws(SpoolError) -> PlainContent? {
        if head.contentLength == .known(0) { return .memory([]) }
        var memory: [UInt8] = []
        var file: ScratchFile?
        if case .known(let length) = head.contentLength {
            if length > Self.memoryLimit {
                // Before the content is read.
                file = try gateway.spool.scratch(expecting: length)
            } else {
                memory.reserveCapacity(Int(length))
            }
        }
        let end = try Reception(exchange: exchange, buffer: buffer).receive(
            room: route.limits.maxSize,
            store: { bytes throws(SpoolError) in
                reading.update(bytes)
                if file == nil, memory.count + bytes.byteCount <= Self.memoryLimit {
                    return bytes.withUnsafeBytes { memory.append(contentsOf: $0) }
                }
                let scratch: ScratchFile
                if let file {
                    scratch = file
                } else {
                    scratch = try gateway.spool.scratch()
                    try scratch.append(memory.span.bytes)
                    file = scratch
                    memory = []
                }
                try scratch.append(bytes)
            }
        )
        switch end {
        case .ended:
            return file.map { .file($0) } ?? .memory(memory)
        case .interrupted:
            exchange.abort()
            return nil
        case .exceeded:
            refusePlain(.plainTooLarge(maxSize: route.limits.maxSize))
            return nil
        }
    }

    private func deliverPlain(
        _ content: PlainContent,
        _ digests: UploadDigests
    ) throws(SpoolError) {
        guard !exchange.isAbandoned else { return exchange.abort() }
        let id = UploadID.random()
        let length = content.length
        guard try inspectPlain(content, id: id) else { return }
        let form: UploadForm
        do throws(FormFailure) { form = try plainForm(content, digests, id: id) } catch {
            log.plainFailed(id, route: routeName, reason: error.reason)
            notePlain(.failed, id, length: length, reason: error.reason)
            return refusePlain(error.refusal(isKept: false))
        }
        // No place among the deliveries: its client waits for nobody but the upstream, as it would
        // without a gateway.
        let relay = StreamRelay(exchange, fields: UpstreamFields.relayed, log: log)
        let outcome = upstream.attempt(form.request, sink: relay)
        form.end(status: relay.status)
        switch outcome {
        case .answered:
            if relay.status < 400 {
                log.plainDelivered(id, route: routeName, length: length, status: relay.status)
            } else {
                log.plainRefusedByUpstream(
                    id,
                    route: routeName,
                    length: length,
                    status: relay.status
                )
            }
            notePlain(.delivered, id, length: length, status: relay.status)
        case .unheard(let reason):
            // The upstream has answered; only its client does not hear all of it.
            log.plainDelivered(id, route: routeName, length: length, status: relay.status)
            log.clientGone(route: routeName, target: head.target, reason: reason)
            notePlain(.delivered, id, length: length, status: relay.status)
            exchange.abort()
        case .notReached(let reason, let timedOut):
            form.takeBack()
            log.plainFailed(id, route: routeName, reason: reason)
            notePlain(.failed, id, length: length, reason: reason)
            fail(.notReached(timedOut: timedOut, isKept: false), relay)
        case .noRoom(let reason):
            log.plainFailed(id, route: routeName, reason: reason)
            notePlain(.failed, id, length: length, reason: reason)
            fail(.destinationFull(isKept: false), relay)
        case .indeterminate(let reason, _), .abandoned(let reason):
            log.plainFailed(id, route: routeName, reason: reason)
            notePlain(.failed, id, length: length, reason: reason)
            fail(.silent(timedOut: outcome.timedOut), relay)
        }
    }

    private func plainForm(
        _ content: PlainContent,
        _ digests: UploadDigests,
        id: UploadID
    ) throws(FormFailure) -> UploadForm {
        try UploadForm(
            WholeUpload(
                id: id,
                creation: head,
                completing: head.fields,
                isWhole: true,
                owner: exchange.context.owner ?? grant.owner,
                address: exchange.context.remoteAddress,
                scheme: exchange.context.scheme,
                length: content.length,
                digests: digests.values
            ),
            content.ofUpstream,
            route: route.settings,
            told: digests.duty.told,
            time: gateway.clock.now
        )
    }

    /// Ends a request that the upstream failed: refused, or broken off where its answer has begun.
    func fail(_ refusal: Refusal, _ relay: StreamRelay) {
        if relay.hasBegun { exchange.abort() } else { refusePlain(refusal) }
    }

    /// Refuses without the protocol's fields: this client did not ask for them.
    func refusePlain(_ refusal: Refusal) {
        log.refused(refusal, target: head.target)
        exchange.answer(refusal.response)
    }

    /// Tells an event of an ordinary upload, which has no record.
    func notePlain(
        _ kind: Event.Kind,
        _ id: UploadID,
        length: Int64,
        status: Int? = nil,
        reason: String? = nil
    ) {
        gateway.events.note(
            Event(
                kind,
                ofPlain: uploadCreation(id: id, resourcePath: ""),
                length: length,
                status: status,
                reason: reason
            )
        )
    }
}
