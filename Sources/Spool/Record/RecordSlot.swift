// A record's state as one line of text in one of four slots; see spoolgate-spool(5), RECORDS.
//
// Two slots lie in a block with the creation and serve until the first promise; the other two have a block
// each, so that a write that a power cut tears leaves the other one. Invariant: a line that does not match
// its checksum is never believed, and one that a newer program wrote is never overruled by an older one.

import Posix
import TextFormats
import UploadProtocol

/// The slots of a record.
enum RecordSlots {
    /// Bytes of one slot.
    static let size = 512
    /// Bytes that a disk may lose as a whole.
    static let block: Int64 = 4096
    /// Where the slots are that serve from the first promise on.
    static let promised: [Int64] = [0, block]
    /// Where those are that serve before it.
    static let early: [Int64] = [2 * block, 2 * block + Int64(size)]
    /// Where the creation begins.
    static let end = 2 * block + 2 * Int64(size)

    /// One that says nothing yet.
    static let empty = [UInt8](repeating: UInt8(ascii: " "), count: size - 1) + [UInt8(ascii: "\n")]

    /// What the slots say.
    enum Reading {
        /// The newest state; whether it is in a slot that serves from the first promise on; and whether
        /// another slot that might be newer is damaged.
        case state(RecordState, isPromised: Bool, isOtherDamaged: Bool)
        /// A newer program's word is in one of them.
        case newer(String)
        /// Nothing was written.
        case blank
        /// None of them can be believed.
        case damaged
    }

    private enum Slot {
        case blank
        case damaged
        case newer(String)
        case state(RecordState)
    }

    /// Reads the slots in the first bytes of the record of `id`.
    static func read(_ bytes: [UInt8], of id: UploadID) -> Reading {
        for (places, isPromised) in [(promised, true), (early, false)] {
            var newest: RecordState?
            var isDamaged = false
            for (parity, start) in places.enumerated() {
                switch slot(bytes.dropFirst(Int(start)).prefix(size), of: id) {
                case .blank: continue
                case .damaged: isDamaged = true
                case .newer(let word): return .newer(word)
                case .state(let state):
                    // One in the wrong place was never written there.
                    guard state.sequence % 2 == parity else {
                        isDamaged = true
                        continue
                    }
                    if newest.map({ $0.sequence < state.sequence }) ?? true { newest = state }
                }
            }
            if let newest {
                return .state(newest, isPromised: isPromised, isOtherDamaged: isDamaged)
            }
            if isDamaged { return .damaged }
        }
        return .blank
    }

    private static func slot(_ bytes: ArraySlice<UInt8>, of id: UploadID) -> Slot {
        let isBlank = bytes.first.map { $0 == 0 || $0 == UInt8(ascii: " ") } ?? true
        if isBlank, bytes.allSatisfy({ $0 == 0 || $0 == 0x20 || $0 == 0x0A }) { return .blank }
        guard let line = Checksum.verified(bytes, for: id) else { return .damaged }
        var state = RecordState()
        switch state.take(line) {
        case nil: return .state(state)
        case let word?: return .newer(word)
        }
    }
}

extension RecordState {
    /// Bytes of a reason that are kept.
    static let reasonLimit = 200

    /// Where this state's slot is in the record file.
    func position(isPromised: Bool) -> Int64 {
        (isPromised ? RecordSlots.promised : RecordSlots.early)[Int(sequence % 2)]
    }

