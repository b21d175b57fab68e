// Lines of text, `name value`, written and read byte by byte.
//
// It knows no line's meaning. Invariant: a line ends at the first LF, because no value has one.

import HTTPTypes
import TextFormats
import UploadProtocol

/// The numbers of records: sizes, offsets, counts and seconds.
enum RecordNumber {
    /// Reads a number; nil for what is none that a record can have.
    ///
    /// The largest is the protocol's: sums of a few such numbers are far from the end of their type.
    static func read(_ digits: some Collection<UInt8>) -> Int64? {
        Int64(digits: digits).flatMap { $0 <= UploadLimits.mostSize ? $0 : nil }
    }

    /// Reads a number from text.
    static func read(_ text: String) -> Int64? { read(text.utf8) }

    /// Reads seconds before or since 1970, of as many digits.
    static func moment(_ text: String) -> Int64? {
        let isBefore = text.hasPrefix("-")
        return read(isBefore ? String(text.dropFirst()) : text).map { isBefore ? -$0 : $0 }
    }
}

/// Builds a block of lines.
struct LineWriter {
    /// Bytes of the line that `addSum` writes.
    static let sumSize = 5 + Checksum.digitCount

    /// What was written so far.
    private(set) var bytes: [UInt8] = []

    /// Starts with nothing, and room for most texts.
    init() { bytes.reserveCapacity(1024) }

    /// Adds a line as it is.
    mutating func add(line: String) {
        bytes.append(text: line)
        bytes.append(UInt8(ascii: "\n"))
    }

    /// Adds a line whose value may hold any character; none for nil.
    mutating func add(_ name: String, escaping value: String?) {
        guard let value else { return }
        bytes.append(text: name)
        bytes.append(UInt8(ascii: " "))
        let start = bytes.count
        bytes.append(text: value)
        if bytes[start...].contains(where: { Self.escape(for: $0) != nil }) {
            bytes.removeSubrange(start...)
            for byte in value.utf8 {
                if let letter = Self.escape(for: byte) {
                    bytes += [UInt8(ascii: "\\"), letter]
                } else {
                    bytes.append(byte)
                }
            }
        }
        bytes.append(UInt8(ascii: "\n"))
    }

    /// Adds a line whose value is a number; none for nil.
    mutating func add(_ name: String, _ number: Int64?) {
        guard let number else { return }
        bytes.append(text: name)
        bytes.append(UInt8(ascii: " "))
        bytes.append(decimal: number)
        bytes.append(UInt8(ascii: "\n"))
    }

    /// What stands behind a backslash for a byte that a line cannot have; nil for all others.
    private static func escape(for byte: UInt8) -> UInt8? {
        switch byte {
        case UInt8(ascii: "\\"): byte
        case UInt8(ascii: "\n"): UInt8(ascii: "n")
        case UInt8(ascii: "\r"): UInt8(ascii: "r")
        case 0: UInt8(ascii: "0")
        default: nil
        }
    }

    /// Adds a line for each field, in order; names and values as they were received.
    mutating func add(_ fields: HTTPFields) {
        for field in fields {
            bytes.append(literal: "field ")
            bytes.append(text: field.name.rawName)
            bytes.append(literal: ": ")
            field.withUnsafeBytesOfValue { bytes.append(contentsOf: $0) }
            bytes.append(UInt8(ascii: "\n"))
        }
    }

    /// Adds bytes of any kind, and a line end.
    mutating func add(content: [UInt8]) {
        bytes += content
        bytes.append(UInt8(ascii: "\n"))
    }

    /// Adds the checksum of everything before it, in the record of `id`.
    mutating func addSum(for id: UploadID) { bytes += Self.sum(of: bytes, for: id) }

    /// The line that `addSum` adds to `bytes`.
    static func sum(of bytes: some Collection<UInt8>, for id: UploadID) -> [UInt8] {
        var line: [UInt8] = []
        line.reserveCapacity(sumSize)
        line.append(literal: "sum ")
        line += Checksum.digits(of: bytes, for: id)
        line.append(UInt8(ascii: "\n"))
        return line
    }

    /// What stands before the last line of `bytes`, where that is its checksum; nil where it is not.
    static func verified(_ bytes: [UInt8], for id: UploadID) -> ArraySlice<UInt8>? {
        let end = bytes.count - sumSize
        guard end > 0, bytes[end...].elementsEqual(sum(of: bytes[..<end], for: id)) else {
            return nil
        }
        return bytes[..<end]
    }
}

/// Takes lines off a block.
struct LineReader {
    private let bytes: ArraySlice<UInt8>
    /// The index of the next line's first byte.
    private(set) var position: Int

    /// Reads from the start of `bytes`.
    init(_ bytes: ArraySlice<UInt8>) {
        self.bytes = bytes
        position = bytes.startIndex
    }

    /// The next line without its end; nil if no whole line is left.
    mutating func line() -> ArraySlice<UInt8>? {
        guard let end = bytes[position...].firstIndex(of: UInt8(ascii: "\n")) else { return nil }
        defer { position = end + 1 }
        return bytes[position..<end]
    }

    /// A line's name and value.
    static func split(_ line: ArraySlice<UInt8>) -> (name: String, value: ArraySlice<UInt8>) {
        let end = line.firstIndex(of: UInt8(ascii: " ")) ?? line.endIndex
        return (String(decoding: line[..<end], as: UTF8.self), line[end...].dropFirst())
    }

    /// The field in a `field` line's value.
    static func field(_ value: ArraySlice<UInt8>) throws(UnreadableRecord) -> HTTPField {
        guard let colon = value.firstIndex(of: UInt8(ascii: ":")),
            let name = HTTPField.Name(String(decoding: value[..<colon], as: UTF8.self))
        else { throw UnreadableRecord(reason: "a field has no name") }
        return HTTPField(name: name, lenientValue: value[colon...].dropFirst(2))
    }

    /// A value with its escapes resolved.
    static func unescaped(_ value: ArraySlice<UInt8>) -> String {
        guard value.contains(UInt8(ascii: "\\")) else {
            return String(decoding: value, as: UTF8.self)
        }
        var result: [UInt8] = []
        var isEscaped = false
        for byte in value {
            if isEscaped {
                switch byte {
                case UInt8(ascii: "n"): result.append(UInt8(ascii: "\n"))
                case UInt8(ascii: "r"): result.append(UInt8(ascii: "\r"))
                case UInt8(ascii: "0"): result.append(0)
                default: result.append(byte)
                }
                isEscaped = false
            } else if byte == UInt8(ascii: "\\") {
                isEscaped = true
            } else {
                result.append(byte)
            }
        }
        return String(decoding: result, as: UTF8.self)
    }
}
