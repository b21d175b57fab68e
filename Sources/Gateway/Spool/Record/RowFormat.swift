// Writes and reads lines of text and the words of a line, byte by byte.
//
// Invariant: a line ends at the first LF, because no value contains one.

import HTTPTypes
import SpoolgatePosix
import SpoolgateTextFormats
import SpoolgateUploadProtocol

/// Whether rows are lines, `name value`, or the words of one line, `name=value`.
enum RowFormat {
    case lines
    case words

    fileprivate var separator: UInt8 { self == .lines ? UInt8(ascii: " ") : UInt8(ascii: "=") }
    fileprivate var end: UInt8 { self == .lines ? UInt8(ascii: "\n") : UInt8(ascii: " ") }
}

struct LineWriter: RecordRows, ~Copyable {
    /// The size in bytes of the line that `addSum` adds.
    static let sumSize = 5 + Checksum.digitCount

    /// The bytes so far.
    var builder = ByteBuilder(room: 1024)
    private let format: RowFormat

    init(_ format: RowFormat = .lines) { self.format = format }

    var bytes: [UInt8] { builder.array }

    mutating func add(line: StaticString) {
        builder.put(line)
        builder.put(UInt8(ascii: "\n"))
    }

    mutating func row<V: RecordValue>(_ name: StaticString, _ value: inout V) {
        builder.put(name)
        builder.put(format.separator)
        value.put(into: &builder)
        builder.put(format.end)
    }

    mutating func row<V: RecordValue>(_ name: StaticString, ifSet value: inout V?) {
        if var value { row(name, &value) }
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
        builder.put("sum ")
        Checksum.put(sum, into: &builder)
        builder.put(UInt8(ascii: "\n"))
    }

    /// Returns the bytes before the last line, or nil if that line is not their checksum.
    static func verified(_ bytes: [UInt8], for id: UploadID) -> ArraySlice<UInt8>? {
        let end = bytes.count - sumSize
        guard end > 0, bytes.last == UInt8(ascii: "\n"),
            case let (name, sum) = LineReader.split(bytes[end...].dropLast()), name == "sum",
            Checksum.isSum(sum, of: bytes[..<end], for: id)
        else { return nil }
        return bytes[..<end]
    }
}

/// Reads the rows that a `LineWriter` has written, in their order.
struct RowReader: RecordRows {
    typealias Bytes = UnsafeBufferPointer<UInt8>

    /// The bytes that have not been read.
    private(set) var rest: Bytes
    private let format: RowFormat
    /// The name of the first row that every record has and that this one lacks.
    private(set) var missing: String?

    init(_ bytes: Bytes, _ format: RowFormat = .lines) { (rest, self.format) = (bytes, format) }

    /// The next row, shortened, or nil if all have been read.
    var next: String? {
        rest.isEmpty ? nil : String(decoding: rest.prefix(min(rowSize, 80)), as: UTF8.self)
    }

    private var rowSize: Int { rest.index(of: format.end, from: 0) ?? rest.count }

    mutating func row<V: RecordValue>(_ name: StaticString, _ value: inout V) {
        let isTaken = take(name) { value.take(recordText: $0) }
        if !isTaken { missing = missing ?? "\(name)" }
    }

    mutating func row<V: RecordValue>(_ name: StaticString, ifSet value: inout V?) {
        _ = take(name) { text in
            guard let read = V(recordText: text) else { return false }
            value = read
            return true
        }
    }

    /// Takes the next row if the row has this name and `body` knows its value.
    @inline(__always)
    private mutating func take(_ name: StaticString, _ body: (Slice<Bytes>) -> Bool) -> Bool {
        let start = name.utf8CodeUnitCount
        guard missing == nil, rest.hasPrefix(name), start < rest.count,
            rest[start] == format.separator,
            case let size = rowSize, size < rest.count,
            body(rest[(start + 1)..<size])
        else { return false }
        rest = Bytes(rebasing: rest[(size + 1)...])
        return true
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
}

// MARK: Values

// The values in a record's lines and words, as text; see spoolgate-spool(5), RECORDS.
//
// A property of a record is one row of `visit` in `UploadCreation` or `RecordState`, which writes and reads it.

/// Writes or reads the properties of a record, one row at a time.
protocol RecordRows: ~Copyable {
    /// Writes or reads a property that every record has.
    mutating func row<V: RecordValue>(_ name: StaticString, _ value: inout V)

    /// Writes or reads a property that a record lacks if it is nil.
    mutating func row<V: RecordValue>(_ name: StaticString, ifSet value: inout V?)
}

/// A value that a record contains as text.
///
/// Invariant: reading returns exactly what was written.
protocol RecordValue {
    func put(into text: inout ByteBuilder)

    /// Reads a value, or returns nil if this version does not know it.
    init?(recordText text: some Collection<UInt8>)

    /// Reads a value as `init(recordText:)` does, or returns false.
    mutating func take(recordText text: some Collection<UInt8>) -> Bool
}

extension RecordValue {
    mutating func take(recordText text: some Collection<UInt8>) -> Bool {
        guard let read = Self(recordText: text) else { return false }
        self = read
        return true
    }
}

// MARK: Numbers and times

extension RecordValue where Self: BinaryInteger {
    func put(into text: inout ByteBuilder) { text.put(decimal: Int64(clamping: self)) }

