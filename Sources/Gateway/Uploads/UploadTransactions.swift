// What a request does to an upload resource: create it, append to it, tell its offset, cancel it.
//
// The decisions are UploadProtocol's, the bytes the spool's; here stands the order of events.

import Delivery
import Exchange
import HTTPTypes
import Journal
import Posix
import Settings
import Spool
import UploadProtocol
import Upstream

extension Request {
    // MARK: Creation

    /// Creates an upload and receives the creation's content (draft-12 §4.2).
    func create(_ creation: UploadRequest.Creation) {
        let id = UploadID.random()
        let path = route.resources.path(of: id, creationPath: head.path)
        var isTold = false
        do throws(SpoolError) {
            let upload = try gateway.spool.create(
                uploadCreation(id: id, resourcePath: path),
                length: creation.length,
                expecting: head.contentLength.count ?? 0,
                requestRelease: releaseOfCreation
            )
            defer { upload.unlock() }
            journal.created(upload)
            // Before any content is read, so that a client that is cut then can come back.
            if isLocationTold {
                isTold = true
                exchange.send(interim: responses.interimCreated(location: location(path)))
            }
            do throws(SpoolError) {
                var request = on(upload)
                request.tellsProgress = head.contentLength != .known(0)
                try request.receive(
                    into: upload,
                    upTo: UploadState.decide(creation, limits: route.limits),
                    completeness: creation.completeness,
                    isCreation: true
                )
            } catch {
                // Its client was never told where it is: nobody comes back, and its room is needed.
                if !isLocationTold, upload.state.phase == .receiving { try? upload.remove() }
                throw error
            }
        } catch {
            refuse(error, upload: id, exists: isTold)
        }
    }

    /// Whether this request's client hears 104 and in it where its upload is.
    var isLocationTold: Bool {
        dialect.allowsInterim(toCreationOf: head.contentLength)
            && exchange.context.interimStatuses.contains(104)
    }

    /// How a creation is asked to let go; not at all where its client was not told where the upload is
    /// and could not resume it.
    private var releaseOfCreation: @Sendable () -> Void {
        if isLocationTold { return exchange.interrupt }
        return {}
    }

    func uploadCreation(id: UploadID, resourcePath: String) -> UploadCreation {
        UploadCreation(
            id: id,
            route: route.name,
            owner: exchange.context.owner,
            authorizedOwner: exchange.context.owner == nil ? grant.owner : nil,
            maxSize: grant.maxSize,
            head: recordedHead,
            resourcePath: resourcePath,
            remoteAddress: exchange.context.remoteAddress,
            scheme: exchange.context.scheme,
            created: gateway.clock.now,
            isRepeatable: route.settings.mayRepeat(head)
        )
    }

    /// The head without what the record must not keep.
    private var recordedHead: RequestHead {
        var head = head
        head.fields = UpstreamFields.recorded(head.fields, policy: route.fields)
        return head
    }

    // MARK: Append

    /// Appends the request's content to an upload (draft-12 §4.4).
    func append(_ append: UploadRequest.Append, to id: UploadID) {
        if answersUnderWay(id, append) { return }
        withUpload(id, patience: .finalResponse) { upload throws(SpoolError) in
            try on(upload).append(append, to: upload)
        }
    }

    private func append(
        _ append: UploadRequest.Append,
        to upload: Upload
    ) throws(SpoolError) {
        switch upload.state.decide(append, dialect: dialect, limits: route.limits) {
        case .receive(let ceiling):
            try checkRoom(for: append, to: upload, ceiling)
            if let length = ceiling.length { try upload.setLength(length) }
            try receive(
                into: upload,
                upTo: ceiling,
                completeness: append.completeness,
                isCreation: false
            )
        case .answer(let answer):
            try carryOut(answer, on: upload, isCreation: false)
        }
    }

    /// Answers a message whose content was received, or has none to receive.
    private func carryOut(
        _ answer: UploadState.Answer,
        on upload: Upload,
        isCreation: Bool
    ) throws(SpoolError) {
        switch answer {
        case .goOn:
            try upload.sync()
            let offset = upload.state.offset
            exchange.answer(
                isCreation
                    ? responses.created(
                        location: location(upload.creation.resourcePath),
                        offset: offset
                    )
                    : responses.appended(offset: offset)
            )
        case .deliver:
            if upload.state.length == nil { try upload.setLength(upload.state.offset) }
            if upload.state.phase == .receiving { journal.completed(upload) }
            try complete(upload, isCreation: isCreation)
        case .accepted: answerAccepted(upload.creation, length: upload.state.offset)
        case .replay(let refusal): try replay(upload, otherwise: refusal)
        case .refuse(let refusal):
            try upload.sync()
            refuse(refusal, offset: upload.state.offset)
        case .breakOff: breakOff(.deliveryUnderWay)
        }
    }

