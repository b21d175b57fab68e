// Reads and writes the headers of FastCGI records (FastCGI 1.0, section 3.3), and splits a byte stream into records.
//
// Pure. Invariant: a piece of content never extends beyond its record, and the parser keeps no bytes that it returned.

/// Record types (section 8).
enum RecordType {
    static let beginRequest: UInt8 = 1
    static let endRequest: UInt8 = 3
    static let parameters: UInt8 = 4
    static let content: UInt8 = 5
    static let answer: UInt8 = 6
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
    static let mostContent = Int(UInt16.max)

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

    /// Removes the next item, with at most `most` bytes of content, from the start of `bytes`.
    ///
    /// - Returns: nil if all bytes are used, or if `most` is 0 and content follows.
    mutating func next(_ bytes: inout UnsafeRawBufferPointer, most: Int = .max) -> Piece? {
        guard rest == 0 else {
            let count = min(rest, bytes.count, most)
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
