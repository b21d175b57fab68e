// Lines of text, `name value`, written and read byte by byte.
//
// It knows no line's meaning. Invariant: a line ends at the first LF, because no value has one.

import HTTPTypes
import SpoolgateTextFormats
import SpoolgateUploadProtocol

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
struct LineWriter: ~Copyable {
    /// Bytes of the line that `addSum` writes.
    static let sumSize = 5 + Checksum.digitCount
    private static let sumName: StaticString = "sum "

    private var builder = ByteBuilder(room: 1024)

    /// What was written so far.
    var bytes: [UInt8] { builder.array }

    /// Adds a line as it is.
    mutating func add(line: StaticString) {
        builder.put(line)
        builder.put(UInt8(ascii: "\n"))
    }

    /// Adds a line whose value may hold any character; none for nil.
    mutating func add(_ name: StaticString, escaping value: String?) {
        guard var value else { return }
        builder.put(name)
        builder.put(UInt8(ascii: " "))
        value.withUTF8 { bytes in
            // Without a branch, so that many bytes are looked at at once: hardly any has one.
            let escaped = bytes.reduce(0 as UInt8) { found, byte in
                found | (byte < 0x20 || byte == UInt8(ascii: "\\") ? 1 : 0)
            }
            guard escaped != 0 else { return builder.put(bytes) }
            var start = 0
            for (index, byte) in bytes.enumerated() {
                guard let letter = Self.escape(for: byte) else { continue }
                builder.put(UnsafeBufferPointer(rebasing: bytes[start..<index]))
                builder.put(UInt8(ascii: "\\"))
                builder.put(letter)
                start = index + 1
            }
            builder.put(UnsafeBufferPointer(rebasing: bytes[start...]))
        }
        builder.put(UInt8(ascii: "\n"))
    }

    /// Adds a line whose value is a number; none for nil.
    mutating func add(_ name: StaticString, _ number: Int64?) {
        guard let number else { return }
        builder.put(name)
        builder.put(UInt8(ascii: " "))
        builder.put(decimal: number)
        builder.put(UInt8(ascii: "\n"))
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
            builder.put("field ")
            builder.put(text: field.name.rawName)
            builder.put(": ")
            field.withUnsafeBytesOfValue { builder.put($0) }
            builder.put(UInt8(ascii: "\n"))
        }
    }

    /// Adds bytes of any kind, and a line end.
    mutating func add(content: [UInt8]) {
        content.withUnsafeBufferPointer { builder.put($0) }
        builder.put(UInt8(ascii: "\n"))
    }

    /// Adds the checksum of everything before it, in the record of `id`.
    mutating func addSum(for id: UploadID) {
        let sum = builder.withBytes { Checksum.sum(of: $0, for: id) }
        builder.put(Self.sumName)
        Checksum.put(sum, into: &builder)
        builder.put(UInt8(ascii: "\n"))
    }

    /// What stands before the last line of `bytes`, where that is its checksum; nil where it is not.
    static func verified(_ bytes: [UInt8], for id: UploadID) -> ArraySlice<UInt8>? {
        let end = bytes.count - sumSize
        guard end > 0, bytes.last == UInt8(ascii: "\n") else { return nil }
        let isRight = bytes.withUnsafeBufferPointer { bytes in
            let line = UnsafeBufferPointer(rebasing: bytes[end..<bytes.count - 1])
            return line.hasPrefix(sumName)
                && Checksum.areDigits(
                    UnsafeBufferPointer(rebasing: line[sumName.utf8CodeUnitCount...]),
                    of: Checksum.sum(of: UnsafeBufferPointer(rebasing: bytes[..<end]), for: id)
                )
        }
        return isRight ? bytes[..<end] : nil
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
