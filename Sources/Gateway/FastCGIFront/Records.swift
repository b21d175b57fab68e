// FastCGI records as bytes (FastCGI 1.0, section 3.3): headers read and written, a stream of bytes cut into
// records.
//
// Pure. It knows no connection and no request. Invariant: a piece of content never reaches beyond its
// record, and nothing is kept of what was handed out.

/// Types of records (section 8).
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

/// The eight bytes before a record's content.
struct RecordHeader: Equatable {
    /// One of `RecordType`, or another.
    var type: UInt8
    /// The request's number; 0: about the connection.
    var id: UInt16
    /// Bytes of content.
    var count: Int
    /// Bytes behind the content that mean nothing, up to 255.
    var padding: Int = 0

    /// Bytes of a header.
    static let size = 8
    /// Most bytes of content.
    static let mostContent = Int(UInt16.max)

    /// Adds the header's bytes; `padding` must be 0.
    func append(to bytes: inout [UInt8]) {
        withUnsafeBytes(of: word.bigEndian) { bytes.append(contentsOf: $0) }
    }

    /// Overwrites the eight bytes from `index` on.
    func replace(in bytes: inout [UInt8], at index: Int) {
        bytes.withUnsafeMutableBytes {
            $0.storeBytes(of: word.bigEndian, toByteOffset: index, as: UInt64.self)
        }
    }

    /// A record with this type and number.
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
    /// What eight bytes, in the order of the network, say; nil for another version than 1.
    fileprivate init?(_ word: UInt64) {
        guard word >> 56 == 1 else { return nil }
        type = UInt8(truncatingIfNeeded: word >> 48)
        id = UInt16(truncatingIfNeeded: word >> 32)
        count = Int(UInt16(truncatingIfNeeded: word >> 16))
        padding = Int(UInt8(truncatingIfNeeded: word >> 8))
    }
}

/// Cuts bytes into records, wherever the bytes themselves were cut.
struct RecordParser {
    /// What comes next.
    enum Piece {
        case header(RecordHeader)
        /// Content of the record whose header came last; `rest` says how much of it is still to come.
        case content(UnsafeRawBufferPointer)
        /// No header of version 1: nothing that follows can be understood.
        case malformed
    }

    /// Bytes of the present record's content that are still to come.
    private(set) var rest = 0
    /// Bytes of padding before the next header.
    private var padding = 0
    private var header: UInt64 = 0
    private var headerCount = 0

    /// Whether no byte has come since the last record's content and padding.
    var isBetweenRecords: Bool { rest == 0 && padding == 0 && headerCount == 0 }

    /// Takes the next piece off the front of `bytes`.
    ///
    /// - Parameters:
    ///   - bytes: what came; what is taken is no longer in it.
    ///   - most: bytes of content, at most.
    /// - Returns: nil where the bytes are used up, or `most` is 0 and content comes next.
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

    /// Takes what pads the present record off the front of `bytes`.
    mutating func skipPadding(_ bytes: inout UnsafeRawBufferPointer) {
        let count = rest == 0 ? min(padding, bytes.count) : 0
        _ = take(count, off: &bytes)
        padding -= count
    }

    /// Notes that content of the present record was read past this parser.
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
