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
        if isBlank, bytes.allSatisfy({ [0, UInt8(ascii: " "), UInt8(ascii: "\n")].contains($0) }) {
            return .blank
        }
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
        func shown(_ number: Int64?) -> String { number.map { String($0) } ?? "-" }
        var line = "sequence=\(sequence) state=\(queue.rawValue) writer=\(writer)"
        line += " durable=\(shown(durable)) length=\(shown(length)) attempts=\(attempts)"
        line += " response=\(response.map(Self.text) ?? shown(status.map { Int64($0) }))"
        if let completion { line += " completion=\(Self.text(completion))" }
        if let whole { line += " whole=\(whole.seconds)" }
        if let next { line += " next=\(next.seconds)" }
        if let until { line += " until=\(until.seconds)" }
        if let then { line += " then=\(then.rawValue)" }
        if let cause { line += " cause=\(cause.rawValue)" }
        if let verified { line += " verified=\(verified)" }
        line += " reason="
        var bytes = Array(line.utf8)
        let room = RecordSlots.size - 1 - Checksum.fieldSize - bytes.count
        bytes += Self.stored(reason ?? "", in: min(room, Self.reasonLimit))
        bytes += Checksum.field(of: bytes, for: id)
        bytes += [UInt8](
            repeating: UInt8(ascii: " "),
            count: RecordSlots.size - 1 - bytes.count
        )
        bytes.append(UInt8(ascii: "\n"))
        return bytes
    }

    /// Takes the words of a line; the first one that is not known here, or nil.
    fileprivate mutating func take(_ line: ArraySlice<UInt8>) -> String? {
        // What every state has, in this order; what only some have comes between.
        var awaited = ["sequence", "state", "writer", "durable", "length", "attempts", "response"][
            ...
        ]
        let reasonName = "reason="
        var rest = line
        while !rest.starts(with: reasonName.utf8) {
            let word = rest.prefix { $0 != UInt8(ascii: " ") }
            let shown = String(decoding: word, as: UTF8.self)
            let parts = shown.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            guard word.endIndex < rest.endIndex, parts.count == 2 else { return shown }
            if let first = awaited.popFirst(), parts[0] != first { return shown }
            guard take(parts[0], String(parts[1])) else { return shown }
            rest = rest[(word.endIndex + 1)...]
        }
        if let first = awaited.first { return first }
        let text = rest.dropFirst(reasonName.utf8.count)
        reason = text.isEmpty ? nil : String(decoding: text, as: UTF8.self)
        return nil
    }

    /// Takes one word of a line; false for one that is not known here.
    private mutating func take(_ name: Substring, _ value: String) -> Bool {
        let number = RecordNumber.read(value)
        let time = number.map { WallTime(seconds: $0) }
        switch (name, value) {
        case ("durable", "-"), ("length", "-"), ("response", "-"): return true
        case ("sequence", _): sequence = UInt64(number ?? 0)
        case ("state", _):
            guard let queue = Queue(rawValue: value), queue != .corrupt else { return false }
            self.queue = queue
            return true
        case ("writer", _):
            writer = value
            return true
        case ("durable", _): durable = number
        case ("length", _): length = number
        case ("attempts", _): attempts = Int(number ?? 0)
        case ("response", _):
            response = Self.extent(value)
            status = response == nil ? Int(value) : nil
            return response != nil || status.map { (200...999).contains($0) } ?? false
        case ("completion", _):
            completion = Self.extent(value)
            return completion != nil
        case ("whole", _): whole = time
        case ("next", _): next = time
        case ("until", _): until = time
        case ("then", _):
            then = Fallback(rawValue: value)
            return then != nil
        case ("cause", _):
            cause = HoldCause(rawValue: value)
            return cause != nil
        case ("verified", _): verified = number
        default: return false
        }
        return number != nil
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
