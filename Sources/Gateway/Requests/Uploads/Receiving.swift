// Reception of the content of a creation or an append (draft-12 §4.2, §4.4), and the response.
//
// This file defines the order of the steps; `UploadState` makes the decisions.

import SpoolgateDelivery
import SpoolgateExchange
import SpoolgateJournal
import SpoolgatePosix
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateUploadProtocol

extension UploadOperation {
    func receive(
        upTo ceiling: UploadState.Ceiling,
        _ completeness: Completeness
    ) throws(SpoolError) {
        let check = try beginCheck()
        let isLast = completeness == .complete || completeness == .atLength && ceiling.isLength
        // The response acknowledges the offset, or the delivery or acceptance requires durable content.
        if !isLast || upload.isPromisedByAttempt || route.settings.reply == .accepted {
            upload.expectPromise()
        }
        if !isCreation || request.isLocationTold { exchange.upload = upload.creation.id }
        let end = try gateway.transfers.receive(
            into: upload,
            from: request.context.remoteAddress,
            isLast: isLast
        ) { buffer, transfer throws(SpoolError) in
            try receive(into: buffer, upTo: ceiling, completeness, check, transfer)
        }
        try answer(end, check, ceiling, completeness)
    }

    private func receive(
        into buffer: ContentBuffer,
        upTo ceiling: UploadState.Ceiling,
        _ completeness: Completeness,
        _ check: ContentCheck?,
        _ transfer: Transfer
    ) throws(SpoolError) -> ReceptionEnd {
        var progress = ReceptionProgress(
            progressReport,
            rate: request.interimRate,
            from: offset,
            hasLength: head.contentLength != .unknown
        )
        // A client that treats offset == length as success must not receive that offset for content that ended early.
        let withheld: Reception.Withheld =
            switch dialect.takesOffsetForSuccess {
            case true where ceiling.isLength: .last
            // Any byte may be the last.
            case true where completeness == .complete: .newest
            default: .none
            }
        let most = ceiling.offset - offset - (withheld == .last ? 1 : 0)
        let obstacle = laneObstacle(most: most, withheld: withheld, hasDigest: check != nil)
        defer {
            // Closes the alarm's descriptor, which `ThreadBudget` does not count while a request delivers.
            exchange.setAlarm(nil)
            notePath(obstacle, transfer)
        }
        if obstacle == nil,
            let end = try receiveByLane(
                most: most,
                afterEach: { count throws(SpoolError) in
                    transfer.add(Int(count), byNginx: true)
                    try progress.note(upload)
                }
            )
        {
            return end
        }
        let end = try Reception(exchange: exchange, buffer: buffer).receive(
            room: ceiling.offset - offset,
            withheld: withheld,
            store: { bytes throws(SpoolError) in
                check?.reading.update(bytes)
                try upload.append(bytes)
                transfer.add(bytes.byteCount)
            },
            afterEach: { () throws(SpoolError) in
                // Content that may be discarded is not acknowledged.
                if check == nil { try progress.note(upload) }
            },
            // The memory buffer is for content that will soon be complete.
            whenSlow: { () throws(SpoolError) in try upload.store() },
            // A crash after the last byte must not leave an offset whose client takes it for success.
            beforeLast: { () throws(SpoolError) in
                if withheld == .newest { try upload.setLength(offset + 1) }
            }
        )
        if end == .ended { try progress.end(upload) }
        return end
    }

    @inline(never)
    private func answer(
        _ end: ReceptionEnd,
        _ check: ContentCheck?,
        _ ceiling: UploadState.Ceiling,
        _ completeness: Completeness
    ) throws(SpoolError) {
        if let check, try !endCheck(check, end) { return }
        switch end {
        case .ended:
            log.received(upload.creation.id, offset: offset)
            try carryOut(upload.state.decideAtEnd(completeness, dialect: dialect))
        case .interrupted(let reason):
            journal.interrupted(upload, reason: reason)
            if isCreation, dialect.forgetsFailedCreation { try upload.remove() }
            exchange.abort()
        case .exceeded:
            try refuseExcess(ceiling)
        }
    }

    /// Refuses content that exceeds the limit of the message or of the representation.
    private func refuseExcess(_ ceiling: UploadState.Ceiling) throws(SpoolError) {
        let (refusal, deactivates) = upload.state.decideExcess(
            ceiling,
            dialect: dialect,
            limits: route.settings.limits
        )
        guard deactivates || isCreation && dialect.forgetsFailedCreation else {
            return try refuseDurably(refusal)
        }
        try upload.remove(durably: true)
        journal.deactivated(upload, refusal)
        refuse(refusal)
    }

    @inline(never)
    func carryOut(_ answer: UploadState.Answer) throws(SpoolError) {
        switch answer {
        case .goOn:
            try upload.sync()
            exchange.answer(
                locationOfCreation.map { responses.created(location: $0, offset: offset) }
                    ?? responses.appended(offset: offset)
            )
        case .deliver:
            if upload.state.length == nil { try upload.setLength(offset) }
            if upload.state.phase == .receiving { journal.completed(upload) }
            try complete()
        case .accepted: answerAccepted(upload.creation, length: offset)
        case .replay(let refusal): try replay(otherwise: refusal)
        case .refuse(let refusal): try refuseDurably(refusal)
        case .breakOff: breakOff(.deliveryUnderWay)
        }
    }
}