    /// Refuses an append without room for its content before that is read; an empty one needs none.
    private func checkRoom(
        for append: UploadRequest.Append,
        to upload: Upload,
        _ ceiling: UploadState.Ceiling
    ) throws(SpoolError) {
        let offset = upload.state.offset
        guard ceiling.offset > offset, append.contentLength != .known(0) else { return }
        let rest = append.completeness == .complete ? ceiling.length.map { $0 - offset } : nil
        try gateway.spool.checkRoom(for: append.contentLength.count ?? rest ?? 0)
    }

    // MARK: Receiving

    private func receive(
        into upload: Upload,
        upTo ceiling: UploadState.Ceiling,
        completeness: Completeness,
        isCreation: Bool
    ) throws(SpoolError) {
        let check = try beginCheck(of: upload)
        let end = try gateway.buffers.withBuffer { buffer throws(SpoolError) in
            var progress = ReceptionProgress(
                progressReport,
                rate: interimRate,
                from: upload.state.offset
            )
            return try Reception(exchange: exchange, buffer: buffer).receive(
                room: ceiling.offset - upload.state.offset,
                // A client that takes offset == length for success must not hear that of content that
                // never ended.
                keepsLast: ceiling.isLength && dialect.takesOffsetForSuccess,
                store: { bytes throws(SpoolError) in
                    check?.update(bytes)
                    try upload.append(bytes)
                },
                afterEach: { () throws(SpoolError) in
                    // What may be taken back is not told.
                    if check == nil { try progress.note(upload) }
                }
            )
        }
        if let check, try !endCheck(check, of: upload, end, isCreation: isCreation) { return }
        switch end {
        case .ended:
            log.received(upload.creation.id, offset: upload.state.offset)
            let answer = upload.state.decideAtEnd(completeness, dialect: dialect)
            try carryOut(answer, on: upload, isCreation: isCreation)
        case .interrupted(let reason):
            journal.interrupted(upload, reason: reason)
            exchange.abort()
        case .exceeded:
            try refuseExcess(upload, ceiling)
        }
    }

    /// The content went on past what this message or the representation may have.
    private func refuseExcess(
        _ upload: Upload,
        _ ceiling: UploadState.Ceiling
    ) throws(SpoolError) {
        let (refusal, deactivates) = upload.state.decideExcess(
            ceiling,
            dialect: dialect,
            limits: route.limits
        )
        if deactivates {
            try upload.remove(durably: true)
            journal.deactivated(upload, refusal)
            return refuse(refusal)
        }
        try upload.sync()
        refuse(refusal, offset: upload.state.offset)
    }

    // MARK: Offset retrieval, cancellation, options

    /// Tells the offset, made durable first (draft-12 §4.3).
    func retrieveOffset(_ id: UploadID) {
        if answersUnderWay(id) { return }
        withUpload(id, patience: .short) { upload throws(SpoolError) in
            var decision = try seen(upload).decideRetrieval(dialect)
            if decision == .deliverFirst {
                // A delivery is no short request.
                if visit?.isHurried == true { return breakOff(.busy) }
                try deliverUnseen(upload)
                decision = try seen(upload).decideRetrieval(dialect, hasTried: true)
            }
            // Also of one that is held: who is told that must not find it gone.
            try upload.sync()
            switch decision {
            case .tell(let completeness):
                exchange.answer(
                    on(upload).responses.offsetTold(
                        upload.state,
                        completeness,
                        remainingAge: max(0, remainingAge(of: upload))
                    )
                )
            case .refuse(let refusal): refuse(refusal)
            case .deliverFirst, .breakOff: breakOff(.deliveryUnderWay)
            }
        }
    }

    /// The state that decides on an offset retrieval.
    private func seen(_ upload: Upload) throws(SpoolError) -> UploadState {
        var state = upload.state
        state.isAccepted = route.reply == .accepted && upload.nextAttempt != nil
        // Others are told nothing of it, and it is not read for them.
        if dialect.takesOffsetForSuccess {
            state.finalStatus = try upload.response()?.head.status.code
        }
        return state
    }

    /// Removes the upload (draft-12 §4.5); one that is being delivered is removed after the final response.
    func cancel(_ id: UploadID) {
        withUpload(id, patience: .finalResponse) { upload throws(SpoolError) in
            switch upload.state.row(dialect).cancellation {
            case .remove:
                try upload.remove(durably: true)
                on(upload).journal.cancelled(upload)
                exchange.answer(responses.cancelled())
            case .refuse(let refusal): refuse(refusal)
            case .breakOff: breakOff(.deliveryUnderWay)
            }
        }
    }

    /// Tells what an upload resource accepts, without touching the upload.
    func resourceOptions(_ id: UploadID) { exchange.answer(responses.resourceOptions()) }
}
