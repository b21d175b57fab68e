// The changing part of a record; see spoolgate-spool(5), RECORDS.
//
// Invariant: the state alone determines what an upload is, not the location of its files.

import SpoolgatePosix
import SpoolgateTextFormats
import SpoolgateUploadProtocol

/// Why an upload in `hold` waits for an operator.
package enum HoldCause: String, Sendable, CaseIterable {
    /// The upstream sent no response, and a retry could deliver the upload twice.
    case indeterminate
    /// The upstream refused the upload permanently, or the upload's lifetime in the queue has expired.
    case failed
    /// An operator has put the upload on hold.
    case held
}

/// The changing properties of an upload; the defaults are those of a new one.
struct RecordState: Sendable, Equatable {
    /// The queue of an upload after its attempt was interrupted.
    enum Fallback: String, Sendable {
        case deferred
        case hold
    }

    /// The state with the highest number is the newest; the parity selects the slot.
    var sequence: UInt64 = 0
    /// The queue that the upload is in; never `corrupt`.
    var queue = Queue.incoming
    /// The writer of this state, the only one that may trust bytes that are not durable.
    var writer = ""
    /// The offset that survives a power failure, or nil if no offset was ever made durable.
    var durable: Int64?
    var length: Int64?
    var attempts = 0
    var reason: String?
    /// The position of the stored response in the record file, or nil if no response is stored.
    var response: Range<Int64>?
    /// The status of a final response that could not be stored, otherwise nil.
    ///
    /// In `deferred`, 401 means that the upload waits for other credentials from its client.
    var status: Int?
    /// The position of the completing request's fields in the record file, or nil if the fields are not stored.
    var completion: Range<Int64>?
    /// The time of the completion or the last requeue, or nil if the upload is incomplete.
    var whole: WallTime?
    /// The time of the next attempt, or nil if the upload waits for its client or is not queued.
    var next: WallTime?
    /// The time until which the upload waits for its client, or nil if the upload is not waiting.
    var until: WallTime?
    /// The upload's next queue if the process ends during the current attempt.
    ///
    /// Outside an attempt, `deferred` means that the upstream may have processed an earlier one; otherwise nil.
    var then: Fallback?
    var cause: HoldCause?
    /// The offset after which content counts only once it has been verified, or nil if all content counts.
    var verified: Int64?
    /// The time at which the client received 202 (Accepted), or nil if it did not.
    var accepted: WallTime?
    /// The upload into which this one is concatenated as a part (tus); ignored if it does not exist.
    var final: UploadID?

    /// The time in the upload's name in `queue/`, or nil if the upload needs no name.
    ///
    /// During an attempt, the name from before the attempt is kept.
    var queueTime: WallTime? {
        switch queue {
        case .deferred: next ?? until ?? QueueName.never
        case .active: next ?? until
        case .hold: QueueName.never
        case .incoming, .delivered, .corrupt: nil
        }
    }

    /// The size of the content in bytes if there is no data file.
    var sizeWithoutFile: Int64 { queue == .delivered ? length ?? 0 : 0 }

    /// Moves the upload to a queue, and clears everything that belongs to an earlier attempt or hold.
    mutating func go(to queue: Queue, _ reason: String?) {
        self.queue = queue
        self.reason = reason
        (next, until, then, cause, response, status) = (nil, nil, nil, nil, nil, nil)
    }

    /// Makes the upload incomplete again, after content that was not durable has been removed.
    mutating func receiveAgain() {
        go(to: .incoming, "the content could not be made durable")
        (whole, accepted) = (nil, nil)
    }
}

// MARK: Words

// Converts a state to the words of a slot's line and back; see spoolgate-spool(5), RECORDS.
//
// Invariant: a line with an unknown word is never used.

extension RecordState {
    /// The maximum size of a stored reason in bytes of UTF-8.
    static let reasonLimit = 200

    /// Returns the slot's position in the file; `isPromised` selects the slots used once an offset is durable.
    func position(isPromised: Bool) -> Int64 {
        (isPromised ? RecordSlots.promised : RecordSlots.early)[Int(sequence % 2)]
    }

    /// The words of a state except the reason, which is the last word, in the order of writing.
    private mutating func visit(_ words: inout (some RecordRows & ~Copyable)) {
        words.row("sequence", &sequence)
        words.row("state", &queue)
        words.row("writer", &writer)
        words.row("durable", &durable)
        words.row("length", &length)
        words.row("attempts", &attempts)
        words.row("response", &responseWord)
        words.row("completion", ifSet: &completion)
        words.row("whole", ifSet: &whole)
        words.row("next", ifSet: &next)
        words.row("until", ifSet: &until)
        words.row("then", ifSet: &then)
        words.row("cause", ifSet: &cause)
        words.row("verified", ifSet: &verified)
        words.row("final", ifSet: &final)
        words.row("accepted", ifSet: &accepted)
    }

    private static let reasonName: StaticString = "reason="

    private var responseWord: ResponseWord? {
        get { response.map { .part($0) } ?? status.map { .status($0) } }
        set {
            (response, status) = (nil, nil)
            switch newValue {
            case .part(let part): response = part
            case .status(let code): status = code
            case nil: break
            }
        }
    }

