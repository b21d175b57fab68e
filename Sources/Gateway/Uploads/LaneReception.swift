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
    /// Bytes that the web server may write before it asks for more.
    private static let laneWindow: Int64 = 64 << 20
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
        var lane = Lane(expected: min(head.contentLength.count ?? most, most))
        let file = try upload.lend(lane.granted)
        do throws(SpoolError) {
            do throws(ContentError) {
                try exchange.grant(file, at: start, lane.limit)
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
                try widen(&lane, of: upload, written: report.count)
            }
        } catch {
            if upload.isLent { _ = try end(upload, .ended) }
            throw error
        }
    }

    /// How much the web server may write.
    private struct Lane {
        /// Bytes that may come this way.
        let expected: Int64
        /// Bytes that may be written now.
        var granted: Int64

        init(expected: Int64) {
            self.expected = expected
            granted = min(expected, Request.laneWindow)
        }

        var limit: LaneLimit { LaneLimit(count: granted, restFollows: granted == expected) }
    }

    /// Lets more be written before what may be is used up.
    private func widen(
        _ lane: inout Lane,
        of upload: Upload,
        written: Int64
    ) throws(SpoolError) {
        let left = lane.granted - written
        let more = min(Self.laneWindow, lane.expected - lane.granted)
        guard more > 0, left <= Self.laneWindow / 2 else { return }
        do throws(SpoolError) { try upload.lendMore(more) } catch {
            // There may be room again when it is needed.
            guard left > 0 else { throw error }
            return
        }
        lane.granted += more
        // Where it cannot be told, the next report fails.
        try? exchange.widen(lane.limit)
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
