// What happens to an upload that a request found whole: it is delivered while the client waits, or
// accepted for the queue, or its stored response is told again.

import Delivery
import Exchange
import HTTPTypes
import Journal
import Settings
import Spool
import UploadProtocol

extension Request {
    var delivery: Delivery {
        Delivery(
            gateway.deliveries,
            route: route,
            journal: journal,
            patience: inUseTimeout,
            visit: visit
        )
    }

    /// Answers the request that completed an upload, or came for its final response (draft-12 §4.1.2).
    func complete(_ upload: Upload, isCreation: Bool) throws(SpoolError) {
        // A web server that gave up on this request has told the client so; the client comes back.
        guard !exchange.isPeerGone else {
            journal.interrupted(upload, reason: .truncated)
            return exchange.abort()
        }
        switch route.settings.reply {
        case .accepted:
            // Whoever is told 202 is not there for what would come out later.
            let refusal = try delivery.contradiction(
                of: upload,
                completing: head.fields,
                Heartbeat(progressReport, rate: interimRate)
            )
            if let refusal {
                return refuse(refusal, offset: upload.state.offset)
            }
            try delivery.keepCompletion(upload, head.fields)
            try accept(upload)
        case .upstream: try deliver(upload, isCreation: isCreation)
        }
    }

    private func deliver(_ upload: Upload, isCreation: Bool) throws(SpoolError) {
        var listener = ResponseListener(responses, completing: head.fields)
        listener.exchange = exchange
        if isCreation { listener.location = location(upload.creation.resourcePath) }
        listener.heartbeat = Heartbeat(progressReport, rate: interimRate)
        listener.isResumable = !isCreation || isLocationTold
        listener.hasSentAll = isCreation
        if let refusal = try delivery.deliver(upload, to: listener) {
            // One made of parts is found again by them.
            if isCreation, dialect.forgetsFailedCreation, !upload.state.kind.isFinal,
                refusal.completeness == .incomplete
            {
                try upload.remove(durably: true)
                return refuse(refusal)
            }
            enqueue(upload)
            if refusal.isOnlyLater, dialect.knowsLocked { return refuse(.finalResponsePending) }
            if refusal.isOnlyLater, listener.isResumable { return breakOff(refusal) }
            refuse(refusal, offset: upload.state.offset)
        }
    }

    /// Delivers an upload that waits for its next attempt, its final response only stored.
    func deliverUnseen(_ upload: Upload) throws(SpoolError) {
        // This request's client stands for the one who hears that it is not delivered.
        var listener = ResponseListener(responses, completing: try upload.completion())
        listener.isWitnessed = !exchange.isPeerGone
        _ = try delivery.deliverWaiting(upload, to: listener)
        enqueue(upload)
    }

    /// Leaves an upload to the queue if its record says so.
    private func enqueue(_ upload: Upload) {
        guard upload.state.phase == .deferred, let next = upload.nextAttempt else { return }
        gateway.deliveries.queue.add(upload.creation, due: next)
    }

    /// Answers with the stored final response of an upload whose client lost it, or refuses.
    func replay(
        _ upload: Upload,
        isCreation: Bool,
        otherwise refusal: Refusal
    ) throws(SpoolError) {
        guard let response = try upload.response() else {
            // A hold that the repair after a death has decided on must not be found undecided.
            try upload.sync()
            return refuse(refusal, offset: upload.state.offset)
        }
        var head = response.head
        if response.content == nil { head.fields[.contentType] = nil }
        let final = responses.final(
            head,
            offset: upload.state.offset,
            location: isCreation ? location(upload.creation.resourcePath) : nil
        )
        exchange.answer(final.answer(with: response.content ?? []))
    }
}
