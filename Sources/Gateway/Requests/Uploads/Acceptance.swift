// The reply `accepted`: 202 as soon as an upload is durable.
//
// Invariant: after a 202 the upload is in the queue, even after a crash or power failure.

import SpoolgateDelivery
import SpoolgateExchange
import SpoolgateJournal
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateUploadProtocol

extension UploadOperation {
    /// Adds a complete upload to the queue, responds with 202 (RFC 9110 §15.3.3), and unlocks the upload.
    func accept() throws(SpoolError) {
        let isNew = upload.state.phase == .receiving || upload.nextAttempt == nil
        if isNew { try upload.accept(at: gateway.clock.now) }
        // Needed even for a queued upload, because the process that queued it may have crashed before it was durable.
        try upload.sync()
        if isNew { journal.accepted(upload) }
        let due = upload.nextAttempt ?? gateway.clock.now
        answerAccepted(upload.creation, length: request.isOrdinary ? nil : offset)
        upload.unlock()
        gateway.deliveries.queue.add(upload.creation, due: due)
    }
}

extension Answering {
    func answerAccepted(_ creation: UploadCreation, length: Int64?) {
        exchange.answer(
            responses.accepted(
                id: creation.id,
                resource: request.location(creation.resourcePath),
                length: length
            )
        )
    }
}

extension Request {
    /// Responds, without waiting, to a request on an upload that the queue is delivering.
    ///
    /// - Returns: false if the caller must lock the upload to respond.
    func answersUnderWay(_ id: UploadID, _ append: UploadRequest.Append? = nil) -> Bool {
        do throws(SpoolError) {
            guard route.settings.reply == .accepted,
                let summary = try gateway.spool.lookAtPromised(id),
                // A deferred upload that is locked is being checked before its attempt.
                summary.queue == .active || summary.queue == .deferred && summary.isInUse,
                route.hasAccepted(nextAttempt: summary.nextAttempt),
                let creation = summary.creation, isOurs(creation)
            else { return false }
            var state = summary.state
            state.phase = .delivering
            state.isAccepted = true
            if let append {
                guard
                    state.decide(append, dialect: dialect, limits: route.settings.limits)
                        == .answer(.accepted)
                else { return false }
                answerAccepted(creation, length: state.offset)
            } else {
                guard case .tell(let completeness) = state.decideRetrieval(dialect) else {
                    return false
                }
                exchange.answer(
                    responses.on(creation.head).offsetTold(
                        state,
                        completeness,
                        remainingAge: route.settings.limits.maxAge,
                        response: nil
                    )
                )
            }
            return true
        } catch {
            refuse(error, upload: id)
            return true
        }
    }
}
