// Reads the records of one request from its connection: the parameters, then the content.
//
// The reader responds to records about the connection and to concurrent requests, and skips records of other requests.
// Invariants: no number sent by the peer determines how much memory is used; content is read directly into the caller's
// buffer, unless it arrives with preceding bytes.

import SpoolgateExchange
import SpoolgatePosix

struct RecordReader {
    let connection: Connection
    private var parser = RecordParser()
    /// The request's number; nil before the begin record.
    private var id: UInt16?
    private var stream = RecordType.parameters
    private var use = Use.passedOver
    private var header = RecordHeader(type: 0, id: 0, count: 0)
    /// The content of a record that is processed as a whole, at most 64 KiB.
    private var collected: [UInt8] = []
    private var beginning: RequestBeginning?
    /// Bytes received early; those before `pendingStart` have been processed.
    private var pending: [UInt8] = []
    private var pendingStart = 0

    private(set) var lane = Lane.none
    private var reports: [LaneReport] = []

    enum Lane {
        /// The gateway reads the content; before its first byte, nginx may offer to write it into the spool.
        case none
        /// nginx has made the offer, and the gateway has not replied yet.
        case offered
        /// nginx writes the content, until it reports the end.
        case granted
        /// The gateway reads the content; nginx must not make another offer.
        case over
    }

    private enum Use {
        case ofStream
        case collected
        case passedOver
    }

    private enum Piece {
        case bytes(UnsafeRawBufferPointer)
        case end
        case malformed
    }

    /// The number of bytes read at a time at a request's beginning, which is rarely longer.
    private static let beginningSize = 8 << 10
    /// The number of bytes read at a time beyond the current record.
    ///
    /// It is small because thousands of stacks may hold these bytes.
    private static let spillSize = 512

    init(_ connection: Connection) { self.connection = connection }

