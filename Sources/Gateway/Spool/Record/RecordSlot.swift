// The four slots of a record; one has the current state as a line of text; see spoolgate-spool(5), RECORDS.
//
// Two slots share a block with the creation and are used until an offset is durable. The other two have a block each,
// so that a power failure destroys only one. Invariant: a line is used only if its checksum matches, and an
// older line never replaces one that a newer program wrote.

import SpoolgateUploadProtocol

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
