// The lane: the web server writes content directly into the upload's file, and the gateway acknowledges offsets.
//
// Invariant: after the lane ends, the gateway has the file back, or the process that has the file keeps the upload
// locked.

import SpoolgateDelivery
import SpoolgateExchange
import SpoolgateJournal
import SpoolgatePosix
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateUploadProtocol

extension UploadOperation {
    /// How many more bytes the web server may write: as many as it has written, within this range.
    ///
    /// This space is reserved, so a client that sends nothing blocks it for others.
    private static let laneWindows: ClosedRange<Int64> = 64 << 10...64 << 20
    /// How long the web server may take to close the file before the gateway closes the connection.
    private static let lanePatience = Duration.seconds(1)

    /// The first reason why the web server must not write the content into a file; nil if it may.
    ///
    /// `most` is the maximum number of bytes that the web server could write.
    func laneObstacle(most: Int64, withheld: Reception.Withheld, hasDigest: Bool) -> ContentPath? {
        if route.settings.spoolReceive == .off { return .off }
        if gateway.spool.isShared { return .shared }
        if gateway.isLaneUnusable.updateQuietly({ $0 }) { return .unusable }
        // Content that may be discarded passes through the gateway.
        if hasDigest || !upload.canBeLent { return .digest }
        if withheld == .newest { return .length }
        return most > 0 ? nil : .full
    }

    @inline(never)
    func notePath(_ obstacle: ContentPath?, _ transfer: Transfer) {
        let path = exchange.contentPath(obstacle)
        transfer.note(path)
        // Also counts bytes that nginx had written but not reported when the client disconnected.
        if path == .used { transfer.add(Int(max(0, offset - transfer.offset)), byNginx: true) }
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

    /// Lets the web server write the content into the upload's file if the web server offers to do so.
    ///
    /// Call it only if `laneObstacle` is nil. The next read of content declines an offer that is not accepted here.
    /// Bytes after the first `most` pass through the gateway. `afterEach` is called with the number of new bytes, or
    /// with 0 after the alarm rang.
    ///
    /// - Returns: nil if the gateway must read the rest, or at least the end of the content.
    /// - Throws: `SpoolError` if storing failed; bytes that had been stored remain.
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
                    // The web server reports only from time to time; content that has grown is not stalled.
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

    /// The total number of bytes that the web server may write after it has written `written`.
    private static func most(written: Int64, expected: Int64) -> Int64 {
        min(expected, written + min(max(written, laneWindows.lowerBound), laneWindows.upperBound))
    }

    private func limit(expected: Int64) -> LaneLimit {
        let count = upload.content.lent ?? 0
        return LaneLimit(count: count, restFollows: count == expected)
    }

    private func widen(
        _ lane: any ContentLane,
        written: Int64,
        expected: Int64
    ) throws(SpoolError) {
        guard let lent = upload.content.lent else { return }
        let left = lent - written
        let most = Self.most(written: written, expected: expected)
        // Waits until as much is written as is left: a client that sends single bytes must not obtain a second loan.
        guard most > lent, left <= min(written, (most - written) / 2) else { return }
        var limit = LaneLimit(count: lent, restFollows: true)
        do throws(SpoolError) {
            try upload.content.lendMore(upTo: most - lent)
            limit = self.limit(expected: expected)
        } catch {
            guard error.isNoRoom else { throw error }
            // Space may become free before the limit is reached. At the limit, the content may be complete; if more
            // follows, it is refused on arrival.
            guard left == 0 else { return }
        }
        // If widening fails, reading the next report fails too.
        try? lane.widen(limit)
    }

    /// Accepts no more offers if nginx could not use the file, for example because AppArmor or SELinux forbids it.
    ///
    /// Otherwise no large upload would succeed. Offers are accepted again after new settings.
    private func noteIfUnusable(_ count: Int64, errno: Int32) {
        let error = SystemError(call: "writev", subject: "by nginx", errno: errno)
        guard count == 0, error.mayBeForbidden else { return }
        let isNews = gateway.isLaneUnusable.updateQuietly { isUnusable in
            defer { isUnusable = true }
            return !isUnusable
        }
        if isNews { log.frontCannotWrite(error) }
    }

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
        // The web server closes the file with the connection.
        exchange.abort()
        let limit = Deadline.after(request.inUseTimeout)
        guard try upload.takeBack(count, errno: errno, until: limit) else {
            throw .busy(upload.creation.id)
        }
    }
}
