// Reception of content from a request, up to a ceiling. Each fragment is stored on arrival, never held back to fill a
// buffer, so that received bytes survive a crash.

import SpoolgateExchange
import SpoolgatePosix
import SpoolgateSpool

enum ReceptionEnd: Sendable, Equatable {
    /// The content ended properly.
    case ended
    /// The content ended early; the bytes received are stored.
    case interrupted(ContentError)
    /// The content exceeded the ceiling; the bytes up to the ceiling are stored.
    case exceeded
}

struct Reception {
    let exchange: RequestExchange
    let buffer: ContentBuffer

    /// Stores content until it ends.
    ///
    /// - Parameters:
    ///   - room: the maximum number of bytes to store.
    ///   - keepsLast: true to withhold the byte that fills `room` until the content has ended properly, so that a
    ///     truncated message never fills it; the client sends that byte again.
    ///   - store: stores bytes in order.
    ///   - afterEach: called after each part was stored, and after the exchange's alarm rang, to report progress.
    ///   - whenSlow: called if content arrives slowly, each time before the wait for the next part.
    /// - Returns: how the content ended.
    /// - Throws: `SpoolError` if storing failed; bytes that were stored before remain.
    func receive(
        room: Int64,
        keepsLast: Bool = false,
        store: (RawSpan) throws(SpoolError) -> Void,
        afterEach: () throws(SpoolError) -> Void = {},
        whenSlow: () throws(SpoolError) -> Void = {}
    ) throws(SpoolError) -> ReceptionEnd {
        var room = Room(free: room, keepsLast: keepsLast && room > 0)
        var pace = Pace()
        while true {
            buffer.removeAll()
            let hasMore: Bool
            do throws(ContentError) {
                hasMore = try exchange.receive(into: buffer)
            } catch {
                // The FastCGI listener adds the bytes before an error to the buffer, so they count.
                _ = try storePart(&room, store)
                return .interrupted(error)
            }
            guard hasMore else { return try storeLast(&room, store) }
            guard try storePart(&room, store) else { return .exceeded }
            try afterEach()
            if buffer.count > 0, pace.isSlow(afterPart: buffer.count) {
                buffer.removeAll()
                try whenSlow()
                giveBackUnused()
            }
        }
    }

    /// Receives content into the buffer, and leaves it there if the content is small.
    ///
    /// - Parameter most: the maximum number of bytes of small content; it must be less than the buffer's capacity.
    /// - Returns: how the content ended; nil if it exceeds `most` bytes, in which case more content may follow.
    func hold(atMost most: Int) -> ReceptionEnd? {
        buffer.removeAll()
        var pace = Pace()
        while buffer.count <= most {
            let before = buffer.count
            do throws(ContentError) {
                guard try exchange.receive(into: buffer) else { return .ended }
            } catch {
                return .interrupted(error)
            }
            if pace.isSlow(afterPart: buffer.count - before) { giveBackUnused() }
        }
        return nil
    }

    /// Releases memory that only fast content would use again.
    ///
    /// Thousands of slow clients wait at a time.
    private func giveBackUnused() {
        buffer.releaseUnusedPages()
        Thread.releaseStack()
    }

    private struct Pace {
        /// The size in bytes of a part below which content arrives more slowly than it is stored.
        private static let slowPart = 4096

        private var slowParts = 0

        mutating func isSlow(afterPart count: Int) -> Bool {
            slowParts = count < Self.slowPart ? slowParts + 1 : 0
            return slowParts > 1
        }
    }

    private struct Room {
        var free: Int64
        let keepsLast: Bool
        var last: UInt8?
    }

    /// Stores the buffer's bytes as far as there is room for them; returns false if there was not enough room.
    private func storePart(
        _ room: inout Room,
        _ store: (RawSpan) throws(SpoolError) -> Void
    ) throws(SpoolError) -> Bool {
        let fits = Int(min(Int64(buffer.count), room.free))
        guard fits > 0 else { return buffer.count == 0 }
        let isFilling = room.keepsLast && Int64(fits) == room.free
        let count = isFilling ? fits - 1 : fits
        try buffer.withBytes { bytes throws(SpoolError) in
            if count > 0 { try store(bytes.extracting(first: count)) }
            if isFilling {
                room.last = bytes.unsafeLoad(fromByteOffset: count, as: UInt8.self)
            }
        }
        room.free -= Int64(fits)
        return fits == buffer.count
    }

    /// Stores the withheld byte after the content's proper end, if the web server is still connected.
    private func storeLast(
        _ room: inout Room,
        _ store: (RawSpan) throws(SpoolError) -> Void
    ) throws(SpoolError) -> ReceptionEnd {
        guard let last = room.last else { return .ended }
        guard !exchange.isPeerGone else { return .interrupted(.truncated) }
        let bytes = [last]
        try store(bytes.span.bytes)
        return .ended
    }
}
