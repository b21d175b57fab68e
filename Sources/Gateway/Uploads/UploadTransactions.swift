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
            guard
                case .receive(let ceiling, let ceilingIsLength, _) =
                    UploadState.decide(creation, limits: route.limits)
            else { return }
            do throws(SpoolError) {
                var request = on(upload)
                request.tellsProgress = head.contentLength != .known(0)
                try request.receive(
                    into: upload,
                    ceiling: ceiling,
                    ceilingIsLength: ceilingIsLength,
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
        if isLocationTold { return exchange.release }
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
        if answersQueued(id, append) { return }
        withUpload(id, patience: .verdict) { upload throws(SpoolError) in
            try on(upload).append(append, to: upload)
        }
    }

    private func append(
        _ append: UploadRequest.Append,
        to upload: Upload
    ) throws(SpoolError) {
        switch upload.state.decide(append, dialect: dialect, limits: route.limits) {
        case .receive(let ceiling, let ceilingIsLength, let length):
            try checkRoom(for: append, to: upload, ceiling: ceiling, length: length)
            if let length { try upload.setLength(length) }
            try receive(
                into: upload,
                ceiling: ceiling,
                ceilingIsLength: ceilingIsLength,
                completeness: append.completeness,
                isCreation: false
            )
        case .deliver:
            try complete(upload, isCreation: false)
        case .replay:
            try replay(upload)
        case .refuse(let refusal):
            try upload.sync()
            refuse(refusal, offset: upload.state.offset)
        case .breakOff:
            breakOff(.deliveryUnderWay)
        }
    }

    /// Refuses an append without room for its content before that is read; an empty one needs none.
    private func checkRoom(
        for append: UploadRequest.Append,
        to upload: Upload,
        ceiling: Int64,
        length: Int64?
    ) throws(SpoolError) {
        guard ceiling > upload.state.offset, append.contentLength != .known(0) else { return }
        let rest = append.completeness == .complete ? length.map { $0 - upload.state.offset } : nil
        try gateway.spool.checkRoom(for: append.contentLength.count ?? rest ?? 0)
    }

    // MARK: Receiving

    private func receive(
        into upload: Upload,
        ceiling: Int64,
        ceilingIsLength: Bool,
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
                room: ceiling - upload.state.offset,
                // A client that takes offset == length for success must not hear that of content that
                // never ended.
                keepsLast: ceilingIsLength && dialect.takesOffsetForSuccess,
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
            try finishMessage(upload, completeness: completeness, isCreation: isCreation)
        case .interrupted(let reason):
            journal.interrupted(upload, reason: reason)
            exchange.abort()
        case .exceeded:
            try refuseExcess(upload, ceiling: ceiling, ceilingIsLength: ceilingIsLength)
        }
    }

    /// At the proper end of a message's content.
    private func finishMessage(
        _ upload: Upload,
        completeness: Completeness,
        isCreation: Bool
    ) throws(SpoolError) {
        switch upload.state.decideAtEnd(completeness, dialect: dialect) {
        case .complete(let length):
            if upload.state.length == nil { try upload.setLength(length) }
            if upload.state.phase == .receiving { journal.completed(upload) }
            try complete(upload, isCreation: isCreation)
        case .partial:
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
        case .replay:
            try replay(upload)
        case .refuse(let refusal):
            try upload.sync()
            refuse(refusal, offset: upload.state.offset)
        case .breakOff:
            breakOff(.deliveryUnderWay)
        }
    }

    /// The content went on past what this message or the representation may have.
    private func refuseExcess(
        _ upload: Upload,
        ceiling: Int64,
        ceilingIsLength: Bool
    ) throws(SpoolError) {
        let refusal = UploadState.refusalAtCeiling(
            ceiling,
            ceilingIsLength: ceilingIsLength,
            limits: route.limits
        )
        // An upload that is whole already is unharmed by a request that has too much.
        if ceilingIsLength, dialect.deactivatesOnExcess, upload.state.phase == .receiving {
            try upload.remove(durably: true)
            journal.deactivated(upload, refusal)
            return refuse(refusal)
        }
        try upload.sync()
        refuse(refusal, offset: upload.state.offset)
    }

    // MARK: Offset retrieval, cancellation, options

    /// Tells the offset, made durable first (draft-12 §4.3).
    ///
    /// A client that takes offset == length for success hears it only once the upstream has taken
    /// the upload: for one that is complete and waits for its next attempt, this is that attempt.
    func retrieveOffset(_ id: UploadID) {
        if answersQueued(id, nil) { return }
        withUpload(id, patience: .short) { upload throws(SpoolError) in
            var told = upload.state
            if dialect.takesOffsetForSuccess {
                // An accepted one is a success already.
                // A delivery is no short request.
                if told.phase == .deferred, visit?.isHurried == true { return breakOff(.busy) }
                if told.phase == .deferred, route.reply == .upstream || upload.nextAttempt == nil,
                    try !deliverUnseen(upload)
                {
                    return refuse(upload.state.phase.goneRefusal ?? .finalResponsePending)
                }
                if told.phase == .held { return refuse(.finalResponsePending) }
                if let status = try upload.response()?.head.status, status.code >= 400 {
                    return refuse(.upstreamRefusedGone)
                }
            }
            // Also of one that is held: who is told that must not find it gone.
            try upload.sync()
            if let refusal = told.phase.goneRefusal { return refuse(refusal) }
            // Also of an upload delivered just now "incomplete" is said: nobody has heard the final
            // response, and a client that wants it comes for it with an empty append.
            told.offset = upload.state.offset
            exchange.answer(
                on(upload).responses.offsetTold(
                    told,
                    remainingAge: max(0, remainingAge(of: upload))
                )
            )
        }
    }

    /// Whether a request on an upload that the queue delivers just now was answered at once.
    private func answersQueued(_ id: UploadID, _ append: UploadRequest.Append?) -> Bool {
        do throws(SpoolError) { return try answerQueued(id, append) } catch {
            refuse(error, upload: id)
            return true
        }
    }

    /// Removes the upload (draft-12 §4.5); one that is being delivered is removed after the verdict.
    func cancel(_ id: UploadID) {
        withUpload(id, patience: .verdict) { upload throws(SpoolError) in
            if let refusal = upload.state.cancellationRefusal { return refuse(refusal) }
            try upload.remove(durably: true)
            on(upload).journal.cancelled(upload)
            exchange.answer(responses.cancelled())
        }
    }

    /// Tells what an upload resource accepts, without touching the upload.
    func resourceOptions(_ id: UploadID) { exchange.answer(responses.resourceOptions()) }
}

extension UploadState.Phase {
    /// The answer to an offset retrieval of an upload that will never be delivered by itself.
    fileprivate var goneRefusal: Refusal? {
        switch self {
        case .indeterminate: .outcomeUnknownGone
        case .failed: .deliveryFailedGone
        case .receiving, .deferred, .delivering, .delivered, .held: nil
        }
    }
}
