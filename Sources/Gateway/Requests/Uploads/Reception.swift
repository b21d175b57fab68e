// Content on its way from a request to the disk: fragment by fragment, as it arrives, within a
// ceiling. Nothing is ever held back to fill a buffer, so that what arrived survives a crash.

import SpoolgateExchange
import SpoolgatePosix
import SpoolgateSpool

/// How the content of one request came to an end.
enum ReceptionEnd: Sendable, Equatable {
    /// At its proper end.
    case ended
    /// Early; what arrived is stored.
    case interrupted(ContentError)
    /// It went on past the ceiling; what fits is stored.
    case exceeded
}

/// Receives the content of one request.
struct Reception {
    let exchange: RequestExchange
    let buffer: ContentBuffer

    /// Stores content until it ends.
    ///
    /// - Parameters:
    ///   - room: most bytes to store.
    ///   - keepsLast: keeps the byte that fills the room until the content has ended properly, so that
    ///     a message that is cut never fills it. The client sends that byte again.
    ///   - store: stores bytes in order.
    ///   - afterEach: called after each stored part, and when the exchange's alarm rang, for progress.
    ///   - whenSlow: called after parts of slow content, before the wait for the next one.
    /// - Returns: how the content ended.
    /// - Throws: `SpoolError` when storing failed; what was stored before stays.
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
                // What came before the error counts: the front adds it to the buffer first.
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

    /// Receives content into the buffer, where it stays, as long as it is little.
    ///
    /// - Parameter most: most bytes of little content, below the buffer's capacity.
    /// - Returns: how the content ended; nil: there is more of it than that, and maybe more to come.
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

    /// The client is slow, and thousands like it wait at a time: what fast content would use again is given
    /// back while this thread waits.
    private func giveBackUnused() {
        buffer.releaseUnusedPages()
        Thread.releaseStack()
    }

    /// How fast content comes.
    private struct Pace {
        /// A part smaller than this tells that content comes more slowly than it is stored.
        private static let slowPart = 4096

        private var slowParts = 0

        mutating func isSlow(afterPart count: Int) -> Bool {
            slowParts = count < Self.slowPart ? slowParts + 1 : 0
            return slowParts > 1
        }
    }

    /// What may still be stored.
    private struct Room {
        var free: Int64
        let keepsLast: Bool
        /// The byte that fills the room, while it is kept.
        var last: UInt8?
    }

    /// Stores the buffer's bytes as far as there is room; false if there was not enough.
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

    /// Stores the byte that was kept, now that the content has ended and the web server is there.
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
