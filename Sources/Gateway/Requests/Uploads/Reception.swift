// Reception of content up to a ceiling. Each part is stored on arrival, so that received bytes survive a crash.

import SpoolgateExchange
import SpoolgatePosix
import SpoolgateSpool

enum ReceptionEnd: Sendable, Equatable {
    case ended
    /// The content ended early; the bytes received are stored.
    case interrupted(ContentError)
    /// The bytes up to the ceiling are stored, except a withheld one.
    case exceeded
}

struct Reception {
    /// A byte that is stored only after the content has ended properly; a truncated message's client sends it again.
    enum Withheld: Sendable {
        case none
        /// The byte that fills the room.
        case last
        /// The newest byte at any time.
        case newest
    }

    let exchange: RequestExchange
    let buffer: ContentBuffer

    /// Stores up to `room` bytes of content until the content ends.
    ///
    /// `afterEach` is called after each stored part and each time the exchange's alarm rings, `whenSlow` before each
    /// wait for slow content, and `beforeLast` once before a withheld byte is stored at the end. If storing fails, bytes
    /// that had been stored remain.
    func receive(
        room: Int64,
        withheld: Withheld = .none,
        store: (RawSpan) throws(SpoolError) -> Void,
        afterEach: () throws(SpoolError) -> Void = {},
        whenSlow: () throws(SpoolError) -> Void = {},
        beforeLast: () throws(SpoolError) -> Void = {}
    ) throws(SpoolError) -> ReceptionEnd {
        var room = Room(free: room, withheld: withheld)
        var pace = Pace()
        while true {
            buffer.removeAll()
            let hasMore: Bool
            do throws(ContentError) {
                hasMore = try exchange.receive(into: buffer)
            } catch {
                // The bytes before an error count because the FastCGI listener adds them to the buffer.
                _ = try storePart(&room, store)
                return .interrupted(error)
            }
            guard hasMore else { return try storeLast(&room, beforeLast, store) }
            guard try storePart(&room, store) else { return .exceeded }
            try afterEach()
            if buffer.count > 0, pace.isSlow(afterPart: buffer.count) {
                buffer.removeAll()
                try whenSlow()
                giveBackUnused()
            }
        }
    }

    /// Receives content into the buffer, and leaves it there if it has at most `most` bytes.
    ///
    /// `most` must be less than the buffer's capacity. Returns nil for larger content; more of it may follow.
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

    /// Releases memory that only fast content would use again, because thousands of slow clients wait at a time.
    private func giveBackUnused() {
        buffer.releaseUnusedPages()
        Thread.releaseStack()
    }

    private struct Pace {
        /// Parts of fewer bytes arrive more slowly than they are stored.
        private static let slowPart = 4096

        private var slowParts = 0

        mutating func isSlow(afterPart count: Int) -> Bool {
            slowParts = count < Self.slowPart ? slowParts + 1 : 0
            return slowParts > 1
        }
    }

    private struct Room {
        var free: Int64
        let withheld: Withheld
        var byte: UInt8?
    }

    /// Stores as many of the buffer's bytes as there is room for; returns false if some did not fit.
    private func storePart(
        _ room: inout Room,
        _ store: (RawSpan) throws(SpoolError) -> Void
    ) throws(SpoolError) -> Bool {
        let fits = Int(min(Int64(buffer.count), room.free))
        guard fits > 0 else { return buffer.count == 0 }
        let isWithheld =
            switch room.withheld {
            case .none: false
            case .last: Int64(fits) == room.free
            case .newest: true
            }
        if let byte = room.byte { try Self.store(byte, store) }
        let count = isWithheld ? fits - 1 : fits
        try buffer.withBytes { bytes throws(SpoolError) in
            if count > 0 { try store(bytes.extracting(first: count)) }
            if isWithheld {
                room.byte = bytes.unsafeLoad(fromByteOffset: count, as: UInt8.self)
            }
        }
        room.free -= Int64(fits)
        return fits == buffer.count
    }

    private static func store(
        _ byte: UInt8,
        _ store: (RawSpan) throws(SpoolError) -> Void
    ) throws(SpoolError) {
        let bytes = [byte]
        try store(bytes.span.bytes)
    }

    /// Stores the withheld byte after the content's proper end, if the web server is still connected.
    private func storeLast(
        _ room: inout Room,
        _ beforeLast: () throws(SpoolError) -> Void,
        _ store: (RawSpan) throws(SpoolError) -> Void
    ) throws(SpoolError) -> ReceptionEnd {
        guard let byte = room.byte else { return .ended }
        guard !exchange.isPeerGone else { return .interrupted(.truncated) }
        try beforeLast()
        try Self.store(byte, store)
        return .ended
    }
}
