// The quota: counted bytes, refusals, and the update after a removal.

import Foundation
import Glibc
import HTTPTypes
import SpoolgatePosix
import SpoolgateUploadProtocol
import Testing

@testable import SpoolgateSpool

@Suite("The quota")
struct QuotaTests {
    private func spool(_ directory: TemporarySpool, quota: Int64) throws -> Spool {
        try Spool(directory: directory.path) { $0.quota = quota }
    }

    private func isOverQuota(_ error: any Error) -> Bool {
        if case .overQuota = error as? SpoolError { true } else { false }
    }

    @Test("a creation is refused before it exists, by its length or by its announced content")
    func creation() throws {
        let directory = TemporarySpool()
        let spool = try spool(directory, quota: 10)
        func overQuota(_ needed: Int64, used: Int64) -> SpoolError {
            .overQuota(directory: directory.path, needed: needed, used: used, quota: 10)
        }
        #expect(throws: overQuota(11, used: 0)) {
            try spool.create(.sample(), length: 11, requestRelease: {})
        }
        #expect(throws: overQuota(11, used: 0)) {
            try spool.create(.sample(), expecting: 11, requestRelease: {})
        }
        #expect(try spool.summaries().isEmpty)
        let upload = try spool.create(.sample(), length: 10, expecting: 10, requestRelease: {})
        try upload.append("ten bytes.")
        // A full spool also refuses content of unknown length.
        #expect(throws: overQuota(0, used: 10)) {
            try spool.create(.sample(), requestRelease: {})
        }
    }

    @Test("content is refused at the quota, and accepted content stays")
    func content() throws {
        let directory = TemporarySpool()
        let spool = try spool(directory, quota: 10)
        let upload = try spool.create(.sample(), requestRelease: {})
        try upload.append("123456")
        #expect(performing: { try upload.append("78901") }, throws: isOverQuota)
        #expect(upload.state.offset == 6)
        try upload.append("7890")
        try upload.sync()
        #expect(directory.content(of: upload.creation.id) == Array("1234567890".utf8))
        #expect(upload.state.offset == 10)
    }

    @Test("every removal of content makes room at once", arguments: 0..<5)
    func removal(way: Int) throws {
        let directory = TemporarySpool()
        let scripted = ScriptedDisk()
        let spool = try Spool(directory: directory.path) { options in
            (options.quota, options.disk) = (10, scripted.disk)
        }
        let creation = UploadCreation.sample()
        let upload = try spool.create(creation, requestRelease: {})
        try upload.append("ten bytes.")
        switch way {
        case 0: try upload.remove()
        case 1:
            try upload.beginAttempt()
            try upload.finish(with: .sample)
        case 2:
            // Content that could not be made durable is truncated.
            scripted.refuse(.sync, on: ".data", errno: SystemError.lost, times: 1)
            #expect(throws: SpoolError.self) { try upload.sync() }
            #expect(upload.state.offset == 0)
        case 3:
            upload.unlock()
            let summary = try #require(try spool.summaries().first)
            #expect(try spool.remove(creation.id, ifUnchangedSince: summary))
        default:
            try upload.beginAttempt()
            try upload.finish(with: .sample)
            // A record with a response that still has content.
            upload.unlock()
            try Data("ten bytes.".utf8).write(to: URL(filePath: directory.data(creation.id)))
            #expect(try spool.lock(creation.id) != nil)
        }
        try spool.create(.sample(), requestRelease: {}).append("ten bytes.")
    }

    @Test("records count beyond the first 64 KiB, and make room after their removal")
    func records() throws {
        let directory = TemporarySpool()
        let spool = try spool(directory, quota: 16 << 10)
        var fields: HTTPFields = [:]
        fields.append(HTTPField(name: .contentType, value: String(repeating: "x", count: 8 << 10)))
        var made: [Upload] = []
        var refusal: (any Error)?
        while refusal == nil, made.count < 100 {
            do { made.append(try spool.create(.sample(fields: fields), requestRelease: {})) } catch
            {
                refusal = error
            }
        }
        // 64 KiB do not count and the quota is 16 KiB; each record has more than 16 KiB.
        #expect((4...5).contains(made.count))
        #expect(try isOverQuota(#require(refusal)))
        // Existing records count for another process too.
        let other = try self.spool(directory, quota: 16 << 10)
        #expect(
            performing: { try other.create(.sample(fields: fields), requestRelease: {}) },
            throws: isOverQuota
        )
        try made[0].remove()
        _ = try spool.create(.sample(fields: fields), requestRelease: {})
    }

    @Test("a failed write takes no room")
    func failedWrite() throws {
        let directory = TemporarySpool()
        let scripted = ScriptedDisk()
        let spool = try Spool(directory: directory.path) { options in
            (options.quota, options.disk) = (10, scripted.disk)
        }
        let upload = try spool.create(.sample(), requestRelease: {})
        try upload.sync()
        let unrecorded = try spool.createUnrecorded(.sample(), expecting: 0)
        let bytes = Array("ten bytes.".utf8)
        scripted.refuse(.write, errno: SystemError.lost)
        for _ in 0..<3 {
            #expect(throws: SpoolError.self) { try upload.append(bytes.span.bytes) }
            #expect(throws: SpoolError.self) { try unrecorded.append(bytes.span.bytes) }
        }
        scripted.allow()
        try upload.append(bytes.span.bytes)
    }

    @Test("the content of an upload without a record counts while it exists")
    func unrecorded() throws {
        let directory = TemporarySpool()
        let spool = try spool(directory, quota: 10)
        let unrecorded = try spool.createUnrecorded(.sample(), expecting: 10)
        try unrecorded.append("123456")
        let upload = try spool.create(.sample(), requestRelease: {})
        #expect(performing: { try upload.append("78901") }, throws: isOverQuota)
        #expect(
            performing: { try spool.createUnrecorded(.sample(), expecting: 1 << 20) },
            throws: isOverQuota
        )
        #expect(performing: { try unrecorded.append("78901") }, throws: isOverQuota)
        unrecorded.unlock()
        try upload.append("ten bytes.")
    }

    @Test("existing content counts, and another process's purge is noticed")
    func otherProcess() throws {
        let directory = TemporarySpool()
        let creation = UploadCreation.sample()
        let first = try directory.open().create(creation, requestRelease: {})
        try first.append("ten bytes.")
        first.unlock()
        let spool = try spool(directory, quota: 10)
        let upload: Upload
        do {
            #expect(performing: { try spool.checkRoom(for: 1) }, throws: isOverQuota)
            let purger = try Spool(existing: directory.path)
            let summary = try #require(try purger.summaries().first)
            #expect(try purger.remove(creation.id, ifUnchangedSince: summary))
            // Recounts are rate-limited.
            let deadline = Deadline.after(.seconds(300))
            var made: Upload?
            while made == nil, !deadline.hasPassed {
                made = try? spool.create(.sample(), length: 10, requestRelease: {})
            }
            upload = try #require(made)
        }
        try upload.append("ten bytes.")
    }

    @Test("recovery counts the remaining content")
    func recovery() throws {
        let directory = TemporarySpool()
        let upload = try directory.open().create(.sample(), requestRelease: {})
        try upload.append("ten bytes.")
        try upload.content.openedData()
        upload.files.close()
        directory.cutPower()
        let spool = try spool(directory, quota: 10)
        #expect(spool.recover().forgotten == 1)
        try spool.create(.sample(), requestRelease: {}).append("ten bytes.")
    }

    @Test("a count that misses content under way does not make room for more")
    func pending() throws {
        let directory = TemporarySpool()
        let room = try spool(directory, quota: 10).room
        try room.take(10)
        room.count { Census() }
        #expect(performing: { try room.take(1) }, throws: isOverQuota)
        room.wasWritten(10)
        room.count { Census() }
        try room.take(10)
    }

    @Test("many writers together do not exceed it", .timeLimit(.minutes(10)))
    func together() throws {
        let directory = TemporarySpool()
        let spool = try spool(directory, quota: 1000)
        let left = Monitor(8)
        for _ in 0..<8 {
            try SpoolgatePosix.Thread.start(name: "writer", stackSize: 1 << 20) {
                let upload = try? spool.create(.sample(), requestRelease: {})
                let bytes = [UInt8](repeating: 1, count: 7)
                while (try? upload?.append(bytes.span.bytes)) != nil {}
                upload?.unlock()
                left.update { $0 -= 1 }
            }
        }
        let areDone = left.wait(until: .after(.seconds(300))) { $0 == 0 ? true : nil }
        #expect(areDone == true)
        let total = try spool.summaries().reduce(0) { $0 + $1.offset }
        #expect(total == 994)
    }

    // MARK: Lent space

    /// An upload whose file another process has open for appending.
    private func lend(
        _ spool: Spool,
        upTo count: Int64
    ) throws -> (upload: Upload, file: Int32) {
        let upload = try spool.create(.sample(), requestRelease: {})
        let lent = try upload.lend(upTo: count)
        // The lock is released with the last copy.
        return (upload, dup(lent.number))
    }

    @Test("lent room counts in the quota and not as content; the unwritten rest returns")
    func lent() throws {
        let directory = TemporarySpool()
        let spool = try spool(directory, quota: 1 << 20)
        let (upload, file) = try lend(spool, upTo: 60_000)
        let records = spool.figures.bytes
        #expect(upload.content.lent == 60_000)
        #expect(performing: { try spool.checkRoom(for: 990_000) }, throws: isOverQuota)
        #expect(write(file, [UInt8](repeating: 1, count: 60_000), 60_000) == 60_000)
        try upload.content.noteAdded(50_000)
        #expect(spool.figures.bytes == records + 50_000)
        try upload.content.lendMore(upTo: 50_000)
        #expect(upload.content.lent == 110_000)
        // A count above the reported bytes is corrected by the next one.
        spool.recount(isDue: true)
        close(file)
        #expect(try upload.takeBack(60_000, until: .after(.seconds(60))))
        spool.recount(isDue: false)
        #expect(spool.figures.bytes == records + 60_000)
        try spool.checkRoom(for: (1 << 20) - 60_000)
        #expect(
            performing: { try spool.checkRoom(for: (1 << 20) - 59_999) },
            throws: isOverQuota
        )
    }

    @Test(
        "loans shrink with the room, and together never exceed it"
    )
    func loans() throws {
        let directory = TemporarySpool()
        let room = try spool(directory, quota: 1 << 20).room
        var loans: [Int64] = []
        while let loan = try? room.lend(upTo: 64 << 10) { loans.append(loan) }
        #expect(loans[0] == 64 << 10)
        #expect(zip(loans, loans.dropFirst()).allSatisfy { $0 >= $1 })
        #expect(loans.reduce(0, +) == 1 << 20)
        // Sixteen that write nothing leave at least a third to others.
        #expect(loans.prefix(16).reduce(0, +) < (2 << 20) / 3)
        #expect(performing: { try room.take(1) }, throws: isOverQuota)
        for loan in loans { room.endLoan(of: loan, written: 0) }
        try room.take(1 << 20)
    }

    @Test("lent room is kept free in addition to the reserve")
    func lentAboveReserve() throws {
        let directory = TemporarySpool()
        let spool = try directory.open()
        let free = try spool.space().freeBytes
        // Far apart: other processes may write to the file system.
        spool.setReserve(free - (1 << 30))
        var loans: Int64 = 0
        while loans < 2 << 30, let loan = try? spool.room.lend(upTo: 64 << 20) { loans += loan }
        #expect(loans > 1 << 29 && loans < 3 << 29)
        #expect(throws: SpoolError.self) { try spool.room.take(1 << 29) }
        spool.room.endLoan(of: loans, written: 0)
        try spool.room.take(1 << 29)
    }

    @Test("a file that cannot be lent leaves nothing lent")
    func notLent() throws {
        let directory = TemporarySpool()
        let spool = try spool(directory, quota: 1 << 20)
        let upload = try spool.create(.sample(), requestRelease: {})
        try upload.append("x")
        try upload.content.openedData()
        let stranger = open(directory.data(upload.creation.id), O_RDWR)
        let name = directory.data(upload.creation.id)
        #expect(rename(name, "\(name).away") == 0)
        for _ in 0..<40 {
            #expect(throws: SpoolError.self) { _ = try upload.lend(upTo: 64 << 10) }
        }
        close(stranger)
        try spool.checkRoom(for: (1 << 20) - 1)
    }

    @Test("an unreturned file counts as written, until a count finds its real size")
    func abandoned() throws {
        let directory = TemporarySpool()
        let spool = try spool(directory, quota: 1 << 20)
        let (upload, file) = try lend(spool, upTo: 60_000)
        #expect(write(file, [1, 2, 3], 3) == 3)
        #expect(try !upload.takeBack(nil, until: .after(.zero)))
        upload.unlock()
        close(file)
        #expect(performing: { try spool.checkRoom(for: 1 << 20) }, throws: isOverQuota)
        spool.recount(isDue: false)
        try spool.checkRoom(for: (1 << 20) - 3)
    }
}
