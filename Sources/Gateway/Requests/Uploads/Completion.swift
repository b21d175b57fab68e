// The handling of a complete upload: deliver it, accept it for the queue, or send its stored response again.

import HTTPTypes
import SpoolgateDelivery
import SpoolgateExchange
import SpoolgateJournal
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateUploadProtocol
import SpoolgateUpstream

extension Request {
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

    /// Responds to a request that completed an upload, or that asks again for the final response (draft-12 §4.1.2).
    func complete() throws(SpoolError) {
        // The web server has closed this request and reported that to its client, which will retry.
        guard !exchange.isPeerGone else {
            journal.interrupted(upload, reason: .truncated)
            return exchange.abort()
        }
        switch route.settings.reply {
        case .accepted:
            // After a 202, the client could no longer receive this refusal.
            let refusal = try delivery.contradiction(
                of: upload,
                completing: request.completing,
                Heartbeat(progressReport, rate: request.interimRate)
            )
            if let refusal { return refuse(refusal, offset: offset) }
            try delivery.keepCompletion(upload, request.completing)
            try accept()
        case .upstream: try deliver()
        }
    }

    private func deliver() throws(SpoolError) {
        var listener = ResponseListener(responses, completing: request.completing)
        listener.exchange = exchange
        listener.location = locationOfCreation
        listener.heartbeat = Heartbeat(progressReport, rate: request.interimRate)
        listener.isResumable = !isCreation || request.isLocationTold
        listener.hasSentAll = isCreation
        guard let refusal = try delivery.deliver(upload, to: listener) else { return }
        // A concatenated upload is kept because its parts identify it.
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

    /// Makes the next attempt for a waiting upload, and stores the final response without sending it.
    func deliverUnseen() throws(SpoolError) {
        // The response to this request reports whether the upload was delivered. A request without content has no
        // digest of it.
        let names = route.settings.fields.credentialFields + [.host]
        var listener = ResponseListener(
            responses,
            completing: head.fields.filter { names.contains($0.name) }
        )
        listener.witness = exchange
        _ = try delivery.deliverWaiting(upload, to: listener)
        enqueue()
    }

    private func enqueue() {
        guard upload.state.phase == .deferred, let next = upload.nextAttempt else { return }
        gateway.deliveries.queue.add(upload.creation, due: next)
    }

    /// Sends the stored final response again, or `refusal` if none is stored.
    func replay(otherwise refusal: Refusal) throws(SpoolError) {
        // The repair after a crash may have put the upload on hold. The hold must be durable before the response
        // reports it.
        guard let response = try upload.response() else { return try refuseDurably(refusal) }
        var head = response.head
        if response.content == nil { head.fields[.contentType] = nil }
        let final = responses.final(
            head,
            isSuccess: upload.holdCause == nil,
            offset: offset,
            location: locationOfCreation
        )
        exchange.answer((isCreation ? final : final.toRest()).answer(with: response.content ?? []))
    }
}
