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
        if !isCreation || request.isLocationReported { request.arrival.upload = upload.creation.id }
        let end = try receiveContent(upTo: ceiling, completeness, check, isLast: isLast)
        try respond(end, check, ceiling, completeness)
    }

    private func receiveContent(
        upTo ceiling: UploadState.Ceiling,
        _ completeness: Completeness,
        _ check: ContentCheck?,
        isLast: Bool
    ) throws(SpoolError) -> ReceptionEnd {
        let buffer = try gateway.spool.buffers.take()
        defer { gateway.spool.buffers.put(buffer) }
        // A client that treats offset == length as success must not receive that offset for content that ended early.
        let withheld: Reception.Withheld =
            switch dialect.takesOffsetForSuccess {
            case true where ceiling.isLength: .last
            // Any byte may be the last.
            case true where completeness == .complete: .newest
            default: .none
            }
        let maximum = ceiling.offset - offset - (withheld == .last ? 1 : 0)
        let obstacle = laneObstacle(maximum: maximum, withheld: withheld, hasDigest: check != nil)
        var reception = Reception(
            of: request,
            into: upload,
            by: buffer,
            upTo: ceiling.offset,
            withheld: withheld,
            reading: check?.reading
        )
        if check == nil { reception.progress = newProgress() }
        let transfer = gateway.transfers.begin(
            upload,
            request.count,
            from: request.context.remoteAddress
        )
        var end: ReceptionEnd?
        defer {
            if let error = reception.nginxError { noteLaneUnusable(error) }
            endContent(transfer, end, obstacle, isLast: isLast)
        }
        let received = try reception.run(
            nginxWriting: obstacle == nil ? min(head.contentLength.count ?? maximum, maximum) : 0,
            patience: request.inUseTimeout
        )
        end = received
        return received
    }

    private func newProgress() -> ReceptionProgress {
        ReceptionProgress(
            progressReport,
            rate: request.interimRate,
            from: offset,
            hasLength: head.contentLength != .unknown
        )
    }

    /// The first reason why nginx must not write the content into a file; nil if it may.
    ///
    /// `maximum` is the maximum number of bytes that nginx could write.
    private func laneObstacle(
        maximum: Int64,
        withheld: Reception.Withheld,
        hasDigest: Bool
    ) -> ContentPath? {
        if route.settings.spoolReceive == .off { return .off }
        if gateway.spool.isShared { return .shared }
        if gateway.isLaneUnusable.updateQuietly({ $0 }) { return .unusable }
        // Content that may be discarded passes through the gateway.
        if hasDigest || !upload.canBeLent { return .digest }
        if withheld == .newest { return .length }
        return maximum > 0 ? nil : .full
    }

    /// Accepts no more offers after nginx could not use the file, for example because AppArmor or SELinux forbids it.
    ///
    /// Otherwise no large upload would succeed. Offers are accepted again after new settings.
    private func noteLaneUnusable(_ error: SystemError) {
        let isNews = gateway.isLaneUnusable.updateQuietly { isUnusable in
            defer { isUnusable = true }
            return !isUnusable
        }
        if isNews { log.webServerCannotWrite(error) }
    }

    @inline(never)
    private func endContent(
        _ transfer: Transfer,
        _ end: ReceptionEnd?,
        _ obstacle: ContentPath?,
        isLast: Bool
    ) {
        // Closes the alarm's descriptor, which `ThreadBudget` does not count while a request delivers.
        exchange.setAlarm(nil)
        let path = request.contentPath(obstacle)
        transfer.note(path)
        let shares = transfer.shares
        journal.written(
            upload,
            path,
            nginx: shares.nginx,
            gateway: shares.gateway,
            on: route.counts
        )
        gateway.transfers.end(
            transfer,
            isInterrupted: end?.isInterrupted ?? true,
            isWhole: isLast && end == .ended
        )
    }

    @inline(never)
    private func respond(
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
    func carryOut(_ reply: UploadState.AppendReply) throws(SpoolError) {
        switch reply {
        case .goOn:
            try upload.sync()
            exchange.respond(
                locationOfCreation.map { responses.created(location: $0, offset: offset) }
                    ?? responses.appended(offset: offset)
            )
        case .deliver:
            if upload.state.length == nil { try upload.setLength(offset) }
            if upload.state.phase == .receiving { journal.completed(upload) }
            try complete()
        case .accepted: respondAccepted(upload.creation, length: offset)
        case .replay(let refusal): try replay(otherwise: refusal)
        case .refuse(let refusal): try refuseDurably(refusal)
        case .abort: abort(.deliveryUnderWay)
        }
    }
}

// MARK: Progress

// Progress reports in 104 (Upload Resumption Supported) while content is being received.
//
// Invariant: an offset is durable before it is acknowledged. More content is received while it becomes durable.

