// Checksums in records: how a line or a part proves that it is whole; see spoolgate-spool(5), RECORDS.

import Crypto

/// Checksums of a record's parts: the first 8 bytes of SHA-256, in hexadecimal.
enum Checksum {
    private static let mark = Array(" sum=".utf8)
    private static let digits = Array("0123456789abcdef".utf8)
    /// Bytes of what `field` makes.
    static let fieldSize = mark.count + 16

    /// The 16 digits for some bytes.
    static func digits(of bytes: [UInt8]) -> [UInt8] {
        var text: [UInt8] = []
        text.reserveCapacity(16)
        for byte in SHA256.digest(bytes.span.bytes).prefix(8) {
            text.append(digits[Int(byte >> 4)])
            text.append(digits[Int(byte & 15)])
        }
        return text
    }

    /// ` sum=<16 digits>` for a line.
    static func field(of line: [UInt8]) -> [UInt8] { mark + digits(of: line) }

    /// The line in a slot without its checksum and padding; nil where they do not match.
    static func verified(_ slot: ArraySlice<UInt8>) -> [UInt8]? {
        guard slot.last == UInt8(ascii: "\n") else { return nil }
        var end = slot.endIndex - 1
        while end > slot.startIndex, slot[end - 1] == UInt8(ascii: " ") { end -= 1 }
        guard end - slot.startIndex > fieldSize else { return nil }
        let line = Array(slot[slot.startIndex..<end - fieldSize])
        return slot[(end - fieldSize)..<end].elementsEqual(field(of: line)) ? line : nil
    }
}