    /// Removes the next item, with at most `maximum` bytes, from the start of `bytes`.
    private mutating func next(_ bytes: inout UnsafeRawBufferPointer, maximum: Int) -> Piece? {
        while true {
            let limit = use == .ofStream ? maximum : .max
            switch parser.next(&bytes, maximum: limit) {
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

    /// Returns how to process a record; nil if the record is not allowed here.
    private func use(of header: RecordHeader) -> Use? {
        if header.type == RecordType.beginRequest || header.id == 0 { return .collected }
        guard let id else { return nil }
        guard header.id == id else { return .passedOver }
        let isMessage = header.type == RecordType.data && header.count == LaneMessage.size
        guard !isMessage else { return stream == RecordType.content ? .collected : nil }
        guard header.type == stream, lane != .granted else { return nil }
        return .ofStream
    }

    /// Processes `collected`; returns false if the record is not allowed here.
    private mutating func takeCollected() -> Bool {
        defer { collected = [] }
        if header.type == RecordType.data, header.id != 0 { return takeMessage() }
        guard header.type == RecordType.beginRequest else {
            return ConnectionRecord.response(to: header.type, collected).map(connection.send)
                ?? false
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

// MARK: The lane

extension RecordReader {
    /// Processes a message from nginx; returns false if it is invalid or not allowed in the lane's current state.
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

    mutating func noteReply(isGrant: Bool) { lane = isGrant ? .granted : .over }

    mutating func nextReport() -> LaneReport? { reports.isEmpty ? nil : reports.removeFirst() }
}

// MARK: The beginning

extension RecordReader {
    /// Receives the beginning.
    ///
    /// Returns nil if the connection ends first or the bytes are invalid.
    mutating func receiveBeginning() -> RequestBeginning? {
        withUnsafeTemporaryAllocation(byteCount: Self.beginningSize, alignment: 16) { room in
            while case .bytes(let count) = connection.receive(into: room, waits: true) {
                var bytes = UnsafeRawBufferPointer(rebasing: room[..<count])
                while let piece = next(&bytes, maximum: .max) {
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
    enum End {
        /// The room is full, or no more bytes are available now.
        case none
        /// The record that ends the content was read.
        case proper
        /// No byte arrived within the connection's receive timeout.
        case stalled
        /// The connection ended or failed, or an invalid record arrived.
        case broken
    }

    /// Whether bytes are available without reading from the connection.
    var hasBytes: Bool { pendingStart < pending.count }

    /// Whether nginx has sent a message that the caller must process.
    var hasNews: Bool { lane == .offered || !reports.isEmpty }

    var isInContent: Bool { use == .ofStream && parser.rest > 0 }

    /// Whether nothing arrived after the last record, so another request can be read.
    mutating func isAtEnd() -> Bool {
        let held = pending
        held.withUnsafeBytes { held in
            var bytes = UnsafeRawBufferPointer(rebasing: held[pendingStart...])
            parser.skipPadding(&bytes)
            pendingStart = held.count - bytes.count
        }
        return !hasBytes && parser.isBetweenRecords
    }

    /// Reads the available content into `room` or, if `room` is empty, only the records before the next content.
    ///
    /// - Returns: the number of bytes of content, all valid, and how the read ended after them.
    mutating func receive(
        into room: UnsafeMutableRawBufferPointer,
        waits: Bool
    ) -> (count: Int, end: End) {
        var count = 0
        while true {
            let free = UnsafeMutableRawBufferPointer(rebasing: room[count...])
            let read =
                hasBytes ? takePending(into: free) : receiveSome(free, waits: waits && count == 0)
            count += read.count
            if read.end == .stalled { return (count, count > 0 || !waits ? .none : .stalled) }
            let isDone =
                read.end != .none || count == room.count || read.isAll && count > 0
                || hasNews
            if isDone { return (count, read.end) }
        }
    }

    /// `isAll` is true if no more bytes are available.
    private struct Read {
        var count: Int
        var end: End
        var isAll = false
    }

    /// Reads the rest of the current record directly into `room`, and later bytes through a buffer.
    private mutating func receiveSome(
        _ room: UnsafeMutableRawBufferPointer,
        waits: Bool
    ) -> Read {
        let sure = isInContent ? min(parser.rest, room.count) : 0
        let more = isInContent && sure < parser.rest ? 0 : Self.spillSize
        // If the room is full and content follows, nothing can be read.
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
            // The content's end may be far away, so the memory is freed.
            if bytes.isEmpty { (pending, pendingStart) = ([], 0) }
            return read
        }
    }

    private mutating func take(
        _ bytes: inout UnsafeRawBufferPointer,
        into room: UnsafeMutableRawBufferPointer
    ) -> Read {
        var count = 0
        while let piece = next(&bytes, maximum: room.count - count) {
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

// MARK: The beginning of a request

// The beginning of a request: its begin record and its parameters.
//
// libfcgi truncates a parameter at its first NUL, and ends the process if a length exceeds the available memory, so the
// parameters are validated here first. Pure. Invariant: libfcgi returns every parameter exactly as received.

struct RequestBeginning {
    /// The maximum number of bytes of all parameters, well above the limits on request heads.
    static let maximumBytes = 256 << 10

    /// The request's number on the connection.
    var id: UInt16
    var role: UInt16
    /// Whether the web server will reuse the connection (FCGI_KEEP_CONN).
    var keepsConnection: Bool
    /// The encoded names and values with their lengths; nil if they exceeded `maximumBytes`.
    var parameters: [UInt8]? = []

    /// The only role that is served.
    static let responder: UInt16 = 1

    /// Parses the content of a begin record; nil if it is invalid.
    init?(id: UInt16, content: some Collection<UInt8>) {
        let bytes = Array(content)
        guard id != 0, bytes.count == 8 else { return nil }
        self.id = id
        role = UInt16(bytes[0]) << 8 | UInt16(bytes[1])
        keepsConnection = bytes[2] & 1 != 0
    }

    mutating func add(_ bytes: UnsafeRawBufferPointer) {
        guard let count = parameters?.count, count <= Self.maximumBytes - bytes.count else {
            return parameters = nil
        }
        parameters?.append(contentsOf: bytes)
    }

    /// Calls `body` with each parameter; returns false if a length exceeds the bytes that follow.
    func forEachParameter(
        _ body: (_ name: ParameterBytes, _ value: ParameterBytes) -> Void
    ) -> Bool {
        guard let parameters else { return true }
        return Self.forEachPair(in: parameters, body)
    }

    static func forEachPair(
        in bytes: [UInt8],
        _ body: (_ name: ParameterBytes, _ value: ParameterBytes) -> Void
    ) -> Bool {
        bytes.withUnsafeBufferPointer { bytes in
            var rest = bytes
            while !rest.isEmpty {
                guard let nameCount = length(&rest), let valueCount = length(&rest),
                    nameCount <= rest.count, valueCount <= rest.count - nameCount
                else { return false }
                let name = take(nameCount, off: &rest)
                body(name, take(valueCount, off: &rest))
            }
            return true
        }
    }

    private static func take(
        _ count: Int,
        off rest: inout ParameterBytes
    ) -> ParameterBytes {
        defer { rest = ParameterBytes(rebasing: rest[count...]) }
        return ParameterBytes(rebasing: rest[..<count])
    }

    /// Removes and returns a length at the start: one byte below 128, otherwise 31 bits in four bytes.
    private static func length(_ rest: inout ParameterBytes) -> Int? {
        guard let first = rest.first else { return nil }
        guard first >= 0x80 else { return Int(take(1, off: &rest)[0]) }
        guard rest.count >= 4 else { return nil }
        return take(4, off: &rest).dropFirst().reduce(Int(first & 0x7F)) { $0 << 8 | Int($1) }
    }
}

// MARK: For libfcgi

extension RequestBeginning {
    /// Removes the parameters that libfcgi would change: those with a NUL, or with libfcgi's separator `=` in the name.
    ///
    /// - Returns: true if no parameter was removed; nil if the parameters are truncated.
    mutating func keepSoundParameters() -> Bool? {
        var isSound = true
        let isWhole = forEachParameter { name, value in
            isSound = isSound && Self.isSound(name, value)
        }
        guard isWhole else { return nil }
        guard !isSound, let all = parameters else { return true }
        var kept: [UInt8] = []
        _ = Self.forEachPair(in: all) { name, value in
            guard Self.isSound(name, value) else { return }
            for count in [name.count, value.count] {
                withUnsafeBytes(of: (UInt32(count) | 1 << 31).bigEndian) {
                    kept.append(contentsOf: $0)
                }
            }
            kept.append(contentsOf: name)
            kept.append(contentsOf: value)
        }
        // The lengths may take more bytes than before.
        parameters = kept
        return false
    }

    private static func isSound(
        _ name: ParameterBytes,
        _ value: ParameterBytes
    ) -> Bool {
        // The value directly follows its name in memory.
        let both = ParameterBytes(start: name.baseAddress, count: name.count + value.count)
        return !both.has(0) && !name.has(UInt8(ascii: "="))
    }

    /// A begin record with the number 1, the parameters, and their end.
    var recordsForLibrary: [UInt8] {
        let parameters = parameters ?? []
        let size = RecordHeader.size
        var bytes: [UInt8] = []
        let records = 3 + parameters.count / RecordHeader.maximumContent
        bytes.reserveCapacity(size + records * size + parameters.count)
        RecordHeader(type: RecordType.beginRequest, id: 1, count: 8).append(to: &bytes)
        // The role, and the flag that keeps libfcgi from closing the connection.
        bytes += [0, 1, 1, 0, 0, 0, 0, 0]
        var rest = parameters[...]
        while !rest.isEmpty {
            let part = rest.prefix(RecordHeader.maximumContent)
            RecordHeader(type: RecordType.parameters, id: 1, count: part.count).append(to: &bytes)
            bytes.append(contentsOf: part)
            rest = rest.dropFirst(part.count)
        }
        RecordHeader(type: RecordType.parameters, id: 1, count: 0).append(to: &bytes)
        return bytes
    }
}
