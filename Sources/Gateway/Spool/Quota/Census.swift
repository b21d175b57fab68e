// Counts a spool's uploads and bytes by a walk through it.
//
// Invariant: memory use does not grow with the spool.

import SpoolgatePosix
import SpoolgateUploadProtocol

struct Census: Equatable {
    /// The number of bytes of content in data files, excluding files without a name.
    var data: Int64 = 0
    /// The number of bytes of records, including the files in `corrupt`.
    var records: Int64 = 0
    /// The number of uploads with a record, excluding those in `corrupt`.
    var uploads = 0
    /// The number of undelivered uploads, keyed by the hash of the client's name, because names would use too much
    /// memory.
    private(set) var unfinished: [Int: Int] = [:]
    /// The sum of `unfinished`.
    private(set) var unfinishedTotal = 0

    static func += (one: inout Census, other: Census) {
        one.data += other.data
        one.records += other.records
        one.uploads += other.uploads
        one.unfinished.merge(other.unfinished, uniquingKeysWith: +)
        one.unfinishedTotal += other.unfinishedTotal
    }

    /// Changes this value in place; for a value that may be missing.
    mutating func change(_ body: (inout Census) -> Void) { body(&self) }

    /// Adds `count` uploads of a client, or subtracts them if `count` is negative.
    mutating func add(_ count: Int, of client: Int, isFinished: Bool) {
        uploads = max(0, uploads + count)
        if !isFinished { add(count, unfinishedOf: client) }
    }

    mutating func add(_ count: Int, of client: Int, record: Int64) {
        add(count, of: client, isFinished: false)
        records += record
    }

    mutating func add(_ count: Int, unfinishedOf client: Int) {
        let before = unfinished[client, default: 0]
        let number = max(0, before + count)
        unfinished[client] = number > 0 ? number : nil
        unfinishedTotal += number - before
    }
}

extension SpoolLayout {
    /// Counts the spool's uploads and bytes; `unfinished` stays empty unless records are read.
    func census(readingRecords: Bool) throws(SystemError) -> Census {
        var census = Census()
        try walk(unread: { (_, error) throws(SystemError) in throw error }) {
            (found) throws(SystemError) in
            if let (counted, _) = try self.census(of: found, readingRecord: readingRecords) {
                census += counted
            }
        }
        census.records += try sizeOfCorrupt()
        return census
    }

    /// The number of bytes of the files in `corrupt`.
    func sizeOfCorrupt() throws(SystemError) -> Int64 {
        var size: Int64 = 0
        for name in try corrupt.names() { size += try corrupt.status(of: name)?.size ?? 0 }
        return size
    }

    /// Counts one upload, and returns its record if `readingRecord` is true.
    ///
    /// Returns nil if the upload has been removed.
    func census(
        of found: Found,
        readingRecord: Bool
    ) throws(SystemError) -> (Census, Result<LoadedRecord, UnreadableRecord>?)? {
        let name = FileName(found.id)
        var census = Census()
        if found.hasData { census.data = try directory(of: name).status(of: name.data)?.size ?? 0 }
        guard found.hasRecord else { return (census, nil) }
        census.uploads = 1
        guard readingRecord else {
            census.records = try directory(of: name).status(of: name.record)?.size ?? 0
            return (census, nil)
        }
        do throws(SystemError) {
            guard let file = try openRecord(name, forWriting: false) else { return nil }
            census.records = try file.status().size
            // A long walk must not evict the creations that requests need.
            let record = try LoadedRecord.read(
                file,
                of: found.id,
                size: census.records,
                knowing: nil
            )
            if case .success(let loaded) = record, loaded.state.queue != .delivered {
                census.add(1, unfinishedOf: loaded.creation.client.hashValue)
            }
            return (census, record)
        } catch {
            guard error.isNotRegular else { throw error }
            return (census, nil)
        }
    }
}
