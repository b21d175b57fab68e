// A record as read from its file.
//
// It reads and judges the text; what an unreadable record means for its upload is its caller's decision.

import HTTPTypes
import SpoolgatePosix
import SpoolgateUploadProtocol

/// What a record file holds.
///
/// Held by reference: it has more words than a copy is worth.
final class LoadedRecord: Sendable {
    /// What the upload was created with.
    let creation: UploadCreation
    /// The newest state.
    let state: RecordState
    /// Whether that state is in one of the slots that serve from the first promise on.
    let isPromised: Bool
    /// Whether a slot is damaged that may have been newer.
    let isSlotDamaged: Bool
    /// Where the creation ends.
    let creationEnd: Int64

    /// Most bytes of a record up to the end of its creation; a front's limit on heads is far below.
    private static let limit = 1 << 20
    /// Bytes read at first; nearly every record is smaller.
    private static let firstRead = 16 << 10

    /// What a new record holds from its first slot on: the state, an empty slot, the creation.
    static func bytes(state: RecordState, creation: UploadCreation) -> [UInt8] {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(2048)
        bytes += state.slot(for: creation.id)
        bytes += RecordSlots.empty
        bytes += creation.recordText
        return bytes
    }

    /// Reads the record of `id`; fails with why its text is no such record.
    ///
    /// Without a `cache` nothing is remembered of it. `size`: the file's, where the caller has just seen it.
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

    /// The state that was written before the newest one and is there still; nil where none is.
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

    /// Reads a record from the first bytes of its file, or all of them; nil if they end before its creation
    /// does.
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
            // A promise is a slot that was made durable, and that stays. Of an upload without one, a power
            // cut may leave the zeros of sectors that were never written, which no text has.
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
    /// The status of the stored response, for those who only look; nil where there is none.
    ///
    /// Its content is not read, and so no checksum compared.
    func storedStatus(in file: OpenFile) throws(SystemError) -> Int? {
        if let status { return status }
        guard let extent = response else { return nil }
        return StoredResponse.status(
            beginning: try file.bytes(at: extent.lowerBound, count: min(extent.count, 64))
        )
    }

    /// Reads the stored response of `id`.
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
        // The size of the file bounds what a damaged extent can make us allocate.
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