struct ReceptionProgress {
    /// The maximum number of bytes between two reports on content of unknown length.
    ///
    /// The client of such content buffers unacknowledged bytes, and pauses when its buffer is full.
    private static let step: Int64 = 4 << 20

    private let report: ProgressReport?
    private let rate: InterimRate
    private let step: Int64
    /// The offset of the last report, which may not be durable yet.
    private var reported: Int64
    private var next: Deadline
    /// Rings when a sync has succeeded or failed; nil until the first sync in the background.
    private var alarm: Alarm?

    /// Reports nothing.
    init() { self.init(nil, rate: InterimRate(), from: 0, hasLength: true) }

    /// Begins content at `offset`, which the client must already know.
    init(
        _ report: ProgressReport?,
        rate: InterimRate,
        from offset: Int64,
        hasLength: Bool
    ) {
        self.report = report
        self.rate = rate
        step = hasLength ? .max : Self.step
        reported = offset
        next = report == nil ? .never : rate.progressInterval.map { .after($0) } ?? .never
    }

    /// Acknowledges the upload's offset if a report is due; call it after content arrived or the alarm rang.
    mutating func note(_ upload: Upload) throws(SpoolError) {
        guard let report else { return }
        try reportDurable(upload, report)
        guard !upload.isSyncing, isDue(at: upload.offset) else { return }
        reported = upload.offset
        next = rate.progressInterval.map { .after($0) } ?? .never
        if let alarm = alarm(of: report), try upload.beginSync(ringing: alarm) {
            // The sync may be complete already.
            try reportDurable(upload, report)
        } else {
            try report.send(upload)
        }
    }

    /// Waits for a sync that is still running when the content ends, and acknowledges its offset.
    ///
    /// The next operation on the upload would wait for this sync as well.
    func end(_ upload: Upload) throws(SpoolError) {
        if let report { try reportDurable(upload, report, waits: true) }
    }

    private func reportDurable(
        _ upload: Upload,
        _ report: ProgressReport,
        waits: Bool = false
    ) throws(SpoolError) {
        if let durable = try upload.takeSync(waits: waits) { report.send(durable: durable) }
    }

    private func isDue(at offset: Int64) -> Bool {
        let count = offset - reported
        guard count > 0 else { return false }
        return count >= step || count >= rate.progressSize && next.hasPassed
    }

    /// Returns nil if no alarm can be created; each sync then delays the reception of content.
    private mutating func alarm(of report: ProgressReport) -> Alarm? {
        if alarm == nil, let made = try? Alarm() {
            alarm = made
            report.setAlarm(made)
        }
        return alarm
    }
}

// MARK: Verified content

// The content of a message with `Content-Digest` or `Upload-Checksum`, which counts completely or not at all (RFC 9530
// §2, draft-11 §9; tus, "checksum").
//
// Invariant: content that is not verified is never acknowledged, never delivered, and does not outlive its request.

/// The digests that a message states for its content, and the computation of the actual digests.
struct ContentCheck {
    let stated: DigestValues
    let reading: DigestReading
}

extension UploadOperation {
    /// Begins to verify a message's content, which counts only after `endCheck` has succeeded.
    ///
    /// - Returns: nil if the message states no digest.
    func beginCheck() throws(SpoolError) -> ContentCheck? {
        // `try?`: a field that cannot be verified was refused earlier. A complete upload receives no more content.
        guard upload.state.phase == .receiving, let stated = try? statedForContent, !stated.isEmpty
        else { return nil }
        try upload.beginUnverified()
        return ContentCheck(stated: stated, reading: DigestReading(stated.algorithms))
    }

    private var statedForContent: DigestValues {
        get throws(Refusal) {
            switch dialect.family {
            case .ietf: try DigestValues(.contentDigest, in: head.fields)
            case .tus: try DigestValues(checksumIn: head.fields)
            }
        }
    }

    /// Ends the verification, and discards content that is not verified; returns false if a refusal was sent.
    func endCheck(
        _ check: ContentCheck,
        _ end: ReceptionEnd
    ) throws(SpoolError) -> Bool {
        // A checksum in tus describes a chunk; it does not apply to a message without content.
        let isOfNothing = dialect.family == .tus && upload.durableOffset == offset
        guard end == .ended, !isOfNothing else {
            try upload.discardUnverified()
            return true
        }
        guard !check.stated.agrees(with: check.reading.finish()) else {
            try upload.verify()
            return true
        }
        try upload.discardUnverified()
        let mismatch: Refusal =
            dialect.family == .tus ? .checksumMismatch : .contentDigestMismatch
        if isCreation, !request.isLocationReported {
            // The client does not know the location and cannot resume.
            try upload.remove()
            refuse(mismatch)
        } else {
            try refuseDurably(mismatch)
        }
        return false
    }
}
