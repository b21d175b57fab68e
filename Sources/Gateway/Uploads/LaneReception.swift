// The lane: content that the web server writes into the upload's file by itself. The gateway decides how much,
// and tells offsets; content crosses no socket.
//
// Invariant: whichever way it ends, the file is back, or the upload is left locked by whoever still has it.

import Delivery
import Exchange
import Posix
import Settings
import Spool
import UploadProtocol

extension Request {
    /// Bytes that the web server may write beyond those it has written: as many again, within these bounds.
    ///
    /// Room is taken for them, which a client that sends nothing would keep from all others.
    private static let laneWindows: ClosedRange<Int64> = 64 << 10...64 << 20
    /// How long it may take to close the file before its connection is closed.
    private static let lanePatience = Duration.seconds(1)

    /// Receives content by the lane, where the route has it on, the web server offers it, and as far as it may go.
    ///
    /// An offer that is not granted here is declined with the first read of content.
    ///
    /// - Parameters:
    ///   - upload: where it goes.
    ///   - most: most bytes; what is behind them comes as ever.
    ///   - afterEach: called as content comes, for progress, with bytes that came.
    /// - Returns: how the content ended; nil: what is left of it, its end at least, is still to be received.
    /// - Throws: `SpoolError` when storing failed; what was stored before stays.
    func receiveByLane(
        into upload: Upload,
        most: Int64,
        afterEach: (Int64) throws(SpoolError) -> Void
    ) throws(SpoolError) -> ReceptionEnd? {
        do throws(ContentError) {
            guard route.settings.spoolReceive == .on, most > 0, upload.canBeLent,
                try content.offersLane()
            else { return nil }
        } catch {
            return .interrupted(error)
        }
        let start = upload.state.offset
        let expected = min(head.contentLength.count ?? most, most)
        let file = try upload.lend(upTo: Self.most(written: 0, expected: expected))
        do throws(SpoolError) {
            do throws(ContentError) {
                try exchange.grant(file, at: start, limit(of: upload, expected: expected))
            } catch {
                return try end(upload, .interrupted(error))
            }
            while true {
                let report: LaneReport
                do throws(ContentError) { report = try exchange.receiveReport() } catch {
                    // It tells now and then only what it has written.
                    if error == .stalled, upload.hasGrown {
                        try upload.noteAdded(.max)
                        continue
                    }
                    return try end(upload, .interrupted(error))
                }
                let before = upload.state.offset
                if case .ended(let count, let errno) = report {
                    try takeBack(upload, count, errno: errno)
                    try afterEach(upload.state.offset - before)
                    return upload.state.offset == start + count ? nil : .interrupted(.truncated)
                }
                try upload.noteAdded(report.count)
                try afterEach(upload.state.offset - before)
                try widen(upload, written: report.count, expected: expected)
            }
        } catch {
            if upload.lent != nil { _ = try end(upload, .ended) }
            throw error
        }
    }

    /// The most bytes that the web server may write in all, once so many are written.
    private static func most(written: Int64, expected: Int64) -> Int64 {
        min(expected, written + min(max(written, laneWindows.lowerBound), laneWindows.upperBound))
    }

    private func limit(of upload: Upload, expected: Int64) -> LaneLimit {
        let count = upload.lent ?? 0
        return LaneLimit(count: count, restFollows: count == expected)
    }

    /// Lets more be written before what may be is used up.
    private func widen(
        _ upload: Upload,
        written: Int64,
        expected: Int64
    ) throws(SpoolError) {
        guard let lent = upload.lent else { return }
        let left = lent - written
        let most = Self.most(written: written, expected: expected)
        // No more than was written: a client that sends a byte now and then gets no second loan.
        guard most > lent, left <= min(written, (most - written) / 2) else { return }
        var limit = LaneLimit(count: lent, restFollows: true)
        do throws(SpoolError) {
            try upload.lendMore(upTo: most - lent)
            limit = self.limit(of: upload, expected: expected)
        } catch {
            guard error.isNoRoom else { throw error }
            // There may be room again when it is needed. Then the content may be at its end: what follows, if
            // anything does, is refused as it comes.
            guard left == 0 else { return }
        }
        // Where it cannot be told, the next report fails.
        try? exchange.widen(limit)
    }

    /// Ends the lane from this side.
    private func end(_ upload: Upload, _ end: ReceptionEnd) throws(SpoolError) -> ReceptionEnd {
        exchange.stopLane()
        try takeBack(upload, nil)
        return end
    }

    private func takeBack(
        _ upload: Upload,
        _ count: Int64?,
        errno: Int32 = 0
    ) throws(SpoolError) {
        if try upload.takeBack(count, errno: errno, until: .after(Self.lanePatience)) { return }
        // Then it closes it with the connection.
        exchange.abort()
        let limit = Deadline.after(inUseTimeout)
        guard try upload.takeBack(count, errno: errno, until: limit) else {
            throw .busy(upload.creation.id)
        }
    }
}
