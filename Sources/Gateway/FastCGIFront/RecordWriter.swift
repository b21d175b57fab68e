// Writes the records of one response: collects small parts, and sends large ones without copying.
//
// Invariants: only `end` writes END_REQUEST; at most `maximumGathered` bytes and two headers are copied.

import SpoolgatePosix

struct RecordWriter {
    private let connection: Connection
    private let id: UInt16
    /// Records that have not been sent.
    ///
    /// `open` is the start of the last one; nil if it cannot grow.
    private var gathered: [UInt8] = []
    private var open: Int?
    /// Whether bytes were sent since `discard`.
    private(set) var hasSent = false

    /// The maximum number of bytes collected before they are sent, far below a record's capacity.
    private static let maximumGathered = 16 << 10
    /// The maximum number of bytes in a record sent without copying: its capacity, rounded down to a multiple of 8.
    private static let maximumRecordContent = RecordHeader.maximumContent & ~7

    init(_ connection: Connection, id: UInt16) {
        self.connection = connection
        self.id = id
    }

    /// Adds bytes, which may be sent later.
    ///
    /// Returns false if the peer has disconnected or does not read.
    mutating func write(_ bytes: UnsafeRawBufferPointer) -> Bool {
        guard gathered.count + RecordHeader.size + bytes.count > Self.maximumGathered else {
            gather(bytes)
            return true
        }
        closeRecord()
        var rest = bytes
        while !rest.isEmpty {
            let part = UnsafeRawBufferPointer(rebasing: rest.prefix(Self.maximumRecordContent))
            header(RecordType.response, count: part.count).append(to: &gathered)
            guard send(with: part) else { return false }
            rest = UnsafeRawBufferPointer(rebasing: rest[part.count...])
        }
        return true
    }

    /// Sends the collected bytes.
    ///
    /// Returns false if the peer has disconnected or does not read.
    mutating func flush() -> Bool {
        closeRecord()
        return gathered.isEmpty || send(with: UnsafeRawBufferPointer(start: nil, count: 0))
    }

    /// Discards the collected bytes.
    mutating func discard() {
        gathered.removeAll()
        open = nil
        hasSent = false
    }

    /// Sends the collected bytes, the end of the response and END_REQUEST; returns whether all were sent.
    ///
    /// If `isLast` is true, asks the web server to close the connection that it wanted to keep.
    mutating func end(isLast: Bool) -> Bool {
        closeRecord()
        header(RecordType.response, count: 0).append(to: &gathered)
        header(RecordType.endRequest, count: 8).append(to: &gathered)
        // The application's status 0, and FCGI_REQUEST_COMPLETE.
        gathered.append(contentsOf: repeatElement(0, count: 8))
        if isLast { gathered.append(contentsOf: ConnectionRecord.farewell) }
        return flush()
    }

    mutating func send(_ message: LaneMessage.Reply) -> Bool {
        flush() && connection.send(record(of: message))
    }

    /// Sends the message together with the file to which nginx writes.
    mutating func send(_ message: LaneMessage.Reply, passing file: borrowing Descriptor) -> Bool {
        flush() && connection.send(record(of: message), passing: file)
    }

    private func record(of message: LaneMessage.Reply) -> [UInt8] {
        RecordHeader.record(RecordType.data, id, message.bytes)
    }

    private mutating func gather(_ bytes: UnsafeRawBufferPointer) {
        // An empty record would end the stream.
        guard !bytes.isEmpty else { return }
        if open == nil {
            gathered.reserveCapacity(gathered.count + bytes.count + 5 * RecordHeader.size)
            open = gathered.count
            header(RecordType.response, count: 0).append(to: &gathered)
        }
        gathered.append(contentsOf: bytes)
    }

    private mutating func closeRecord() {
        guard let start = open else { return }
        let count = gathered.count - start - RecordHeader.size
        header(RecordType.response, count: count).replace(in: &gathered, at: start)
        open = nil
    }

    private mutating func send(with part: UnsafeRawBufferPointer) -> Bool {
        defer { gathered.removeAll(keepingCapacity: gathered.capacity <= Self.maximumKept) }
        hasSent = true
        return gathered.withUnsafeBytes { connection.send($0, part) }
    }

    /// Bytes of memory kept while a response pauses.
    private static let maximumKept = 512

    private func header(_ type: UInt8, count: Int) -> RecordHeader {
        RecordHeader(type: type, id: id, count: count)
    }
}

// MARK: Records

// Reads and writes the headers of FastCGI records (FastCGI 1.0, section 3.3), and splits a byte stream into records.
//
// Pure. Invariant: a piece of content never extends beyond its record, and the parser keeps no bytes that it returned.

/// Record types (section 8).
enum RecordType {
    static let beginRequest: UInt8 = 1
    static let endRequest: UInt8 = 3
    static let parameters: UInt8 = 4
    static let content: UInt8 = 5
    static let response: UInt8 = 6
    static let errors: UInt8 = 7
    static let data: UInt8 = 8
    static let getValues: UInt8 = 9
    static let getValuesResult: UInt8 = 10
    static let unknownType: UInt8 = 11
}

