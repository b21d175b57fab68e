// Reads the records of one request off its connection: the begin and the parameters, then the content.
//
// Records about the connection and begins of further requests are answered on the way, records of other
// requests passed over. Invariants: no number that the peer sends decides how much memory is taken; content
// goes straight to where the caller wants it, but for what came with the bytes before it.

import SpoolgateExchange
import SpoolgatePosix

/// One request's records, as they come.
struct RecordReader {
    private let connection: Connection
    private var parser = RecordParser()
    /// The request's number, once it has begun.
    private var id: UInt16?
    /// The type of the records that are read for the caller.
    private var stream = RecordType.parameters
    private var use = Use.passedOver
    private var header = RecordHeader(type: 0, id: 0, count: 0)
    /// Content of a record that is looked at as a whole: of one about the connection, at most 64 KiB.
    private var collected: [UInt8] = []
    private var beginning: RequestBeginning?
    /// Bytes that came behind what was asked for; those before `pendingStart` are done with.
    private var pending: [UInt8] = []
    private var pendingStart = 0

    /// Where it stands with content that nginx writes by itself.
    private(set) var lane = Lane.none
    /// What nginx has said of that content.
    private var reports: [LaneReport] = []

    /// Who writes content.
    enum Lane {
        /// The gateway; nginx may offer to as long as none has come.
        case none
        /// Nobody, until nginx is answered.
        case offered
        /// nginx, until it says that it has ended.
        case granted
        /// The gateway, for good.
        case over
    }

    /// What is done with the present record's content.
    private enum Use {
        case ofStream
        case collected
        case passedOver
    }

    /// What comes next of the stream that is read.
    private enum Piece {
        case bytes(UnsafeRawBufferPointer)
        /// Its end, as the peer said.
        case end
        /// What came is no FastCGI, or has no business here.
        case malformed
    }

    /// Bytes of a request's beginning that are read at a time; few have more.
    private static let beginningSize = 8 << 10
    /// Bytes read at a time of what is not surely content of the present record; on the stack of thousands
    /// that wait.
    private static let spillSize = 512

    init(_ connection: Connection) { self.connection = connection }

    /// Takes the next piece of the stream off the front of `bytes`, of at most `most` bytes.
    private mutating func next(_ bytes: inout UnsafeRawBufferPointer, most: Int) -> Piece? {
        while true {
            let limit = use == .ofStream ? most : .max
            switch parser.next(&bytes, most: limit) {
            case nil: return nil
            case .malformed: return .malformed
            case .header(let found):
                guard let use = use(of: found) else { return .malformed }
                (header, self.use) = (found, use)
                guard found.count == 0 else { continue }
                if use == .ofStream { return .end }
                guard use == .passedOver || takeCollected() else { return .malformed }
            case .content(let part):
                switch use {
                case .ofStream: return .bytes(part)
                case .passedOver: break
                case .collected:
                    collected.append(contentsOf: part)
                    guard parser.rest > 0 || takeCollected() else { return .malformed }
                }
            }
        }
    }

    /// What a record is for; nil where it has no business here.
    private func use(of header: RecordHeader) -> Use? {
        if header.type == RecordType.beginRequest || header.id == 0 { return .collected }
        guard let id else { return nil }
        guard header.id == id else { return .passedOver }
        let isMessage = header.type == RecordType.data && header.count == LaneMessage.size
        guard !isMessage else { return stream == RecordType.content ? .collected : nil }
        guard header.type == stream, lane != .granted else { return nil }
        return .ofStream
    }

    /// Acts on a record whose content was collected; false where it has no business here.
    private mutating func takeCollected() -> Bool {
        defer { collected = [] }
        if header.type == RecordType.data, header.id != 0 { return takeMessage() }
        guard header.type == RecordType.beginRequest else {
            return ConnectionRecord.answer(to: header.type, collected).map(connection.send) ?? false
        }
        guard let begun = RequestBeginning(id: header.id, content: collected) else { return false }
        guard id == nil else {
            return connection.send(ConnectionRecord.refusal(of: header.id))
        }
        id = header.id
        beginning = begun
        return true
    }
}

// MARK: Content that nginx writes

extension RecordReader {
    /// Acts on a message of nginx's; false where it is none, or has no business here.
    private mutating func takeMessage() -> Bool {
        switch (LaneMessage(collected), lane) {
        case (.offer, .none): lane = .offered
        case (.report(let report), .granted):
            if case .ended = report { lane = .over }
            reports.append(report)
        default: return false
        }
        return true
    }

    /// Notes the answer to the offer.
    mutating func noteAnswer(isGrant: Bool) { lane = isGrant ? .granted : .over }

    /// The next report, where one has come.
    mutating func nextReport() -> LaneReport? { reports.isEmpty ? nil : reports.removeFirst() }
}

// MARK: The beginning