    func slot(for id: UploadID) -> [UInt8] {
        var words = LineWriter(.words)
        var state = self
        state.visit(&words)
        words.builder.put(Self.reasonName)
        let room = RecordSlots.size - 1 - Checksum.fieldSize - words.builder.count
        if let reason {
            words.builder.put(Self.stored(reason, in: min(room, Self.reasonLimit)).span.bytes)
        }
        let sum = words.builder.withBytes { Checksum.sum(of: $0, for: id) }
        words.builder.put(Checksum.mark)
        Checksum.put(sum, into: &words.builder)
        words.builder.put(
            UInt8(ascii: " "),
            times: RecordSlots.size - 1 - words.builder.count
        )
        words.builder.put(UInt8(ascii: "\n"))
        return words.bytes
    }

    /// Reads the words of a line; returns the first unknown word, or nil if all are known.
    mutating func take(_ line: ArraySlice<UInt8>) -> String? {
        line.withUnsafeBufferPointer { line in
            var words = RowReader(line, .words)
            visit(&words)
            guard words.rest.hasPrefix(Self.reasonName) else { return words.next }
            let text = words.rest.dropFirst(Self.reasonName.utf8CodeUnitCount)
            reason = text.isEmpty ? nil : String(decoding: text, as: UTF8.self)
            return words.missing
        }
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

/// The value of the word `response`.
private enum ResponseWord: RecordValue {
    case part(Range<Int64>)
    case status(Int)

    func put(into text: inout ByteBuilder) {
        switch self {
        case .part(let part): part.put(into: &text)
        case .status(let code): code.put(into: &text)
        }
    }

    init?(recordText text: some Collection<UInt8>) {
        if let part = Range<Int64>(recordText: text) {
            self = .part(part)
        } else if let code = Int(recordText: text), (200...999).contains(code) {
            self = .status(code)
        } else {
            return nil
        }
    }
}

// MARK: Slots

// The four slots of a record; one has the current state as a line of text; see spoolgate-spool(5), RECORDS.
//
// Two slots share a block with the creation and are used until an offset is durable. The other two have a block each,
// so that a power failure destroys only one. Invariant: a line is used only if its checksum matches, and an
// older line never replaces one that a newer program wrote.

enum RecordSlots {
    static let size = 512
    /// The size in bytes of a block, which a power failure during a write can destroy as a whole.
    static let block: Int64 = 4096
    /// The positions of the slots used once the upload has a durable offset.
    static let promised: [Int64] = [0, block]
    /// The positions of the slots used before the upload has a durable offset.
    static let early: [Int64] = [2 * block, 2 * block + Int64(size)]
    /// The position of the creation.
    static let end = 2 * block + 2 * Int64(size)

    static let empty = [UInt8](repeating: UInt8(ascii: " "), count: size - 1) + [UInt8(ascii: "\n")]

    enum Reading {
        /// The newest state; `isPromised` is true if the state is in a slot of `promised`. `isOtherDamaged` is true if
        /// a damaged slot may have contained a newer state.
        case state(RecordState, isPromised: Bool, isOtherDamaged: Bool)
        /// A newer program wrote a slot; the value is the first unknown word.
        case newer(String)
        case blank
        /// No slot contains a valid state.
        case damaged
    }

    static func read(_ bytes: [UInt8], of id: UploadID) -> Reading {
        let reading = read(promised, isPromised: true, in: bytes, of: id)
        guard case .blank = reading else { return reading }
        return read(early, isPromised: false, in: bytes, of: id)
    }

    private static func read(
        _ places: [Int64],
        isPromised: Bool,
        in bytes: [UInt8],
        of id: UploadID
    ) -> Reading {
        var one = RecordState()
        let first = read(places[0], parity: 0, in: bytes, of: id, into: &one)
        // The same process has usually written both slots.
        var other = RecordState(writer: one.writer)
        let second = read(places[1], parity: 1, in: bytes, of: id, into: &other)
        switch (first, second) {
        case (.newer(let word), _), (_, .newer(let word)): return .newer(word)
        case (.blank, .blank): return .blank
        case (.state, _) where second != .state || one.sequence > other.sequence:
            return .state(one, isPromised: isPromised, isOtherDamaged: second == .damaged)
        case (_, .state):
            return .state(other, isPromised: isPromised, isOtherDamaged: first == .damaged)
        default: return .damaged
        }
    }

    private enum Slot: Equatable {
        case blank
        case damaged
        case newer(String)
        case state
    }

    /// Reads a slot into `state`, which must be a new one, except for the writer.
    private static func read(
        _ start: Int64,
        parity: UInt64,
        in bytes: [UInt8],
        of id: UploadID,
        into state: inout RecordState
    ) -> Slot {
        let slot = bytes[min(Int(start), bytes.count)..<min(Int(start) + size, bytes.count)]
        guard !isBlank(slot) else { return .blank }
        guard let line = Checksum.verified(slot, for: id) else { return .damaged }
        if let word = state.take(line) { return .newer(word) }
        // A state is never written to the slot of the other parity.
        return state.sequence % 2 == parity ? .state : .damaged
    }

    private static func isBlank(_ slot: ArraySlice<UInt8>) -> Bool {
        guard let first = slot.first else { return true }
        guard first == 0 || first == UInt8(ascii: " ") else { return false }
        return slot.allSatisfy { $0 == 0 || $0 == 0x20 || $0 == 0x0A }
    }
}
