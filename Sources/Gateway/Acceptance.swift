// The reply `accepted`: 202 as soon as an upload is durable, and the status resource that tells what
// became of it.
//
// Invariant: after a 202 the upload is in the queue, whatever dies.

import HTTPTypes
import Posix
import Spool
import UploadProtocol

extension Transaction {
    /// Leaves a whole upload to the queue and answers 202 (RFC 9110 §15.3.3).
    ///
    /// The upload is let go.
    func accept(_ upload: Upload, isOrdinary: Bool = false) throws(SpoolError) {
        let isNew = upload.state.phase == .receiving || upload.nextAttempt == nil
        if isNew { try upload.deferred(reason: upload.reason, next: gateway.clock.now) }
        // Also where that was before: who wrote it may have died before it was durable.
        try upload.settle()
        if isNew {
            log.accepted(
                upload.creation.id,
                route: routeName,
                target: upload.creation.head.target,
                length: upload.state.offset
            )
        }
        let due = upload.nextAttempt ?? gateway.clock.now
        answerAccepted(upload.creation, length: isOrdinary ? nil : upload.state.offset)
        upload.detach()
        gateway.queue.add(upload.creation.id, route: routeName, due: due)
    }

    private func answerAccepted(_ creation: UploadCreation, length: Int64?) {
        exchange.answer(
            answers.accepted(
                id: creation.id,
                status: location(creation.resourcePath) + UploadResources.statusSuffix,
                length: length
            )
        )
    }

    /// Answers a request for an upload that the queue is delivering just now, without waiting for it;
    /// false where that is not so.
    func answerQueued(_ id: UploadID, _ append: UploadRequest.Append?) throws(SpoolError) -> Bool {
        guard route.reply == .accepted, let summary = try gateway.spool.look(at: id),
            // In `deferred` and in use it is being checked before its attempt.
            summary.queue == .active || summary.queue == .deferred && summary.isInUse,
            summary.nextAttempt != nil,
            let creation = summary.creation, isOurs(creation)
        else { return false }
        guard let append else {
            let state = UploadState(
                offset: summary.offset,
                length: summary.length,
                phase: .deferred
            )
            exchange.answer(answers.offsetTold(state, remainingAge: route.limits.maxAge))
            return true
        }
        guard append.offset == summary.offset, append.completeness == .complete,
            append.contentLength == .known(0)
        else { return false }
        answerAccepted(creation, length: summary.offset)
        return true
    }

    // MARK: The status resource

    /// Tells as JSON how far an upload has come; touches nothing and waits for nobody.
    func tellStatus(of id: UploadID) {
        do throws(SpoolError) {
            guard let summary = try gateway.spool.look(at: id), let creation = summary.creation,
                isOurs(creation)
            else { return refuse(.unknownUpload) }
            exchange.answer(
                answers.status(
                    .object([
                        ("upload", .string(id.description)),
                        ("state", .string(summary.stateWord)),
                        ("offset", .integer(summary.offset)),
                        ("length", summary.length.map { .integer($0) } ?? .null),
                        ("created", .string(creation.created.description)),
                        ("attempts", .integer(Int64(summary.attempts))),
                        (
                            "next-attempt",
                            summary.nextAttempt.map { .string($0.description) } ?? .null
                        ),
                        ("status", summary.status.map { .integer(Int64($0)) } ?? .null),
                    ])
                )
            )
        } catch {
            refuse(error, upload: id, exists: false)
        }
    }

    // MARK: Ordinary uploads

    /// Receives an ordinary upload into the spool and accepts it.
    ///
    /// It gets no upload resource to append to: what does not arrive whole is gone with the request.
    func acceptPlainUpload(_ duty: DigestDuty) {
        let id = UploadID.random()
        do throws(SpoolError) {
            let upload = try gateway.spool.create(
                uploadCreation(
                    id: id,
                    resourcePath: route.resources.path(of: id, creationPath: head.path)
                ),
                length: head.contentLength.count,
                expecting: head.contentLength.count ?? 0,
                release: {}
            )
            defer { upload.detach() }
            do throws(SpoolError) {
                try receivePlain(into: upload, duty)
            } catch {
                // Its client sends it again: it must not be delivered as well.
                try? upload.remove(durably: true)
                throw error
            }
        } catch {
            note(error, upload: id)
            refusePlain(error.refusal)
        }
    }

    private func receivePlain(into upload: Upload, _ duty: DigestDuty) throws(SpoolError) {
        let reading = DigestReading(duty.algorithms)
        let end = try gateway.buffers.withBuffer { buffer throws(SpoolError) in
            try Reception(exchange: exchange, buffer: buffer).receive(
                room: route.limits.maxSize,
                store: { bytes throws(SpoolError) in
                    reading.update(bytes)
                    try upload.append(bytes)
                }
            )
        }
        switch end {
        case .ended where !exchange.isAbandoned:
            log.received(upload.creation.id, offset: upload.state.offset)
            if let refusal = duty.refusal(reading.finish()) {
                try upload.remove()
                return refusePlain(refusal.ofOrdinaryRequest)
            }
            gateway.events.note(Event(.completed, of: upload))
            try accept(upload, isOrdinary: true)
        case .ended, .interrupted:
            try upload.remove()
            exchange.abort()
        case .exceeded:
            try upload.remove()
            refusePlain(.plainTooLarge(maxSize: route.limits.maxSize))
        }
    }
}