    /// The state as the bytes of a slot of the record of `id`.
    func slot(for id: UploadID) -> [UInt8] {
        var line: [UInt8] = []
        line.reserveCapacity(RecordSlots.size)
        func add(_ word: Word) {
            if !line.isEmpty { line.append(UInt8(ascii: " ")) }
            line.append(text: word.rawValue)
            line.append(UInt8(ascii: "="))
        }
        func add(_ word: Word, _ text: String) {
            add(word)
            line.append(text: text)
        }
        func add(_ word: Word, _ number: Int64?) {
            add(word)
            if let number { line.append(decimal: number) } else { line.append(UInt8(ascii: "-")) }
        }
        add(.sequence, Int64(clamping: sequence))
        add(.state, queue.rawValue)
        add(.writer, writer)
        add(.durable, durable)
        add(.length, length)
        add(.attempts, Int64(attempts))
        if let response {
            add(.response, Self.text(response))
        } else {
            add(.response, status.map { Int64($0) })
        }
        if let completion { add(.completion, Self.text(completion)) }
        if let whole { add(.whole, whole.seconds) }
        if let next { add(.next, next.seconds) }
        if let until { add(.until, until.seconds) }
        if let then { add(.then, then.rawValue) }
        if let cause { add(.cause, cause.rawValue) }
        if let verified { add(.verified, verified) }
        if let final { add(.final, final.description) }
        line.append(UInt8(ascii: " "))
        line += Self.reasonName
        let room = RecordSlots.size - 1 - Checksum.fieldSize - line.count
        if let reason { line += Self.stored(reason, in: min(room, Self.reasonLimit)) }
        line += Checksum.field(of: line, for: id)
        line += RecordSlots.empty[line.count...]
        return line
    }

    /// The names of words, in the order in which they are written.
    ///
    /// Every state has those up to `response`.
    private enum Word: String, CaseIterable {
        case sequence, state, writer, durable, length, attempts, response
        case completion, whole, next, until, then, cause, verified, final

        static let all = allCases.map { (word: $0, name: Array($0.rawValue.utf8)) }
        static let requiredCount = 7
    }

    /// Takes the words of a line; the first one that is not known here, or nil.
    fileprivate mutating func take(_ line: ArraySlice<UInt8>) -> String? {
        line.withUnsafeBufferPointer { take(words: $0) }
    }

    private mutating func take(words line: UnsafeBufferPointer<UInt8>) -> String? {
        var rest = line[...]
        var taken = 0
        var place = 0
        while !rest.starts(with: Self.reasonName) {
            let end = rest.firstIndex(of: UInt8(ascii: " ")) ?? rest.endIndex
            let word = rest[..<end]
            guard end < rest.endIndex, let equals = word.firstIndex(of: UInt8(ascii: "=")),
                // Written in this order, most are found at once.
                let found = Self.place(of: word[..<equals], from: place),
                taken >= Word.requiredCount || found == taken,
                take(Word.all[found].word, word[(equals + 1)...])
            else { return String(decoding: word, as: UTF8.self) }
            (taken, place) = (taken + 1, found + 1)
            rest = rest[(end + 1)...]
        }
        guard taken >= Word.requiredCount else { return Word.all[taken].word.rawValue }
        let text = rest.dropFirst(Self.reasonName.count)
        reason = text.isEmpty ? nil : String(decoding: text, as: UTF8.self)
        return nil
    }

    private static let reasonName = Array("reason=".utf8)

    private static func place(of name: Slice<UnsafeBufferPointer<UInt8>>, from start: Int) -> Int? {
        Word.all[start...].firstIndex { name.elementsEqual($0.name) }
            ?? Word.all[..<start].firstIndex { name.elementsEqual($0.name) }
    }

    /// Takes one word of a line; false for a value that is not known here.
    private mutating func take(_ word: Word, _ value: Slice<UnsafeBufferPointer<UInt8>>) -> Bool {
        var text: String { String(decoding: value, as: UTF8.self) }
        let isNone = value.count == 1 && value.first == UInt8(ascii: "-")
        let number = RecordNumber.read(value)
        let time = number.map { WallTime(seconds: $0) }
        switch word {
        case .durable where isNone, .length where isNone, .response where isNone: return true
        case .sequence: sequence = UInt64(number ?? 0)
        case .state:
            guard let queue = Queue(rawValue: text), queue != .corrupt else { return false }
            self.queue = queue
            return true
        case .writer:
            writer = text
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
        }
        return number != nil
    }

    /// `start+size`.
    private static func text(_ extent: Range<Int64>) -> String {
        "\(extent.lowerBound)+\(extent.upperBound - extent.lowerBound)"
    }

    private static func extent(_ text: Slice<UnsafeBufferPointer<UInt8>>) -> Range<Int64>? {
        guard let plus = text.firstIndex(of: UInt8(ascii: "+")),
            let start = RecordNumber.read(text[..<plus]),
            let count = RecordNumber.read(text[(plus + 1)...])
        else { return nil }
        return start..<start + count
    }

    /// A reason on one line; where a slot has no room for all of it, cut at a character's boundary, with `...`.
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
