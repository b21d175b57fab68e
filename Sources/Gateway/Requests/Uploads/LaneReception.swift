// The lane: content that the web server writes into the upload's file by itself. The gateway decides how much,
// and tells offsets; content crosses no socket.
//
// Invariant: whichever way it ends, the file is back, or the upload is left locked by whoever still has it.

import SpoolgateDelivery
import SpoolgateExchange
import SpoolgateJournal
import SpoolgatePosix
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateUploadProtocol

extension UploadOperation {
    /// Bytes that the web server may write beyond those it has written: as many again, within these bounds.
    ///
    /// Room is taken for them, which a client that sends nothing would keep from all others.
    private static let laneWindows: ClosedRange<Int64> = 64 << 10...64 << 20
    /// How long it may take to close the file before its connection is closed.
    private static let lanePatience = Duration.seconds(1)

    /// Why the web server may not write the message's content; nil: it may if it offers to.
    ///
    /// - Parameters:
    ///   - most: most bytes that it may write.
    ///   - hasDigest: whether the content is verified.
    /// - Returns: the first of the reasons.
    func laneObstacle(most: Int64, hasDigest: Bool) -> ContentPath? {
        if route.settings.spoolReceive == .off { return .off }
        if gateway.spool.isShared { return .shared }
        if gateway.isLaneUnusable.updateQuietly({ $0 }) { return .unusable }
        // What may have to be taken back goes through the gateway.
        if hasDigest || !upload.canBeLent { return .digest }
        return most > 0 ? nil : .full
    }

    /// Records which path the message's content took.
    @inline(never)
    func notePath(_ obstacle: ContentPath?, _ transfer: Transfer) {
        let path = exchange.contentPath(obstacle)
        transfer.note(path)
        // What nginx had written when its client left and had not told.
        if path == .taken { transfer.add(Int(max(0, offset - transfer.offset)), byNginx: true) }
        let shares = transfer.shares
        exchange.noteWritten(shares.nginx)
        journal.written(
            upload,
            path,
            nginx: shares.nginx,
            gateway: shares.gateway,
            on: route.counts
        )
    }

    /// Receives content by the lane, if the web server offers it, and as far as it may go.
    ///
    /// Only without an obstacle. An offer that is not granted here is declined with the first read of content.
    ///
    /// - Parameters:
    ///   - most: most bytes; what is behind them comes as ever.
    ///   - afterEach: called as content comes, for progress, with bytes that came.
    /// - Returns: how the content ended; nil: what is left of it, its end at least, is still to be received.
    /// - Throws: `SpoolError` when storing failed; what was stored before stays.
    func receiveByLane(
        most: Int64,
        afterEach: (Int64) throws(SpoolError) -> Void
    ) throws(SpoolError) -> ReceptionEnd? {
        let lane: any ContentLane
        do throws(ContentError) {
            guard let offered = try exchange.offeredLane() else { return nil }
            lane = offered
        } catch {
            return .interrupted(error)
        }
        let start = offset
        let expected = min(head.contentLength.count ?? most, most)
        let file = try upload.lend(upTo: Self.most(written: 0, expected: expected))
        do throws(SpoolError) {
            do throws(ContentError) {
                try lane.grant(file, at: start, limit(expected: expected))
            } catch {
                return try end(lane, .interrupted(error))
            }
            exchange.noteLaneTaken()
            while true {
                let received: LaneReport?
                do throws(ContentError) {
                    received = try lane.receiveReport()
                    if let received { exchange.noteWritten(received.count) }
                    try exchange.checkRate()
                } catch {
                    // It tells now and then only what it has written.
                    if error == .stalled, upload.content.hasGrown {
                        try upload.content.noteAdded(.max)
                        exchange.noteWritten(offset - start)
                        continue
                    }
                    return try end(lane, .interrupted(error))
                }
                guard let report = received else {
                    try afterEach(0)
                    continue
                }
                let before = offset
                if case .ended(let count, let errno) = report {
                    noteIfUnusable(count, errno: errno)
                    try takeBack(count, errno: errno)
                    try afterEach(offset - before)
                    return offset == start + count ? nil : .interrupted(.truncated)
                }
                try upload.content.noteAdded(report.count)
                try afterEach(offset - before)
                try widen(lane, written: report.count, expected: expected)
            }
        } catch {
            if upload.content.lent != nil { _ = try end(lane, .ended) }
            throw error
        }
    }

    /// The most bytes that the web server may write in all, once so many are written.
    private static func most(written: Int64, expected: Int64) -> Int64 {
        min(expected, written + min(max(written, laneWindows.lowerBound), laneWindows.upperBound))
    }

    private func limit(expected: Int64) -> LaneLimit {
        let count = upload.content.lent ?? 0
        return LaneLimit(count: count, restFollows: count == expected)
    }

    /// Lets more be written before what may be is used up.
    private func widen(
        _ lane: any ContentLane,
        written: Int64,
        expected: Int64
    ) throws(SpoolError) {
        guard let lent = upload.content.lent else { return }
        let left = lent - written
        let most = Self.most(written: written, expected: expected)
        // No more than was written: a client that sends a byte now and then gets no second loan.
        guard most > lent, left <= min(written, (most - written) / 2) else { return }
        var limit = LaneLimit(count: lent, restFollows: true)
        do throws(SpoolError) {
            try upload.content.lendMore(upTo: most - lent)
            limit = self.limit(expected: expected)
        } catch {
            guard error.isNoRoom else { throw error }
            // There may be room again when it is needed. Then the content may be at its end: what follows, if
            // anything does, is refused as it comes.
            guard left == 0 else { return }
        }
        // Where it cannot be told, the next report fails.
        try? lane.widen(limit)
    }

    /// Has later content come through the gateway if nginx could not use the file, as where AppArmor or SELinux keeps
    /// it away: else no large upload would ever succeed.
    private func noteIfUnusable(_ count: Int64, errno: Int32) {
        let error = SystemError(call: "writev", subject: "by nginx", errno: errno)
        guard count == 0, error.mayBeForbidden else { return }
        let isNews = gateway.isLaneUnusable.updateQuietly { isUnusable in
            defer { isUnusable = true }
            return !isUnusable
        }
        if isNews { log.frontCannotWrite(error) }
    }

    /// Ends the lane from this side.
    private func end(
        _ lane: any ContentLane,
        _ end: ReceptionEnd
    ) throws(SpoolError) -> ReceptionEnd {
        lane.stop()
        try takeBack(nil)
        return end
    }

    private func takeBack(_ count: Int64?, errno: Int32 = 0) throws(SpoolError) {
        if try upload.takeBack(count, errno: errno, until: .after(Self.lanePatience)) { return }
        // Then it closes it with the connection.
        exchange.abort()
        let limit = Deadline.after(request.inUseTimeout)
        guard try upload.takeBack(count, errno: errno, until: limit) else {
            throw .busy(upload.creation.id)
        }
    }
}
