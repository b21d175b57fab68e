// The quota: what counts, when it refuses, and that what was freed is seen.

import Foundation
import HTTPTypes
import Posix
import Testing
import UploadProtocol

@testable import Spool

@Suite("The quota")
struct QuotaTests {
    private func spool(_ directory: TemporarySpool, quota: Int64) throws -> Spool {
        try Spool(directory: directory.path, reserve: 0, quota: quota)
    }

    private func isOverQuota(_ error: any Error) -> Bool {
        if case .overQuota = error as? SpoolError { true } else { false }
    }

    @Test("a creation is refused before it is made, by its length or by what is to come")
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
        // Full: also content of a length that nobody knows is refused.
        #expect(throws: overQuota(0, used: 10)) {
            try spool.create(.sample(), requestRelease: {})
        }
    }

    @Test("content that comes is refused where it passes the quota, and what was accepted stays")
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

    @Test("everything that removes content makes room at once", arguments: 0..<5)
    func removal(way: Int) throws {
        let directory = TemporarySpool()
        let scripted = ScriptedDisk()
        let spool = try Spool(
            directory: directory.path,
            reserve: 0,
            quota: 10,
            disk: scripted.disk
        )
        let creation = UploadCreation.sample()
        let upload = try spool.create(creation, requestRelease: {})
        try upload.append("ten bytes.")
        switch way {
        case 0: try upload.remove()
        case 1:
            try upload.beginAttempt()
            try upload.finish(with: .sample)
        case 2:
            // Content that could not be made durable is cut back.
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
            // Found with its content still there.
            upload.unlock()
            try Data("ten bytes.".utf8).write(to: URL(filePath: directory.data(creation.id)))
            #expect(try spool.lock(creation.id) != nil)
        }
        try spool.create(.sample(), requestRelease: {}).append("ten bytes.")
    }

    @Test("records count beyond the first 64 KiB, and make room when they are gone")
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
        // 80 KiB of records of more than 16 KiB.
        #expect((4...5).contains(made.count))
        #expect(try isOverQuota(#require(refusal)))
        // What was there before counts for another process too.
        let other = try self.spool(directory, quota: 16 << 10)
        #expect(
            performing: { try other.create(.sample(fields: fields), requestRelease: {}) },
            throws: isOverQuota
        )
        try made[0].remove()
        _ = try spool.create(.sample(fields: fields), requestRelease: {})
    }

    @Test("a write that fails takes nothing")
    func failedWrite() throws {
        let directory = TemporarySpool()
        let scripted = ScriptedDisk()
        let spool = try Spool(
            directory: directory.path,
            reserve: 0,
            quota: 10,
            disk: scripted.disk
        )
        let upload = try spool.create(.sample(), requestRelease: {})
        try upload.sync()
        let scratch = try spool.scratch()
        let bytes = Array("ten bytes.".utf8)
        scripted.refuse(.write, errno: SystemError.lost)
        for _ in 0..<3 {
            #expect(throws: SpoolError.self) { try upload.append(bytes.span.bytes) }
            #expect(throws: SpoolError.self) { try scratch.append(bytes.span.bytes) }
        }
        scripted.allow()
        try upload.append(bytes.span.bytes)
    }

    @Test("a scratch file counts while it is there")
    func scratch() throws {
        let directory = TemporarySpool()
        let spool = try spool(directory, quota: 10)
        var scratch: ScratchFile? = try spool.scratch(expecting: 10)
        let bytes = Array("123456".utf8)
        try scratch?.append(bytes.span.bytes)
        let upload = try spool.create(.sample(), requestRelease: {})
        #expect(performing: { try upload.append("78901") }, throws: isOverQuota)
        #expect(performing: { try spool.scratch(expecting: 5) }, throws: isOverQuota)
        #expect(throws: SpoolError.self) { try scratch?.append(bytes.span.bytes) }
        scratch = nil
        try upload.append("ten bytes.")
    }

    @Test("content that was there before counts, and what another process purges is seen")
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
            // Counted again, but not again and again.
            let deadline = Deadline.after(.seconds(300))
            var made: Upload?
            while made == nil, !deadline.hasPassed {
                made = try? spool.create(.sample(), length: 10, requestRelease: {})
            }
            upload = try #require(made)
        }
        try upload.append("ten bytes.")
    }

    @Test("recovery counts what it leaves")
    func recovery() throws {
        let directory = TemporarySpool()
        let upload = try directory.open().create(.sample(), requestRelease: {})
        try upload.append("ten bytes.")
        try upload.files.openedData()
        // As by a death.
        upload.files.close()
        directory.cutPower()
        let spool = try spool(directory, quota: 10)
        #expect(spool.recover().forgotten == 1)
        try spool.create(.sample(), requestRelease: {}).append("ten bytes.")
    }

    @Test("a count that does not find what is only being written does not make room for more")
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

    @Test("many writers together do not pass it", .timeLimit(.minutes(10)))
    func together() throws {
        let directory = TemporarySpool()
        let spool = try spool(directory, quota: 1000)
        let left = Monitor(8)
        for _ in 0..<8 {
            try Posix.Thread.start(name: "writer", stackSize: 1 << 20) {
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
}
