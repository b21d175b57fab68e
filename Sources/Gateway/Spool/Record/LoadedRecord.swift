// Reads and parses records; callers decide what to do with an upload whose record is unreadable.

import Glibc
import HTTPTypes
import SpoolgatePosix
import SpoolgateTextFormats
import SpoolgateUploadProtocol

/// The content of a record file; a class, because copies would be large.
final class LoadedRecord: Sendable {
    let creation: UploadCreation
    let state: RecordState
    /// Whether the state is from a slot that is used once the upload has a durable offset.
    let isPromised: Bool
    /// Whether a damaged slot may have contained a newer state.
    let isSlotDamaged: Bool
    let creationEnd: Int64

    /// The maximum size in bytes of the slots and the creation.
    private static let limit = 1 << 20
    /// The number of bytes read first, enough for nearly all records.
    private static let firstRead = 16 << 10

    /// Returns the first bytes of a new record: a slot with `state`, an empty slot, and the creation.
    static func bytes(state: RecordState, creation: UploadCreation) -> [UInt8] {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(2048)
        bytes += state.slot(for: creation.id)
        bytes += RecordSlots.empty
        bytes += creation.recordText
        return bytes
    }

    /// Reads the record of `id`, or returns why the record is invalid.
    ///
    /// Pass the file's `size` if it has just been read.
    static func read(
        _ file: OpenFile,
        of id: UploadID,
        size: Int64? = nil,
        knowing cache: CreationCache?
    ) throws(SystemError) -> Result<LoadedRecord, UnreadableRecord> {
        let size = if let size { size } else { try file.status().size }
        for limit in [firstRead, limit] {
            let bytes = try file.bytes(at: 0, count: Int(min(size, Int64(limit))))
            do throws(UnreadableRecord) {
                let record = try LoadedRecord(bytes, isAll: size <= limit, of: id, cache)
                if let record { return .success(record) }
            } catch { return .failure(error) }
        }
        return .failure(UnreadableRecord(reason: "it is truncated"))
    }

    /// Returns the state written before `newest`, or nil if it is no longer in the file.
    static func state(
        before newest: RecordState,
        in file: OpenFile,
        of id: UploadID
    ) throws(SystemError) -> RecordState? {
        var bytes = try file.bytes(at: 0, count: Int(RecordSlots.early[0]))
        let start = Int(newest.position(isPromised: true))
        guard bytes.count >= start + RecordSlots.size else { return nil }
        for index in start..<start + RecordSlots.size { bytes[index] = 0 }
        guard case .state(let older, true, _) = RecordSlots.read(bytes, of: id) else { return nil }
        return older
    }

    /// Parses a record, or returns nil if the bytes end before the creation does.
    private init?(
        _ bytes: [UInt8],
        isAll: Bool,
        of id: UploadID,
        _ cache: CreationCache?
    ) throws(UnreadableRecord) {
        let unwritten = UnreadableRecord(
            reason: "it was never written completely",
            kind: .unwritten
        )
        let text = bytes.dropFirst(Int(RecordSlots.end))
        switch RecordSlots.read(bytes, of: id) {
        case .blank: throw unwritten
        case .newer(let word): throw .newer(word)
        case .damaged:
            // A slot that was made durable survives. In a record without such a slot, a power failure may leave zeros
            // in sectors that were never written. Valid text contains no zeros.
            let isEarly = bytes.prefix(2 * Int(RecordSlots.block)).allSatisfy { $0 == 0 }
            if isEarly, bytes.dropFirst(2 * Int(RecordSlots.block)).contains(0) { throw unwritten }
            throw UnreadableRecord(reason: "none of its states has a matching checksum")
        case .state(let state, let isPromised, let isOtherDamaged):
            let count: Int
            if let known = cache?.creation(id, in: text) {
                (creation, count) = known
            } else {
                let read: (UploadCreation, Int)?
                do throws(UnreadableRecord) {
                    read = try UploadCreation.read(recordText: text, of: id)
                } catch {
                    throw !isPromised && text.contains(0) ? unwritten : error
                }
                guard let read else {
                    if isAll, !isPromised { throw unwritten }
                    return nil
                }
                (creation, count) = read
                cache?.remember(creation, text: text.prefix(count))
            }
            self.state = state
            self.isPromised = isPromised
            isSlotDamaged = isOtherDamaged
            creationEnd = RecordSlots.end + Int64(count)
        }
    }
}

extension RecordState {
    /// Returns the status of the stored response without verifying its checksum, or nil if no response is stored.
    func storedStatus(in file: OpenFile) throws(SystemError) -> Int? {
        if let status { return status }
        guard let extent = response else { return nil }
        return StoredResponse.status(
            beginning: try file.bytes(at: extent.lowerBound, count: min(extent.count, 64))
        )
    }

    func storedResponse(
        of id: UploadID,
        in file: OpenFile
    ) throws(SystemError) -> Result<StoredResponse, UnreadableRecord> {
        if let status {
            let head = ResponseHead(status: HTTPResponse.Status(code: status), fields: [:])
            return .success(StoredResponse(head: head, content: nil))
        }
        guard let extent = response else {
            return .failure(UnreadableRecord(reason: "the stored response is missing"))
        }
        // A damaged extent must not cause a larger allocation than the file.
        let size = try file.status().size
        guard extent.upperBound <= size else {
            return .failure(UnreadableRecord(reason: "the stored response is truncated"))
        }
        let bytes = try file.bytes(at: extent.lowerBound, count: extent.count)
        do throws(UnreadableRecord) {
            return .success(try StoredResponse(recordText: bytes, of: id))
        } catch { return .failure(error) }
    }
}

// MARK: The cache of creations

// A cache of creations, so that repeated requests for an offset do not parse the whole record each time.
//
// A creation never changes, and no identity is used twice, so entries stay valid. Invariant: an entry is used only for
// a record with exactly the same bytes.

/// A bounded cache of parsed creations.
///
/// Thread-safe.
final class CreationCache: Sendable {
    private final class Entry: Sendable {
        let text: [UInt8]
        let creation: UploadCreation

        init(text: [UInt8], creation: UploadCreation) {
            self.text = text
            self.creation = creation
        }
    }

    /// The maximum number of entries; each takes one or two kilobytes.
    private static let limit = 512
    /// The maximum length of a cached text in bytes.
    static let longest = 4096

    private let entries = Monitor(RecentTable<UploadID, Entry>(maximum: limit))

    /// Returns the creation of `id` and the size of its text in bytes, or nil if `bytes` do not begin with the text
    /// cached for `id`.
    func creation(_ id: UploadID, in bytes: ArraySlice<UInt8>) -> (UploadCreation, Int)? {
        guard let entry = entries.update({ $0[id] }), bytes.count >= entry.text.count else {
            return nil
        }
        let isSame = bytes.withUnsafeBytes { there in
            entry.text.withUnsafeBytes { known in
                guard let here = there.baseAddress, let text = known.baseAddress else {
                    return known.isEmpty
                }
                return memcmp(here, text, known.count) == 0
            }
        }
        return isSame ? (entry.creation, entry.text.count) : nil
    }

    func remember(_ creation: UploadCreation, text: ArraySlice<UInt8>) {
        guard text.count <= Self.longest else { return }
        let entry = Entry(text: Array(text), creation: creation)
        entries.update { $0[creation.id] = entry }
    }

    func forget(_ id: UploadID) { entries.update { $0[id] = nil } }
}

// MARK: Checksum

// Checksums in records, which show that a line or part is complete; see spoolgate-spool(5), RECORDS.

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
