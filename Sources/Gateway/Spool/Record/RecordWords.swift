// Converts a state to the words of a slot's line and back; see spoolgate-spool(5), RECORDS.
//
// Invariant: a line with an unknown word is never used.

import SpoolgatePosix
import SpoolgateTextFormats
import SpoolgateUploadProtocol

extension RecordState {
    /// The maximum size of a stored reason in bytes of UTF-8.
    static let reasonLimit = 200

    /// Returns the slot's position in the file; `isPromised` selects the slots used once an offset is durable.
    func position(isPromised: Bool) -> Int64 {
        (isPromised ? RecordSlots.promised : RecordSlots.early)[Int(sequence % 2)]
    }

    func slot(for id: UploadID) -> [UInt8] {
        var line = ByteBuilder(room: RecordSlots.size)
        put(into: &line)
        line.put(Word.reason)
        let room = RecordSlots.size - 1 - Checksum.fieldSize - line.count
        if let reason {
            line.put(Self.stored(reason, in: min(room, Self.reasonLimit)).span.bytes)
        }
        let sum = line.withBytes { Checksum.sum(of: $0, for: id) }
        line.put(Checksum.mark)
        Checksum.put(sum, into: &line)
        line.put(UInt8(ascii: " "), times: RecordSlots.size - 1 - line.count)
        line.put(UInt8(ascii: "\n"))
        return line.array
    }

    /// Adds all words except the reason.
    private func put(into line: inout ByteBuilder) {
        func put(_ word: Word) {
            if line.count > 0 { line.put(UInt8(ascii: " ")) }
            line.put(word.name)
        }
        func put(_ word: Word, _ number: Int64?) {
            put(word)
            if let number { line.put(decimal: number) } else { line.put(UInt8(ascii: "-")) }
        }
        func put(_ word: Word, _ extent: Range<Int64>) {
            put(word, extent.lowerBound)
            line.put(UInt8(ascii: "+"))
            line.put(decimal: extent.upperBound - extent.lowerBound)
        }
        func put(_ word: Word, text: String) {
            put(word)
            line.put(text: text)
        }
        put(.sequence, Int64(clamping: sequence))
        put(.state, text: queue.rawValue)
        put(.writer, text: writer)
        put(.durable, durable)
        put(.length, length)
        put(.attempts, Int64(attempts))
        if let response {
            put(.response, response)
        } else {
            put(.response, status.map { Int64($0) })
        }
        if let completion { put(.completion, completion) }
        if let whole { put(.whole, whole.seconds) }
        if let next { put(.next, next.seconds) }
        if let until { put(.until, until.seconds) }
        if let then { put(.then, text: then.rawValue) }
        if let cause { put(.cause, text: cause.rawValue) }
        if let verified { put(.verified, verified) }
        if let final { put(.final, text: final.description) }
        if let accepted { put(.accepted, accepted.seconds) }
    }

    /// The words of a slot's line, in the order of writing; every state has the words up to `response`.
    private enum Word: Int, CaseIterable {
        case sequence, state, writer, durable, length, attempts, response
        case completion, whole, next, until, then, cause, verified, final, accepted

        static let requiredCount = 7
        /// The text before the reason, which is the last word.
        static let reason: StaticString = " reason="

        var name: StaticString {
            switch self {
            case .sequence: "sequence="
            case .state: "state="
            case .writer: "writer="
            case .durable: "durable="
            case .length: "length="
            case .attempts: "attempts="
            case .response: "response="
            case .completion: "completion="
            case .whole: "whole="
            case .next: "next="
            case .until: "until="
            case .then: "then="
            case .cause: "cause="
            case .verified: "verified="
            case .final: "final="
            case .accepted: "accepted="
            }
        }

        /// Returns the word that `bytes` begin with, or nil if it is unknown; the search starts at `expected`, the
        /// usual match.
        static func beginning(_ bytes: Bytes, expected: Int) -> Word? {
            var number = expected
            repeat {
                if let word = Word(rawValue: number), bytes.hasPrefix(word.name) { return word }
                number = Word(rawValue: number) == nil ? 0 : number + 1
            } while number != expected
            return nil
        }
    }

