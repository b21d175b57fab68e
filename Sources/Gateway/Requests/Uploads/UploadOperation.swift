// An upload operation, with the upload's own limits, journal and protocol.

import HTTPTypes
import SpoolgateDelivery
import SpoolgateExchange
import SpoolgateJournal
import SpoolgatePosix
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateUploadProtocol
import SpoolgateUpstream

/// One request's operation on one upload that the request has locked; used by the request's thread.
final class UploadOperation: Responding {
    let request: Request
    let upload: Upload
    let isCreation: Bool
    let route: Route
    let journal: Journal
    let responses: any ResponseWording

    init(_ request: Request, _ upload: Upload, isCreation: Bool = false) {
        self.request = request
        self.upload = upload
        self.isCreation = isCreation
        journal = request.gateway.deliveries.journal.of(upload.creation)
        var responses: any ResponseWording
        (route, responses) = request.limited(request.responses, to: upload.creation.maxSize)
        if request.isUnmarked, upload.creation.kind.family == .tus {
            responses = request.gateway.responses(to: request.head, .tus, on: route)
        }
        // Other dialects do not use the creation.
        self.responses =
            responses.dialect.repeatsAfterError ? responses.on(upload.creation.head) : responses
    }

    var head: RequestHead { request.head }
    var offset: Int64 { upload.offset }
    /// The upload resource's URI in a creation; otherwise nil.
    var locationOfCreation: String? {
        isCreation ? request.location(upload.creation.resourcePath) : nil
    }

    /// The progress report; nil if the client cannot receive reports or the creation has no content
    /// (`Dialect.allowsInterim(toCreationOf:)`).
    var progressReport: ProgressReport? {
        guard !isCreation || head.contentLength != .known(0) else { return nil }
        return ProgressReport(to: exchange, request.context, responses)
    }

    /// Makes the offset durable, then refuses the request; the response may state the offset.
    func refuseDurably(_ refusal: Refusal) throws(SpoolError) {
        try upload.sync()
        refuse(refusal, offset: offset)
    }
}

// MARK: Offset retrieval

// Offset retrieval (draft-12 §4.3): the offset is made durable before it is acknowledged.

extension Request {
    func retrieveOffset(_ id: UploadID) {
        if respondsUnderWay(id) { return }
        withUpload(id, patience: inUseTimeout) { operation throws(SpoolError) in
            try operation.retrieveOffset()
        }
    }
}

extension UploadOperation {
    fileprivate func retrieveOffset() throws(SpoolError) {
        var decision = try seen().decideRetrieval(dialect)
        if decision == .deliverFirst {
            // A delivery takes too long for a request that was admitted as a short one.
            if request.ticket?.isHurried == true { return abort(.busy) }
            try deliverUnseen()
            decision = try seen().decideRetrieval(dialect, hasTried: true)
        }
        // An upload on hold must still be on hold if a power failure follows this response.
        try upload.sync()
        switch decision {
        case .report(let completeness):
            exchange.respond(
                responses.offsetReported(
                    upload.state,
                    completeness,
                    remainingAge: max(0, request.remainingAge(of: upload)),
                    response: dialect.family == .tus ? try upload.response()?.head : nil
                )
            )
        case .refuse(let refusal): refuse(refusal)
        case .deliverFirst, .abort: abort(.deliveryUnderWay)
        }
    }

    private func seen() throws(SpoolError) -> UploadState {
        var state = upload.state
        state.isAccepted = route.hasAccepted(upload)
        // Other rows and dialects do not use the status.
        if dialect.takesOffsetForSuccess || state.phase == .failed {
            state.finalStatus = try upload.response()?.head.status.code
        }
        return state
    }
}

// MARK: Append

// An append to an upload (draft-12 §4.4; tus, "PATCH"), checked before its content is read.
//
// `UploadState` makes the decisions.

