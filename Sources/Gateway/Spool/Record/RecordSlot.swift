// The four slots of a record, in one of which its state is one line of text (RecordWords); see
// spoolgate-spool(5), RECORDS.
//
// Two slots lie in a block with the creation and serve until the first promise; the other two have a block
// each, so that a write that a power cut tears leaves the other one. Invariant: a line that does not match
// its checksum is never believed, and one that a newer program wrote is never overruled by an older one.

import SpoolgateUploadProtocol

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

    /// Reads the slots in the first bytes of the record of `id`.
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
        // Both were most likely written by the same.
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
        // One in the wrong place was never written there.
        return state.sequence % 2 == parity ? .state : .damaged
    }

    private static func isBlank(_ slot: ArraySlice<UInt8>) -> Bool {
        guard let first = slot.first else { return true }
        guard first == 0 || first == UInt8(ascii: " ") else { return false }
        return slot.allSatisfy { $0 == 0 || $0 == 0x20 || $0 == 0x0A }
    }
}
