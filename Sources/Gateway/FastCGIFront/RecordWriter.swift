// Writes the records of one answer: what is small is gathered and sent at once, what is large goes out from where
// it is.
//
// It knows nothing of heads. Invariants: END_REQUEST is written by `end` alone; at most `mostGathered` bytes and
// two headers are copied.

import SpoolgatePosix

/// One request's answer on its connection.
struct RecordWriter {
    private let connection: Connection
    private let id: UInt16
    /// Records that are not sent yet; the last one is open while `open` says where it begins.
    private var gathered: [UInt8] = []
    private var open: Int?

    /// Bytes that are gathered before they are sent; far below what a record can hold.
    private static let mostGathered = 16 << 10
    /// Bytes of content in one record that is sent from where it is: as many as a record can hold, in eights.
    private static let mostOfRecord = RecordHeader.mostContent & ~7

    init(_ connection: Connection, id: UInt16) {
        self.connection = connection
        self.id = id
    }

    /// Adds bytes of the response, which may be sent later.
    /// - Returns: false where the peer left, or does not read.
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

    /// Sends what was gathered.
    /// - Returns: false where the peer left, or does not read.
    mutating func flush() -> Bool {
        closeRecord()
        return gathered.isEmpty || send(with: UnsafeRawBufferPointer(start: nil, count: 0))
    }

    /// Sends what was gathered, the end of the response and END_REQUEST.
    ///
    /// - Parameter isLast: whether the web server, which wants to keep the connection, must not.
    /// - Returns: whether all of it was sent.
    mutating func end(isLast: Bool) -> Bool {
        closeRecord()
        header(RecordType.answer, count: 0).append(to: &gathered)
        header(RecordType.endRequest, count: 8).append(to: &gathered)
        // The application's status 0, and FCGI_REQUEST_COMPLETE.
        gathered.append(contentsOf: repeatElement(0, count: 8))
        if isLast { gathered.append(contentsOf: ConnectionRecord.farewell) }
        return flush()
    }

    /// Sends what was gathered, and a message about content that nginx writes by itself.
    mutating func send(_ message: LaneMessage.Answer) -> Bool {
        flush() && connection.send(record(of: message))
    }

    /// The same, with the file that it writes to; between two records of an answer.
    mutating func send(_ message: LaneMessage.Answer, passing file: borrowing Descriptor) -> Bool {
        flush() && connection.send(record(of: message), passing: file)
    }

    private func record(of message: LaneMessage.Answer) -> [UInt8] {
        RecordHeader.record(RecordType.data, id, message.bytes)
    }

    private mutating func gather(_ bytes: UnsafeRawBufferPointer) {
        // An empty record would be the end.
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
        return gathered.withUnsafeBytes { connection.send($0, part) }
    }

    /// Bytes of memory that are kept while an answer pauses.
    private static let mostKept = 512

    private func header(_ type: UInt8, count: Int) -> RecordHeader {
        RecordHeader(type: type, id: id, count: count)
    }
}
