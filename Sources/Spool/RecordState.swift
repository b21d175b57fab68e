// The changing part of a record: one line of text in one of two slots; see spoolgate-spool(5),
// RECORDS.
//
// Slots are written in turn, each in one sector of the disk, so that a torn write leaves the older
// one. Invariant: a line that does not match its checksum is never believed.

import Crypto

/// What changes in an upload's record.
struct RecordState: Sendable, Equatable {
    /// Bytes of one slot.
    static let slotSize = 512
    /// Bytes of a reason that are kept.
    static let reasonLimit = 240

    /// Counts the states written; the higher one is newer, and its parity names its slot.
    var sequence: UInt64 = 0
    /// The offset that survives a power cut; nil: nothing was ever promised of this upload.
    var durable: Int64?
    /// The length, once known.
    var length: Int64?
    /// Delivery attempts begun.
    var attempts = 0
    /// Why the last attempt did not deliver it.
    var reason: String?
    /// Where the stored response is in the record file.
    var response: Range<Int64>?
    /// The status of a final response that could not be stored; nil where it was.
    var status: Int?

    /// Where this state's slot is in the record file.
    var slotPosition: Int64 { Int64(sequence % 2) * Int64(Self.slotSize) }

    /// The state as the bytes of a slot.
    var slot: [UInt8] {
        func shown(_ number: Int64?) -> String { number.map { String($0) } ?? "-" }
        var line = "sequence=\(sequence) durable=\(shown(durable)) length=\(shown(length))"
        let extent =
            response.map { "\($0.lowerBound)+\($0.upperBound - $0.lowerBound)" }
            ?? status.map { String($0) } ?? "-"
        line += " attempts=\(attempts) response=\(extent) reason="
        var bytes = Array(line.utf8)
        bytes += Self.stored(reason ?? "")
        bytes += Checksum.field(of: bytes)
        bytes += [UInt8](repeating: UInt8(ascii: " "), count: Self.slotSize - 1 - bytes.count)
        bytes.append(UInt8(ascii: "\n"))
        return bytes
    }

    /// The newer of the two states in a record's first bytes; nil if neither can be believed.
    static func newest(in bytes: [UInt8]) -> RecordState? {
        guard bytes.count >= 2 * slotSize else { return nil }
        let slots = [bytes[..<slotSize], bytes[slotSize..<2 * slotSize]]
        // The one that says it is newer is judged first: nearly always it is right, and the other
        // need not be looked at.
        let isSwapped = (sequence(told: slots[0]) ?? 0) < (sequence(told: slots[1]) ?? 0)
        for slot in isSwapped ? slots.reversed() : slots {
            guard let state = RecordState(slot: slot) else { continue }
            if state.slotPosition == Int64(slot.startIndex) { return state }
        }
        return nil
    }

    /// Whether a record with these first bytes may ever have promised anything.
    ///
    /// A promise is a slot that was made durable, and what is durable stays readable. So where each slot
    /// is missing, blank, zeros or without a promise there was none; anything else may be a damaged one.
    static func mayPromise(in bytes: [UInt8]) -> Bool {
        [0, slotSize].contains { start in
            let slot = bytes.dropFirst(start).prefix(slotSize)
            if let state = RecordState(slot: slot) { return state.durable != nil }
            return !slot.allSatisfy { [0, UInt8(ascii: " "), UInt8(ascii: "\n")].contains($0) }
        }
    }

    /// The sequence in a slot whose checksum nobody has looked at.
    private static func sequence(told slot: ArraySlice<UInt8>) -> UInt64? {
        guard slot.starts(with: names[0]) else { return nil }
        let digits = slot.dropFirst(names[0].count).prefix { $0 != UInt8(ascii: " ") }
        return UInt64(String(decoding: digits, as: UTF8.self))
    }

    /// What the words of a slot begin with, in their order.
    private static let names = [
        "sequence=", "durable=", "length=", "attempts=", "response=", "reason=",
    ].map { Array($0.utf8) }

    /// The state of an upload that was just made.
    init(length: Int64? = nil) { self.length = length }

    /// The state `other` written again.
    init(_ other: RecordState, sequence: UInt64) {
        self = other
        self.sequence = sequence
    }

    private init?(slot: ArraySlice<UInt8>) {
        guard let line = Checksum.verified(slot) else { return nil }
        let words = line.split(separator: UInt8(ascii: " "), maxSplits: 5)
        guard words.count == Self.names.count else { return nil }
        var values: [String] = []
        values.reserveCapacity(words.count)
        for (word, name) in zip(words, Self.names) {
            guard word.starts(with: name) else { return nil }
            values.append(String(decoding: word.dropFirst(name.count), as: UTF8.self))
        }
        guard let sequence = UInt64(values[0]), let attempts = Int(values[3]) else { return nil }
        self.sequence = sequence
        self.attempts = attempts
        for (text, isDurable) in [(values[1], true), (values[2], false)] where text != "-" {
            guard let number = Int64(text), number >= 0 else { return nil }
            if isDurable { durable = number } else { length = number }
        }
        if values[4] != "-" {
            let words = values[4].split(separator: "+", omittingEmptySubsequences: false)
            let numbers = words.compactMap { Int64($0) }
            guard numbers.count == words.count, numbers.allSatisfy({ $0 >= 0 }) else { return nil }
            switch numbers.count {
            case 1 where numbers[0] <= 999: status = Int(numbers[0])
            case 2 where !numbers[0].addingReportingOverflow(numbers[1]).overflow:
                response = numbers[0]..<numbers[0] + numbers[1]
            default: return nil
            }
        }
        reason = values[5].isEmpty ? nil : values[5]
    }

    /// A reason on one line, cut at a character's boundary to what a slot has room for.
    private static func stored(_ reason: String) -> [UInt8] {
        var bytes: [UInt8] = []
        for scalar in reason.unicodeScalars {
            let isControl = scalar.value < 0x20 || scalar.value == 0x7f
            let character = Array((isControl ? " " : String(scalar)).utf8)
            guard bytes.count + character.count <= reasonLimit else { break }
            bytes += character
        }
        return bytes
    }
}

/// Checksums of a record's parts: the first 8 bytes of SHA-256, in hexadecimal.
enum Checksum {
    private static let mark = Array(" sum=".utf8)
    private static let digits = Array("0123456789abcdef".utf8)

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
        let size = mark.count + 16
        guard end - slot.startIndex > size else { return nil }
        let line = Array(slot[slot.startIndex..<end - size])
        return slot[(end - size)..<end].elementsEqual(field(of: line)) ? line : nil
    }
}
