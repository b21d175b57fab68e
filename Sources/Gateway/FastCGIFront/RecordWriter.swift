// Writes the records of one response: collects small parts, and sends large ones without copying.
//
// Invariants: only `end` writes END_REQUEST; at most `mostGathered` bytes and two headers are copied.

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
    private static let mostGathered = 16 << 10
    /// The maximum number of bytes in a record sent without copying: its capacity, rounded down to a multiple of 8.
    private static let mostOfRecord = RecordHeader.mostContent & ~7

    init(_ connection: Connection, id: UInt16) {
        self.connection = connection
        self.id = id
    }

    /// Adds bytes, which may be sent later.
    ///
    /// Returns false if the peer has disconnected or does not read.
    mutating func write(_ bytes: UnsafeRawBufferPointer) -> Bool {
        guard gathered.count + RecordHeader.size + bytes.count > Self.mostGathered else {
            gather(bytes)
            return true
        }
        closeRecord()
        var rest = bytes
        while !rest.isEmpty {
            let part = UnsafeRawBufferPointer(rebasing: rest.prefix(Self.mostOfRecord))
            header(RecordType.answer, count: part.count).append(to: &gathered)
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
        header(RecordType.answer, count: 0).append(to: &gathered)
        header(RecordType.endRequest, count: 8).append(to: &gathered)
        // The application's status 0, and FCGI_REQUEST_COMPLETE.
        gathered.append(contentsOf: repeatElement(0, count: 8))
        if isLast { gathered.append(contentsOf: ConnectionRecord.farewell) }
        return flush()
    }

    mutating func send(_ message: LaneMessage.Answer) -> Bool {
        flush() && connection.send(record(of: message))
    }

    /// Sends the message together with the file to which nginx writes.
    mutating func send(_ message: LaneMessage.Answer, passing file: borrowing Descriptor) -> Bool {
        flush() && connection.send(record(of: message), passing: file)
    }

    private func record(of message: LaneMessage.Answer) -> [UInt8] {
        RecordHeader.record(RecordType.data, id, message.bytes)
    }

    private mutating func gather(_ bytes: UnsafeRawBufferPointer) {
        // An empty record would end the stream.
        guard !bytes.isEmpty else { return }
        if open == nil {
            gathered.reserveCapacity(gathered.count + bytes.count + 5 * RecordHeader.size)
            open = gathered.count
            header(RecordType.answer, count: 0).append(to: &gathered)
        }
        gathered.append(contentsOf: bytes)
    }

    private mutating func closeRecord() {
        guard let start = open else { return }
        let count = gathered.count - start - RecordHeader.size
        header(RecordType.answer, count: count).replace(in: &gathered, at: start)
        open = nil
    }

    private mutating func send(with part: UnsafeRawBufferPointer) -> Bool {
        defer { gathered.removeAll(keepingCapacity: gathered.capacity <= Self.mostKept) }
        hasSent = true
        return gathered.withUnsafeBytes { connection.send($0, part) }
    }

    /// Bytes of memory kept while a response pauses.
    private static let mostKept = 512

    private func header(_ type: UInt8, count: Int) -> RecordHeader {
        RecordHeader(type: type, id: id, count: count)
    }
}
