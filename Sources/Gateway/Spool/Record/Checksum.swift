// Checksums in records, which show that a line or part is complete; see spoolgate-spool(5), RECORDS.

import SpoolgateTextFormats
import SpoolgateUploadProtocol

/// The CRC32C (RFC 3720 §12.1) of an upload's identity and some bytes, as eight hexadecimal digits.
///
/// The identity is included so that leftovers of another upload's record do not match.
enum Checksum {
    static let digitCount = 8
    /// The text before the checksum at the end of a slot's line.
    static let mark: StaticString = " sum="
    static let fieldSize = mark.utf8CodeUnitCount + digitCount

    /// The contribution of a byte in each of eight positions.
    private static let tables: [UInt32] = {
        var tables = [UInt32](repeating: 0, count: 8 * 256)
        for byte in 0..<256 {
            tables[byte] = (0..<8).reduce(UInt32(byte)) { sum, _ in
                sum & 1 == 0 ? sum >> 1 : (sum >> 1) ^ 0x82f6_3b78
            }
        }
        for index in 256..<tables.count {
            let before = tables[index - 256]
            tables[index] = (before >> 8) ^ tables[Int(before & 255)]
        }
        return tables
    }()

    /// Returns the CRC32C of bytes that follow other bytes whose CRC32C is `before`.
    static func sum(_ bytes: UnsafeBufferPointer<UInt8>, after before: UInt32 = 0) -> UInt32 {
        tables.withUnsafeBufferPointer { tables in
            var sum = ~before
            var position = 0
            let raw = UnsafeRawBufferPointer(bytes)
            while position + 8 <= raw.count {
                let word = raw.loadUnaligned(fromByteOffset: position, as: UInt64.self).littleEndian
                let mixed = word ^ UInt64(sum)
                sum = 0
                for place in 0..<8 {
                    sum ^= tables[(7 - place) * 256 + Int((mixed >> (UInt64(place) * 8)) & 255)]
                }
                position += 8
            }
            for byte in bytes[position...] {
                sum = (sum >> 8) ^ tables[Int((sum ^ UInt32(byte)) & 255)]
            }
            return ~sum
        }
    }

    static func sum(of bytes: UnsafeBufferPointer<UInt8>, for id: UploadID) -> UInt32 {
        var ofIdentity: UInt32 = 0
        id.withCharacters { ofIdentity = sum($0) }
        return sum(bytes, after: ofIdentity)
    }

    static func put(_ sum: UInt32, into text: inout ByteBuilder) {
        for place in 0..<digitCount { text.put(digit(place, of: sum)) }
    }

    static func areDigits(_ bytes: UnsafeBufferPointer<UInt8>, of sum: UInt32) -> Bool {
        bytes.count == digitCount
            && (0..<digitCount).allSatisfy { bytes[$0] == digit($0, of: sum) }
    }

    static func isSum(
        _ digits: ArraySlice<UInt8>,
        of bytes: ArraySlice<UInt8>,
        for id: UploadID
    ) -> Bool {
        let right = bytes.withUnsafeBufferPointer { sum(of: $0, for: id) }
        return digits.withUnsafeBufferPointer { areDigits($0, of: right) }
    }

    private static func digit(_ place: Int, of sum: UInt32) -> UInt8 {
        let value = UInt8(truncatingIfNeeded: sum >> UInt32(28 - 4 * place)) & 15
        return value < 10 ? UInt8(ascii: "0") + value : UInt8(ascii: "a") + value - 10
    }

    /// Returns the line in a slot without its checksum and padding, or nil if the checksum does not match.
    static func verified(_ slot: ArraySlice<UInt8>, for id: UploadID) -> ArraySlice<UInt8>? {
        let count = slot.withUnsafeBufferPointer { slot -> Int? in
            guard slot.last == UInt8(ascii: "\n") else { return nil }
            var end = slot.count - 1
            // A slot consists mostly of spaces.
            let raw = UnsafeRawBufferPointer(slot)
            while end >= 8,
                raw.loadUnaligned(fromByteOffset: end - 8, as: UInt64.self) == 0x2020_2020_2020_2020
            {
                end -= 8
            }
            while end > 0, slot[end - 1] == UInt8(ascii: " ") { end -= 1 }
            let count = end - fieldSize
            guard count > 0 else { return nil }
            let field = UnsafeBufferPointer(rebasing: slot[count..<end])
            let digits = UnsafeBufferPointer(rebasing: field[mark.utf8CodeUnitCount...])
            let line = UnsafeBufferPointer(rebasing: slot[..<count])
            return field.hasPrefix(mark) && areDigits(digits, of: sum(of: line, for: id))
                ? count : nil
        }
        return count.map { slot.prefix($0) }
    }
}