extension Request {
    func append(_ append: UploadRequest.Append, to id: UploadID) {
        if respondsUnderWay(id, append) { return }
        withUpload(id, patience: deliveryTimeout) { operation throws(SpoolError) in
            try operation.append(append)
        }
    }
}

extension UploadOperation {
    fileprivate func append(_ append: UploadRequest.Append) throws(SpoolError) {
        switch upload.state.decide(append, dialect: dialect, limits: route.settings.limits) {
        case .receive(let ceiling):
            try checkRoom(for: append, ceiling)
            if let length = ceiling.length { try upload.setLength(length) }
            try receive(upTo: ceiling, append.completeness)
        case .respond(let reply):
            try carryOut(reply)
        }
    }

    /// Refuses an append if the spool has no space for the content; an empty append needs no space.
    private func checkRoom(
        for append: UploadRequest.Append,
        _ ceiling: UploadState.Ceiling
    ) throws(SpoolError) {
        guard ceiling.offset > offset, append.contentLength != .known(0) else { return }
        let rest = append.completeness == .incomplete ? nil : ceiling.length.map { $0 - offset }
        try gateway.spool.checkRoom(for: append.contentLength.count ?? rest ?? 0)
    }
}

// MARK: Completion

// The handling of a complete upload: deliver it, accept it for the queue, or send its stored response again.

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
        listener.isResumable = !isCreation || request.isLocationReported
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
        if refusal.isOnlyLater, listener.isResumable { return abort(refusal) }
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
        listener.waiting = exchange
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
        exchange.respond(
            (isCreation ? final : final.toRest()).response(with: response.content ?? [])
        )
    }
}

// MARK: Acceptance

// The reply `accepted`: 202 as soon as an upload is durable.
//
// Invariant: after a 202 the upload is in the queue, even after a crash or power failure.

extension UploadOperation {
    /// Adds a complete upload to the queue, responds with 202 (RFC 9110 §15.3.3), and unlocks the upload.
    func accept() throws(SpoolError) {
        let isNew = upload.state.phase == .receiving || upload.nextAttempt == nil
        if isNew { try upload.accept(at: gateway.clock.now) }
        // Needed even for a queued upload, because the process that queued it may have crashed before it was durable.
        try upload.sync()
        if isNew { journal.accepted(upload) }
        let due = upload.nextAttempt ?? gateway.clock.now
        respondAccepted(upload.creation, length: request.isOrdinary ? nil : offset)
        upload.unlock()
        gateway.deliveries.queue.add(upload.creation, due: due)
    }
}

extension Responding {
    func respondAccepted(_ creation: UploadCreation, length: Int64?) {
        exchange.respond(
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
    func respondsUnderWay(_ id: UploadID, _ append: UploadRequest.Append? = nil) -> Bool {
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
                        == .respond(.accepted)
                else { return false }
                respondAccepted(creation, length: state.offset)
            } else {
                guard case .report(let completeness) = state.decideRetrieval(dialect) else {
                    return false
                }
                exchange.respond(
                    responses.on(creation.head).offsetReported(
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

// MARK: Cancellation

// The cancellation of an upload (draft-12 §4.5; tus, "termination").

extension Request {
    /// Removes an upload and responds; during a delivery, waits for the final response first.
    func cancel(_ id: UploadID) {
        withUpload(id, patience: deliveryTimeout) { operation throws(SpoolError) in
            let upload = operation.upload
            // In tus, every request that changes an upload must state the protocol version.
            if isUnmarked, upload.state.kind.family == .tus {
                return operation.refuse(.tusVersion)
            }
            var state = upload.state
            // Other dialects do not use the status.
            if dialect.knowsLocked { state.finalStatus = try upload.response()?.head.status.code }
            switch state.row(dialect).cancellation {
            case .remove:
                try upload.remove(durably: true)
                operation.journal.cancelled(upload)
                exchange.respond(responses.cancelled())
            case .refuse(let refusal):
                try upload.sync()
                refuse(refusal)
            case .abort: abort(.deliveryUnderWay)
            }
        }
    }
}
