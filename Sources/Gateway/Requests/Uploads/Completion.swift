// What happens to an upload that a request found whole: it is delivered while the client waits, or
// accepted for the queue, or its stored response is told again.

import HTTPTypes
import SpoolgateDelivery
import SpoolgateExchange
import SpoolgateJournal
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateUploadProtocol

extension Request {
    /// How uploads of this request's route, or with limits of their own, are delivered for it.
    func delivery(on route: Route, _ journal: Journal) -> Delivery {
        Delivery(
            gateway.deliveries,
            route: route,
            journal: journal,
            patience: inUseTimeout,
            ticket: ticket
        )
    }
}

extension UploadOperation {
    private var delivery: Delivery { request.delivery(on: route, journal) }

    /// Answers the request that completed an upload, or came for its final response (draft-12 §4.1.2).
    func complete() throws(SpoolError) {
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
                Heartbeat(progressReport, rate: request.interimRate)
            )
            if let refusal { return refuse(refusal, offset: offset) }
            try delivery.keepCompletion(upload, head.fields)
            try accept()
        case .upstream: try deliver()
        }
    }

    private func deliver() throws(SpoolError) {
        var listener = ResponseListener(responses, completing: head.fields)
        listener.exchange = exchange
        listener.location = locationOfCreation
        listener.heartbeat = Heartbeat(progressReport, rate: request.interimRate)
        listener.isResumable = !isCreation || request.isLocationTold
        listener.hasSentAll = isCreation
        guard let refusal = try delivery.deliver(upload, to: listener) else { return }
        // One made of parts is found again by them.
        if isCreation, dialect.forgetsFailedCreation, !upload.state.kind.isFinal,
            refusal.completeness == .incomplete
        {
            try upload.remove(durably: true)
            return refuse(refusal)
        }
        enqueue()
        if refusal.isOnlyLater, dialect.knowsLocked { return refuse(.finalResponsePending) }
        if refusal.isOnlyLater, listener.isResumable { return breakOff(refusal) }
        refuse(refusal, offset: offset)
    }

    /// Delivers an upload that waits for its next attempt, its final response only stored.
    func deliverUnseen() throws(SpoolError) {
        // This request's client stands for the one who hears that it is not delivered.
        var listener = ResponseListener(responses, completing: try upload.completion())
        listener.isWitnessed = !exchange.isPeerGone
        _ = try delivery.deliverWaiting(upload, to: listener)
        enqueue()
    }

    /// Leaves an upload to the queue if its record says so.
    private func enqueue() {
        guard upload.state.phase == .deferred, let next = upload.nextAttempt else { return }
        gateway.deliveries.queue.add(upload.creation, due: next)
    }

    /// Answers with the stored final response of an upload whose client lost it, or refuses.
    func replay(otherwise refusal: Refusal) throws(SpoolError) {
        // A hold that the repair after a death has decided on must not be found undecided.
        guard let response = try upload.response() else { return try refuseDurably(refusal) }
        var head = response.head
        if response.content == nil { head.fields[.contentType] = nil }
        let final = responses.final(head, offset: offset, location: locationOfCreation)
        exchange.answer(final.answer(with: response.content ?? []))
    }
}