    /// Returns nil if the number exceeds the protocol's maximum, so that the sum of a few numbers cannot overflow.
    init?(recordText text: some Collection<UInt8>) {
        guard let number = Int64(digits: text), number <= UploadLimits.maximumSize else {
            return nil
        }
        self.init(number)
    }
}

extension Int: RecordValue {}
extension Int64: RecordValue {}
extension UInt64: RecordValue {}

extension WallTime: RecordValue {
    func put(into text: inout ByteBuilder) { seconds.put(into: &text) }

    /// Reads a time in seconds since 1970; earlier times are negative.
    init?(recordText text: some Collection<UInt8>) {
        let isBefore = text.first == UInt8(ascii: "-")
        guard let seconds = Int64(recordText: text.dropFirst(isBefore ? 1 : 0)) else { return nil }
        self.init(seconds: isBefore ? -seconds : seconds)
    }
}

/// A part of the record file: its start and its size, joined by `+`.
extension Range<Int64>: RecordValue {
    func put(into text: inout ByteBuilder) {
        lowerBound.put(into: &text)
        text.put(UInt8(ascii: "+"))
        (upperBound - lowerBound).put(into: &text)
    }

    init?(recordText text: some Collection<UInt8>) {
        guard let plus = text.firstIndex(of: UInt8(ascii: "+")),
            let start = Int64(recordText: text[..<plus]),
            let count = Int64(recordText: text[plus...].dropFirst())
        else { return nil }
        self = start..<start + count
    }
}

// MARK: Texts

/// Backslash, CR, LF and NUL are escaped.
extension String: RecordValue {
    func put(into text: inout ByteBuilder) {
        var value = self
        value.withUTF8 { bytes in
            // Without a branch, the compiler can test many bytes at once. Escapes are rare.
            let escaped = bytes.reduce(0 as UInt8) { found, byte in
                found | (byte < 0x20 || byte == UInt8(ascii: "\\") ? 1 : 0)
            }
            guard escaped != 0 else { return text.put(bytes) }
            for byte in bytes {
                let letter = Self.escapes.first { $0.byte == byte }?.letter
                if letter != nil { text.put(UInt8(ascii: "\\")) }
                text.put(letter ?? byte)
            }
        }
    }

    init(recordText text: some Collection<UInt8>) {
        guard text.contains(UInt8(ascii: "\\")) else {
            self.init(decoding: text, as: UTF8.self)
            return
        }
        var bytes: [UInt8] = []
        var rest = text.makeIterator()
        while let byte = rest.next() {
            guard byte == UInt8(ascii: "\\") else {
                bytes.append(byte)
                continue
            }
            guard let letter = rest.next() else { break }
            bytes.append(Self.escapes.first { $0.letter == letter }?.byte ?? letter)
        }
        self.init(decoding: bytes, as: UTF8.self)
    }

    /// An equal value remains, without an allocation.
    mutating func take(recordText text: some Collection<UInt8>) -> Bool {
        let isSame = utf8.withContiguousStorageIfAvailable { text.elementsEqual($0) } ?? false
        if !isSame || text.contains(UInt8(ascii: "\\")) { self = String(recordText: text) }
        return true
    }

    private static let escapes: [(byte: UInt8, letter: UInt8)] = [
        (UInt8(ascii: "\\"), UInt8(ascii: "\\")), (UInt8(ascii: "\n"), UInt8(ascii: "n")),
        (UInt8(ascii: "\r"), UInt8(ascii: "r")), (0, UInt8(ascii: "0")),
    ]
}

extension ExactText: RecordValue {
    func put(into text: inout ByteBuilder) { self.text.put(into: &text) }
    init(recordText text: some Collection<UInt8>) { self.init(String(recordText: text)) }
}

extension UploadID: RecordValue {
    func put(into text: inout ByteBuilder) { text.put(text: description) }
    init?(recordText text: some Collection<UInt8>) { self.init(bytes: text) }
}

// MARK: Words

extension Bool: RecordValue {
    func put(into text: inout ByteBuilder) { text.put(self ? "yes" : "no") }

    init?(recordText text: some Collection<UInt8>) {
        self = text.elementsEqual("yes".utf8)
        guard self || text.elementsEqual("no".utf8) else { return nil }
    }
}

extension RecordValue where Self: RawRepresentable<String> {
    func put(into text: inout ByteBuilder) { text.put(text: rawValue) }

    init?(recordText text: some Collection<UInt8>) {
        self.init(rawValue: String(decoding: text, as: UTF8.self))
    }
}

extension HTTPRequest.Method: RecordValue {}
extension UploadPromise: RecordValue {}
extension HoldCause: RecordValue {}
extension RecordState.Fallback: RecordValue {}

extension Queue: RecordValue {
    /// No state says `corrupt`.
    init?(recordText text: some Collection<UInt8>) {
        self.init(rawValue: String(decoding: text, as: UTF8.self))
        guard self != .corrupt else { return nil }
    }
}

extension Optional: RecordValue where Wrapped: RecordValue {
    func put(into text: inout ByteBuilder) {
        if let self { self.put(into: &text) } else { text.put(UInt8(ascii: "-")) }
    }

    init?(recordText text: some Collection<UInt8>) {
        if text.elementsEqual(CollectionOfOne(UInt8(ascii: "-"))) {
            self = .none
        } else if let value = Wrapped(recordText: text) {
            self = value
        } else {
            return nil
        }
    }
}
