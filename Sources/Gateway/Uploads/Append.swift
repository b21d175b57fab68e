// An append, and the end of any message whose content goes to an upload (draft-12 §4.4).
//
// The decisions are `UploadState`'s, the bytes the spool's; here stands the order of events.

import Delivery
import Exchange
import Journal
import Settings
import Spool
import UploadProtocol

extension Request {
    /// Appends the request's content to an upload (draft-12 §4.4).
    func append(_ append: UploadRequest.Append, to id: UploadID) {
        if answersUnderWay(id, append) { return }
        withUpload(id, patience: deliveryTimeout) { upload throws(SpoolError) in
            try on(upload).append(append, to: upload)
        }
    }

    private func append(
        _ append: UploadRequest.Append,
        to upload: Upload
    ) throws(SpoolError) {
        switch upload.state.decide(append, dialect: dialect, limits: route.settings.limits) {
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
    @inline(never)
    func carryOut(
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
        case .replay(let refusal):
            try replay(upload, isCreation: isCreation, otherwise: refusal)
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
        let rest = append.completeness == .incomplete ? nil : ceiling.length.map { $0 - offset }
        try gateway.spool.checkRoom(for: append.contentLength.count ?? rest ?? 0)
    }

    func receive(
        into upload: Upload,
        upTo ceiling: UploadState.Ceiling,
        completeness: Completeness,
        isCreation: Bool
    ) throws(SpoolError) {
        let check = try beginCheck(of: upload)
        let isLast = completeness == .complete || completeness == .atLength && ceiling.isLength
        // Its offset will be told at the end, or what follows the end needs it on the disk.
        if !isLast || upload.isPromisedByAttempt || route.settings.reply == .accepted {
            upload.expectPromise()
        }
        let end = try gateway.transfers.receive(
            into: upload,
            from: context.remoteAddress,
            by: gateway.spool.buffers,
            isLast: isLast
        ) { buffer, transfer throws(SpoolError) in
            var progress = ReceptionProgress(
                progressReport,
                rate: interimRate,
                from: upload.state.offset
            )
            // A client that takes offset == length for success must not hear that of content that
            // never ended.
            let keepsLast = ceiling.isLength && dialect.takesOffsetForSuccess
            // What may have to be taken back goes through here.
            if check == nil,
                let end = try receiveByLane(
                    into: upload,
                    most: ceiling.offset - upload.state.offset - (keepsLast ? 1 : 0),
                    afterEach: { count throws(SpoolError) in
                        transfer.add(Int(count))
                        try progress.note(upload)
                    }
                )
            {
                return end
            }
            return try Reception(content: content, buffer: buffer).receive(
                room: ceiling.offset - upload.state.offset,
                keepsLast: keepsLast,
                store: { bytes throws(SpoolError) in
                    check?.reading.update(bytes)
                    try upload.append(bytes)
                    transfer.add(bytes.byteCount)
                },
                afterEach: { () throws(SpoolError) in
                    // What may be taken back is not told.
                    if check == nil { try progress.note(upload) }
                },
                // Memory is for content that is soon whole.
                whenSlow: { () throws(SpoolError) in try upload.store() }
            )
        }
        try answer(
            end,
            check,
            of: upload,
            completeness: completeness,
            ceiling,
            isCreation: isCreation
        )
    }

    /// Answers a message whose content has ended, one way or another.
    @inline(never)
    private func answer(
        _ end: ReceptionEnd,
        _ check: ContentCheck?,
        of upload: Upload,
        completeness: Completeness,
        _ ceiling: UploadState.Ceiling,
        isCreation: Bool
    ) throws(SpoolError) {
        if let check, try !endCheck(check, of: upload, end, isCreation: isCreation) { return }
        switch end {
        case .ended:
            log.received(upload.creation.id, offset: upload.state.offset)
            let answer = upload.state.decideAtEnd(completeness, dialect: dialect)
            try carryOut(answer, on: upload, isCreation: isCreation)
        case .interrupted(let reason):
            journal.interrupted(upload, reason: reason)
            if isCreation, dialect.forgetsFailedCreation { try upload.remove() }
            exchange.abort()
        case .exceeded:
            try refuseExcess(upload, ceiling, isCreation: isCreation)
        }
    }

    /// The content went on past what this message or the representation may have.
    private func refuseExcess(
        _ upload: Upload,
        _ ceiling: UploadState.Ceiling,
        isCreation: Bool
    ) throws(SpoolError) {
        let (refusal, deactivates) = upload.state.decideExcess(
            ceiling,
            dialect: dialect,
            limits: route.settings.limits
        )
        if deactivates || isCreation && dialect.forgetsFailedCreation {
            try upload.remove(durably: true)
            journal.deactivated(upload, refusal)
            return refuse(refusal)
        }
        try upload.sync()
        refuse(refusal, offset: upload.state.offset)
    }
}
