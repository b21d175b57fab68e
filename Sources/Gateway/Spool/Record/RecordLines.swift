// Writes and reads lines of text, `name value`, byte by byte.
//
// Invariant: a line ends at the first LF, because no value contains one.

import HTTPTypes
import SpoolgateTextFormats
import SpoolgateUploadProtocol

/// The numbers in records: sizes, offsets, counts and seconds.
enum RecordNumber {
    /// Reads a number, or returns nil if it is invalid or exceeds the protocol's maximum, so that the sum of a few
    /// numbers cannot overflow.
    static func read(_ digits: some Collection<UInt8>) -> Int64? {
        Int64(digits: digits).flatMap { $0 <= UploadLimits.mostSize ? $0 : nil }
    }

    static func read(_ text: String) -> Int64? { read(text.utf8) }

    /// Reads a time in seconds since 1970.
    ///
    /// Earlier times are negative. Returns nil if the time exceeds the range of `read(_:)`.
    static func moment(_ text: String) -> Int64? {
        let isBefore = text.hasPrefix("-")
        return read(isBefore ? String(text.dropFirst()) : text).map { isBefore ? -$0 : $0 }
    }
}

struct LineWriter: ~Copyable {
    /// The size in bytes of the line that `addSum` adds.
    static let sumSize = 5 + Checksum.digitCount
    private static let sumName: StaticString = "sum "

    private var builder = ByteBuilder(room: 1024)

    var bytes: [UInt8] { builder.array }

    mutating func add(line: StaticString) {
        builder.put(line)
        builder.put(UInt8(ascii: "\n"))
    }

    /// Adds a line with the escaped value, or nothing if the value is nil.
    mutating func add(_ name: StaticString, escaping value: String?) {
        guard var value else { return }
        builder.put(name)
        builder.put(UInt8(ascii: " "))
        value.withUTF8 { bytes in
            // Without a branch, the compiler can test many bytes at once. Escapes are rare.
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

    /// Adds a line with the number, or nothing if the number is nil.
    mutating func add(_ name: StaticString, _ number: Int64?) {
        guard let number else { return }
        builder.put(name)
        builder.put(UInt8(ascii: " "))
        builder.put(decimal: number)
        builder.put(UInt8(ascii: "\n"))
    }

    /// Returns the letter after the backslash, or nil if the byte need not be escaped.
    private static func escape(for byte: UInt8) -> UInt8? {
        switch byte {
        case UInt8(ascii: "\\"): byte
        case UInt8(ascii: "\n"): UInt8(ascii: "n")
        case UInt8(ascii: "\r"): UInt8(ascii: "r")
        case 0: UInt8(ascii: "0")
        default: nil
        }
    }

    /// Adds a line for each field, with name and value as received.
    mutating func add(_ fields: HTTPFields) {
        for field in fields {
            builder.put("field ")
            builder.put(text: field.name.rawName)
            builder.put(": ")
            field.withUnsafeBytesOfValue { builder.put($0) }
            builder.put(UInt8(ascii: "\n"))
        }
    }

    /// Adds bytes without escaping, and an LF.
    mutating func add(content: [UInt8]) {
        content.withUnsafeBufferPointer { builder.put($0) }
        builder.put(UInt8(ascii: "\n"))
    }

    /// Adds a line with the checksum of all bytes before it.
    mutating func addSum(for id: UploadID) {
        let sum = builder.withBytes { Checksum.sum(of: $0, for: id) }
        builder.put(Self.sumName)
        Checksum.put(sum, into: &builder)
        builder.put(UInt8(ascii: "\n"))
    }

    /// Returns the bytes before the last line, or nil if that line is not their checksum.
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

struct LineReader {
    private let bytes: ArraySlice<UInt8>
    private(set) var position: Int

    init(_ bytes: ArraySlice<UInt8>) {
        self.bytes = bytes
        position = bytes.startIndex
    }

    /// Returns the next line without its LF, or nil if no complete line is left.
    mutating func line() -> ArraySlice<UInt8>? {
        guard let end = bytes[position...].firstIndex(of: UInt8(ascii: "\n")) else { return nil }
        defer { position = end + 1 }
        return bytes[position..<end]
    }

    static func split(_ line: ArraySlice<UInt8>) -> (name: String, value: ArraySlice<UInt8>) {
        let end = line.firstIndex(of: UInt8(ascii: " ")) ?? line.endIndex
        return (String(decoding: line[..<end], as: UTF8.self), line[end...].dropFirst())
    }

    /// Parses the value of a `field` line.
    static func field(_ value: ArraySlice<UInt8>) throws(UnreadableRecord) -> HTTPField {
        guard let colon = value.firstIndex(of: UInt8(ascii: ":")),
            let name = HTTPField.Name(String(decoding: value[..<colon], as: UTF8.self))
        else { throw UnreadableRecord(reason: "a field has no name") }
        return HTTPField(name: name, lenientValue: value[colon...].dropFirst(2))
    }

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