struct RecordHeader: Equatable {
    /// A `RecordType`, or an unknown type.
    var type: UInt8
    /// The number of the request, or 0 for a record about the connection.
    var id: UInt16
    var count: Int
    /// The number of bytes after the content, at most 255.
    var padding: Int = 0

    static let size = 8
    static let maximumContent = Int(UInt16.max)

    /// Appends the header to `bytes`; `padding` must be 0.
    func append(to bytes: inout [UInt8]) {
        withUnsafeBytes(of: word.bigEndian) { bytes.append(contentsOf: $0) }
    }

    func replace(in bytes: inout [UInt8], at index: Int) {
        bytes.withUnsafeMutableBytes {
            $0.storeBytes(of: word.bigEndian, toByteOffset: index, as: UInt64.self)
        }
    }

    static func record(_ type: UInt8, _ id: UInt16, _ content: [UInt8]) -> [UInt8] {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(size + content.count)
        RecordHeader(type: type, id: id, count: content.count).append(to: &bytes)
        return bytes + content
    }

    private var word: UInt64 {
        1 << 56 | UInt64(type) << 48 | UInt64(id) << 32 | UInt64(count) << 16
    }
}

extension RecordHeader {
    /// Parses eight bytes in network byte order; nil if the version is not 1.
    fileprivate init?(_ word: UInt64) {
        guard word >> 56 == 1 else { return nil }
        type = UInt8(truncatingIfNeeded: word >> 48)
        id = UInt16(truncatingIfNeeded: word >> 32)
        count = Int(UInt16(truncatingIfNeeded: word >> 16))
        padding = Int(UInt8(truncatingIfNeeded: word >> 8))
    }
}

/// Splits a byte stream into records, however the stream was fragmented.
struct RecordParser {
    enum Piece {
        case header(RecordHeader)
        /// Content of the current record; `rest` bytes are still to follow.
        case content(UnsafeRawBufferPointer)
        /// The version is not 1; the rest cannot be parsed.
        case malformed
    }

    /// The number of bytes of the current record's content that have not arrived.
    private(set) var rest = 0
    private var padding = 0
    private var header: UInt64 = 0
    private var headerCount = 0

    var isBetweenRecords: Bool { rest == 0 && padding == 0 && headerCount == 0 }

    /// Removes the next item, with at most `maximum` bytes of content, from the start of `bytes`.
    ///
    /// - Returns: nil if all bytes are used, or if `maximum` is 0 and content follows.
    mutating func next(_ bytes: inout UnsafeRawBufferPointer, maximum: Int = .max) -> Piece? {
        guard rest == 0 else {
            let count = min(rest, bytes.count, maximum)
            guard count > 0 else { return nil }
            rest -= count
            return .content(take(count, off: &bytes))
        }
        skipPadding(&bytes)
        while headerCount < RecordHeader.size {
            guard let byte = bytes.first else { return nil }
            _ = take(1, off: &bytes)
            header = header << 8 | UInt64(byte)
            headerCount += 1
        }
        headerCount = 0
        guard let found = RecordHeader(header) else { return .malformed }
        rest = found.count
        padding = found.padding
        return .header(found)
    }

    mutating func skipPadding(_ bytes: inout UnsafeRawBufferPointer) {
        let count = rest == 0 ? min(padding, bytes.count) : 0
        _ = take(count, off: &bytes)
        padding -= count
    }

    /// Notes that `count` bytes of the current record's content were read elsewhere.
    mutating func skip(_ count: Int) {
        precondition(count <= rest, "content past the end of its record")
        rest -= count
    }

    private func take(
        _ count: Int,
        off bytes: inout UnsafeRawBufferPointer
    ) -> UnsafeRawBufferPointer {
        defer { bytes = UnsafeRawBufferPointer(rebasing: bytes[count...]) }
        return UnsafeRawBufferPointer(rebasing: bytes[..<count])
    }
}

// MARK: Records about the connection

// Records that concern the connection rather than the request being served.
//
// Pure.

enum ConnectionRecord {
    /// An empty record of the error stream of request 1, the number that nginx uses.
    ///
    /// nginx does not keep a connection on which this record arrives.
    static let farewell = RecordHeader.record(RecordType.errors, 1, [])

    /// Returns the record that refuses a concurrent request (FCGI_CANT_MPX_CONN).
    static func refusal(of id: UInt16) -> [UInt8] {
        RecordHeader.record(RecordType.endRequest, id, [0, 0, 0, 0, 1, 0, 0, 0])
    }

    /// Returns the response to a management record of this type; nil if its content is malformed.
    static func response(to type: UInt8, _ content: [UInt8]) -> [UInt8]? {
        guard type == RecordType.getValues else {
            return RecordHeader.record(RecordType.unknownType, 0, [type, 0, 0, 0, 0, 0, 0, 0])
        }
        var known: [UInt8] = []
        let isSound = RequestBeginning.forEachPair(in: content) { name, _ in
            guard name.elementsEqual("FCGI_MPXS_CONNS".utf8) else { return }
            known += [UInt8(name.count), 1] + name + [UInt8(ascii: "0")]
        }
        // The content may request a value so often that the values do not fit into a record.
        guard isSound, known.count <= RecordHeader.maximumContent else { return nil }
        return RecordHeader.record(RecordType.getValuesResult, 0, known)
    }
}