    private typealias Bytes = UnsafeBufferPointer<UInt8>

    /// Reads the words of a line; returns the first unknown word, or nil if all are known.
    mutating func take(_ line: ArraySlice<UInt8>) -> String? {
        line.withUnsafeBufferPointer { take(words: $0) }
    }

    private mutating func take(words line: Bytes) -> String? {
        var start = 0
        var taken = 0
        var expected = 0
        while !Bytes(rebasing: line[start...]).hasPrefix("reason=") {
            let end = line.index(of: UInt8(ascii: " "), from: start) ?? line.count
            let bytes = Bytes(rebasing: line[start..<end])
            guard end < line.count, let word = Word.beginning(bytes, expected: expected),
                taken >= Word.requiredCount || word.rawValue == taken,
                take(word, Bytes(rebasing: bytes[word.name.utf8CodeUnitCount...]))
            else { return String(decoding: bytes, as: UTF8.self) }
            taken += 1
            expected = word.rawValue + 1
            start = end + 1
        }
        guard taken >= Word.requiredCount else {
            return Word(rawValue: taken).map { String("\($0.name)".dropLast()) }
        }
        let text = line[(start + "reason=".utf8.count)...]
        reason = text.isEmpty ? nil : String(decoding: text, as: UTF8.self)
        return nil
    }

    /// Stores a word's value, or returns false if the value is unknown.
    private mutating func take(_ word: Word, _ value: Bytes) -> Bool {
        var text: String { String(decoding: value, as: UTF8.self) }
        let isNone = value.count == 1 && value.first == UInt8(ascii: "-")
        let number = RecordNumber.read(value)
        let time = number.map { WallTime(seconds: $0) }
        switch word {
        case .durable where isNone, .length where isNone, .response where isNone: return true
        case .sequence: sequence = UInt64(number ?? 0)
        case .state:
            let found = Queue.allCases.first { value.equals($0.rawValue) }
            guard let found, found != .corrupt else { return false }
            queue = found
            return true
        case .writer:
            if !value.equals(writer) { writer = text }
            return true
        case .durable: durable = number
        case .length: length = number
        case .attempts: attempts = Int(number ?? 0)
        case .response:
            response = Self.extent(value)
            status = response == nil ? number.map { Int($0) } : nil
            return response != nil || status.map { (200...999).contains($0) } ?? false
        case .completion:
            completion = Self.extent(value)
            return completion != nil
        case .whole: whole = time
        case .next: next = time
        case .until: until = time
        case .then:
            then = Fallback(rawValue: text)
            return then != nil
        case .cause:
            cause = HoldCause(rawValue: text)
            return cause != nil
        case .verified: verified = number
        case .final:
            final = UploadID(text)
            return final != nil
        case .accepted: accepted = time
        }
        return number != nil
    }

    private static func extent(_ text: Bytes) -> Range<Int64>? {
        guard let plus = text.firstIndex(of: UInt8(ascii: "+")),
            let start = RecordNumber.read(text[..<plus]),
            let count = RecordNumber.read(text[(plus + 1)...])
        else { return nil }
        return start..<start + count
    }

    /// Returns a reason as one line of at most `room` bytes; a longer reason is cut between characters and ends in
    /// `...`.
    private static func stored(_ reason: String, in room: Int) -> [UInt8] {
        var bytes: [UInt8] = []
        var cut = 0
        for scalar in reason.unicodeScalars {
            let character = Array((scalar.isUnprintable ? " " : String(scalar)).utf8)
            guard bytes.count + character.count <= room else {
                return Array(bytes.prefix(cut)) + Array("...".utf8).prefix(room)
            }
            bytes += character
            if bytes.count + 3 <= room { cut = bytes.count }
        }
        return bytes
    }
}
