// A record's state as one line of text in one of two slots; see spoolgate-spool(5), RECORDS.
//
// Slots are written in turn, each in one sector of the disk, so that a torn write leaves the older
// one. Invariant: a line that does not match its checksum is never believed.

import Posix
import TextFormats

extension RecordState {
    /// Bytes of one slot.
    static let slotSize = 512
    /// Bytes of a reason that are kept.
    static let reasonLimit = 200

    /// Where this state's slot is in the record file.
    var slotPosition: Int64 { Int64(sequence % 2) * Int64(Self.slotSize) }

    /// The state as the bytes of a slot.
    var slot: [UInt8] {
        func shown(_ number: Int64?) -> String { number.map { String($0) } ?? "-" }
        var line = "sequence=\(sequence) durable=\(shown(durable)) length=\(shown(length))"
        let extent = response.map(Self.text) ?? status.map { String($0) } ?? "-"
        line += " attempts=\(attempts) response=\(extent)"
        if let completion { line += " completion=\(Self.text(completion))" }
        if let whole { line += " whole=\(whole.seconds)" }
        if let next { line += " next=\(next.seconds)" }
        if let cause { line += " cause=\(cause.rawValue)" }
        if let verified { line += " verified=\(verified)" }
        line += " reason="
        var bytes = Array(line.utf8)
        let room = Self.slotSize - 1 - Checksum.fieldSize - bytes.count
        bytes += Self.stored(reason ?? "", in: min(room, Self.reasonLimit))
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

    private static let sequenceName = Array("sequence=".utf8)
    private static let reasonName = Array("reason=".utf8)

    /// The sequence in a slot whose checksum nobody has looked at.
    private static func sequence(told slot: ArraySlice<UInt8>) -> UInt64? {
        guard slot.starts(with: sequenceName) else { return nil }
        let digits = slot.dropFirst(sequenceName.count).prefix { $0 != UInt8(ascii: " ") }
        return UInt64(String(decoding: digits, as: UTF8.self))
    }

    private init?(slot: ArraySlice<UInt8>) {
        guard let line = Checksum.verified(slot) else { return nil }
        self.init()
        var rest = line[...]
        // What every state has, in this order; what only some have comes between.
        var awaited = ["sequence", "durable", "length", "attempts", "response"][...]
        while !rest.starts(with: Self.reasonName) {
            guard let end = rest.firstIndex(of: UInt8(ascii: " ")),
                let equals = rest[..<end].firstIndex(of: UInt8(ascii: "="))
            else { return nil }
            let name = String(decoding: rest[..<equals], as: UTF8.self)
            let value = String(decoding: rest[(equals + 1)..<end], as: UTF8.self)
            if let first = awaited.first {
                guard name == first else { return nil }
                awaited.removeFirst()
            }
            guard take(name, value) else { return nil }
            rest = rest[(end + 1)...]
        }
        guard awaited.isEmpty else { return nil }
        let text = rest.dropFirst(Self.reasonName.count)
        reason = text.isEmpty ? nil : String(decoding: text, as: UTF8.self)
    }

    /// Takes one word of a line; false for one that no state can have.
    private mutating func take(_ name: String, _ value: String) -> Bool {
        func count() -> Int64? { RecordNumber.read(value) }
        switch (name, value) {
        case ("durable", "-"), ("length", "-"), ("response", "-"): return true
        case ("sequence", _):
            sequence = UInt64(count() ?? 0)
            return count() != nil
        case ("durable", _): durable = count()
        case ("length", _): length = count()
        case ("attempts", _): attempts = Int(count() ?? 0)
        case ("response", _):
            response = Self.extent(value)
            status = response == nil ? Int(value) : nil
            return response != nil || status.map { (200...999).contains($0) } ?? false
        case ("completion", _): completion = Self.extent(value)
        case ("whole", _): whole = count().map { WallTime(seconds: $0) }
        case ("next", _): next = count().map { WallTime(seconds: $0) }
        case ("cause", _):
            cause = HoldCause(rawValue: value)
            return cause != nil
        case ("verified", _): verified = count()
        default: return false
        }
        return name == "completion" ? completion != nil : count() != nil
    }

    /// `start+size`.
    private static func text(_ extent: Range<Int64>) -> String {
        "\(extent.lowerBound)+\(extent.upperBound - extent.lowerBound)"
    }

    private static func extent(_ text: String) -> Range<Int64>? {
        let words = text.split(separator: "+", omittingEmptySubsequences: false)
        let numbers = words.compactMap { RecordNumber.read(String($0)) }
        guard words.count == 2, numbers.count == 2 else { return nil }
        return numbers[0]..<numbers[0] + numbers[1]
    }

    /// A reason on one line, cut at a character's boundary to what a slot has room for.
    private static func stored(_ reason: String, in room: Int) -> [UInt8] {
        var bytes: [UInt8] = []
        for scalar in reason.unicodeScalars {
            let character = Array((scalar.isUnprintable ? " " : String(scalar)).utf8)
            guard bytes.count + character.count <= room else { break }
            bytes += character
        }
        return bytes
    }
}
