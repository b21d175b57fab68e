// A record as read from its file.
//
// It reads and judges the text; what an unreadable record means is its caller's decision.

import HTTPTypes
import Posix
import UploadProtocol

/// What a record file holds.
struct LoadedRecord {
    /// What the upload was created with.
    var creation: UploadCreation
    /// The newest state.
    var state: RecordState
    /// Where the creation ends and a stored response begins.
    var creationEnd: Int64

    /// Most bytes of a record up to the end of its creation; a front's limit on heads is far below.
    private static let limit = 1 << 20
    /// Bytes read at first; nearly every record is smaller.
    private static let firstRead = 4096

    /// The start of a new record file: the state, an empty slot, the creation.
    static func bytes(state: RecordState, creation: UploadCreation) -> [UInt8] {
        var empty = [UInt8](repeating: UInt8(ascii: " "), count: RecordState.slotSize)
        empty[RecordState.slotSize - 1] = UInt8(ascii: "\n")
        return state.slot + empty + creation.recordText
    }

    /// Reads the record of `id`; fails with why its text is no such record.
    ///
    /// Without a `cache` nothing is remembered of it.
    static func read(
        _ file: OpenFile,
        of id: UploadID,
        knowing cache: CreationCache?
    ) throws(SystemError) -> Result<LoadedRecord, UnreadableRecord> {
        let size = try file.status().size
        let start = try file.bytes(at: 0, count: Int(min(size, Int64(firstRead))))
        do throws(UnreadableRecord) {
            if let record = try LoadedRecord(start, of: id, cache) { return .success(record) }
        } catch { return .failure(error) }
        let whole =
            size <= firstRead ? start : try file.bytes(at: 0, count: Self.size(ofFile: size))
        do throws(UnreadableRecord) {
            if let record = try LoadedRecord(whole, of: id, cache) { return .success(record) }
        } catch { return .failure(error) }
        return .failure(UnreadableRecord(reason: whole.isEmpty ? "it is empty" : "it is cut off"))
    }

    /// The bytes to read of a file so as to have its creation.
    static func size(ofFile size: Int64) -> Int { Int(min(size, Int64(limit))) }

    /// Whether parts of a record are missing, as where it was never made durable: it ends before its
    /// creation does, or has the zeros of sectors that were never written, which no text has.
    static func isUnwritten(_ bytes: [UInt8]) -> Bool {
        let start = 2 * RecordState.slotSize
        guard bytes.count > start, RecordState.newest(in: bytes) != nil else { return true }
        do throws(UnreadableRecord) {
            return try UploadCreation.read(recordText: bytes[start...]) == nil
        } catch { return bytes[start...].contains(0) }
    }
}

extension LoadedRecord {
    /// Reads a record from the first bytes of its file; nil if they end before the creation does.
    private init?(
        _ bytes: [UInt8],
        of id: UploadID,
        _ cache: CreationCache?
    ) throws(UnreadableRecord) {
        let start = 2 * RecordState.slotSize
        guard bytes.count > start else { return nil }
        guard let state = RecordState.newest(in: bytes) else {
            throw UnreadableRecord(reason: "neither of its states has a checksum that matches")
        }
        if let (creation, count) = cache?.creation(id, in: bytes[start...]) {
            self.init(creation: creation, state: state, creationEnd: Int64(start + count))
            return
        }
        guard let (creation, count) = try UploadCreation.read(recordText: bytes[start...]) else {
            return nil
        }
        guard creation.id == id else {
            throw UnreadableRecord(reason: "it is the record of \(creation.id)")
        }
        cache?.remember(creation, text: bytes[start..<start + count])
        self.init(creation: creation, state: state, creationEnd: Int64(start + count))
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

    /// Reads the stored response.
    func storedResponse(
        in file: OpenFile
    ) throws(SystemError) -> Result<StoredResponse, UnreadableRecord> {
        if let status {
            let head = ResponseHead(status: HTTPResponse.Status(code: status), fields: [:])
            return .success(StoredResponse(head: head, content: nil))
        }
        guard let extent = response else {
            return .failure(UnreadableRecord(reason: "it has no stored response"))
        }
        // The size of the file bounds what a damaged extent can make us allocate.
        let size = try file.status().size
        guard extent.upperBound <= size else {
            return .failure(UnreadableRecord(reason: "the stored response is cut off"))
        }
        let bytes = try file.bytes(at: extent.lowerBound, count: extent.count)
        do throws(UnreadableRecord) {
            return .success(try StoredResponse(recordText: bytes))
        } catch { return .failure(error) }
    }
}