extension RecordReader {
    /// Receives a request's beginning; nil where none comes, or what comes is no FastCGI.
    mutating func receiveBeginning() -> RequestBeginning? {
        withUnsafeTemporaryAllocation(byteCount: Self.beginningSize, alignment: 16) { room in
            while case .bytes(let count) = connection.receive(into: room, waits: true) {
                var bytes = UnsafeRawBufferPointer(rebasing: room[..<count])
                while let piece = next(&bytes, most: .max) {
                    switch piece {
                    case .bytes(let part): beginning?.add(part)
                    case .malformed: return nil
                    case .end:
                        stream = RecordType.content
                        pending = Array(bytes)
                        defer { beginning = nil }
                        return beginning
                    }
                }
            }
            return nil
        }
    }
}

// MARK: Content

extension RecordReader {
    /// How a read ended.
    enum End {
        /// The room is full, or nothing more is there now.
        case none
        /// The record that ends the content.
        case proper
        /// No byte came within the connection's limit on receiving.
        case stalled
        /// The connection ended or broke, or something came that has no business here.
        case broken
    }

    /// Whether bytes are at hand, so that reading waits for nobody.
    var hasBytes: Bool { pendingStart < pending.count }

    /// Whether nginx has said something of content that it writes by itself, for the caller to act on.
    var hasNews: Bool { lane == .offered || !reports.isEmpty }

    /// Whether more content of the present record is to come than was read.
    var isInContent: Bool { use == .ofStream && parser.rest > 0 }

    /// Whether nothing came behind the last record, so that another request can be read.
    mutating func isAtEnd() -> Bool {
        let held = pending
        held.withUnsafeBytes { held in
            var bytes = UnsafeRawBufferPointer(rebasing: held[pendingStart...])
            parser.skipPadding(&bytes)
            pendingStart = held.count - bytes.count
        }
        return !hasBytes && parser.isBetweenRecords
    }

    /// Reads content: what is there, up to `room`.
    ///
    /// - Parameters:
    ///   - room: where it goes; may be empty, then only what comes before more content is read.
    ///   - waits: whether to wait for the first byte, where nothing is at hand.
    /// - Returns: bytes of content, all of them good, and what came behind them.
    mutating func receive(
        into room: UnsafeMutableRawBufferPointer,
        waits: Bool
    ) -> (count: Int, end: End) {
        var count = 0
        while true {
            let free = UnsafeMutableRawBufferPointer(rebasing: room[count...])
            let read = hasBytes ? takePending(into: free) : receiveSome(free, waits && count == 0)
            count += read.count
            if read.end == .stalled { return (count, count > 0 || !waits ? .none : .stalled) }
            let isDone =
                read.end != .none || count == room.count || read.isAll && count > 0
                || hasNews
            if isDone { return (count, read.end) }
        }
    }

    /// What one read brought; `isAll`: nothing more is there.
    private struct Read {
        var count: Int
        var end: End
        var isAll = false
    }

    /// One read: the rest of the present record straight into `room`, what is behind it by a way round.
    private mutating func receiveSome(_ room: UnsafeMutableRawBufferPointer, _ waits: Bool) -> Read
    {
        let sure = isInContent ? min(parser.rest, room.count) : 0
        let more = isInContent && sure < parser.rest ? 0 : Self.spillSize
        // With the room full and content next nothing can be taken.
        guard sure + more > 0 else { return Read(count: 0, end: .none) }
        return withUnsafeTemporaryAllocation(byteCount: Self.spillSize, alignment: 16) { spill in
            let spill = UnsafeMutableRawBufferPointer(rebasing: spill.prefix(more))
            let first = UnsafeMutableRawBufferPointer(rebasing: room[..<sure])
            switch connection.receive(into: first, then: spill, waits: waits) {
            case .nothing: return Read(count: 0, end: .stalled)
            case .end, .failed: return Read(count: 0, end: .broken)
            case .bytes(let received):
                let direct = min(received, sure)
                if direct > 0 { parser.skip(direct) }
                let rest = UnsafeMutableRawBufferPointer(rebasing: room[direct...])
                var bytes = UnsafeRawBufferPointer(rebasing: spill[..<(received - direct)])
                var read = take(&bytes, into: rest)
                if !bytes.isEmpty { (pending, pendingStart) = (Array(bytes), 0) }
                read.count += direct
                read.isAll = received < sure + spill.count
                return read
            }
        }
    }

    private mutating func takePending(into room: UnsafeMutableRawBufferPointer) -> Read {
        let held = pending
        return held.withUnsafeBytes { held in
            var bytes = UnsafeRawBufferPointer(rebasing: held[pendingStart...])
            let read = take(&bytes, into: room)
            pendingStart = held.count - bytes.count
            // It may be a long way to the content's end.
            if bytes.isEmpty { (pending, pendingStart) = ([], 0) }
            return read
        }
    }

    /// Takes content off the front of `bytes` until the room is full or something else comes.
    private mutating func take(
        _ bytes: inout UnsafeRawBufferPointer,
        into room: UnsafeMutableRawBufferPointer
    ) -> Read {
        var count = 0
        while let piece = next(&bytes, most: room.count - count) {
            switch piece {
            case .bytes(let part):
                let place = UnsafeMutableRawBufferPointer(rebasing: room[count...])
                place.copyMemory(from: part)
                count += part.count
            case .end: return Read(count: count, end: .proper)
            case .malformed: return Read(count: count, end: .broken)
            }
        }
        return Read(count: count, end: .none)
    }
}
