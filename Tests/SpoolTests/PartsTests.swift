// Uploads concatenated from others: the copied bytes, and a full disk.

import Glibc
import SpoolgatePosix
import SpoolgateUploadProtocol
import Synchronization
import Testing

@testable import SpoolgateSpool

@Suite("Partial uploads")
struct PartsTests {
    private let directory = TemporarySpool()

    /// Copies `step` bytes at a time, and none after `room`.
    private func disk(step: Int, room: Int = .max) -> Disk {
        let left = Mutex(room)
        return Disk { call, subject throws(SystemError) in
            guard call == .copy else { return .max }
            return try left.withLock { left throws(SystemError) in
                guard left > 0 else {
                    throw SystemError(call: call.rawValue, subject: subject, errno: ENOSPC)
                }
                let count = min(step, left)
                left -= count
                return count
            }
        }
    }

    private func part(_ content: String, in spool: Spool) throws -> Upload {
        let upload = try spool.create(.sample(fields: .part), requestRelease: {})
        try upload.append(content)
        try upload.sync()
        return upload
    }

    @Test(
        "partial uploads are copied one after the other, in as many calls as the disk needs",
        arguments: [1, 4, 100]
    )
    func shortCopies(step: Int) throws {
        let spool = try directory.open(disk(step: step))
        let parts = try ["one, ", "", "two, ", "three"].map { try part($0, in: spool) }
        let joined = try spool.create(.sample(fields: .joined), length: 15, requestRelease: {})
        for part in parts { try joined.append(contentOf: part) }
        #expect(joined.state.offset == 15)
        try joined.sync()
        #expect(try joined.content() == Array("one, two, three".utf8))
        #expect(directory.content(of: joined.creation.id) == Array("one, two, three".utf8))
        #expect(try parts[3].content() == Array("three".utf8))
    }

    @Test("a full disk leaves the copied bytes, and the partial upload")
    func full() throws {
        let spool = try directory.open(disk(step: 1, room: 9))
        let parts = try ["one, ", "two, "].map { try part($0, in: spool) }
        let joined = try spool.create(.sample(fields: .joined), requestRelease: {})
        try joined.append(contentOf: parts[0])
        #expect {
            try joined.append(contentOf: parts[1])
        } throws: { error in
            if case .noSpace? = error as? SpoolError { true } else { false }
        }
        #expect(joined.state.offset == 9)
        #expect(
            directory.content(of: joined.creation.id) == Array("one, two".utf8) + [
                UInt8(ascii: ",")
            ]
        )
        #expect(try parts[1].content() == Array("two, ".utf8))
    }

    @Test("uncopied bytes do not count in the quota")
    func quota() throws {
        let spool = try directory.open(disk(step: 1, room: 4), quota: 20)
        let part = try part("ten bytes.", in: spool)
        let joined = try spool.create(.sample(fields: .joined), requestRelease: {})
        #expect(throws: SpoolError.self) { try joined.append(contentOf: part) }
        #expect(joined.state.offset == 4)
        try joined.append("or six")
        #expect {
            try joined.append("!")
        } throws: { error in
            if case .overQuota? = error as? SpoolError { true } else { false }
        }
    }

    @Test("a partial upload whose file is too short is not joined")
    func sourceEnds() throws {
        let spool = try directory.open()
        let part = try part("ten bytes.", in: spool)
        try directory.edit(directory.data(part.creation.id)) { $0.removeLast() }
        let joined = try spool.create(.sample(fields: .joined), requestRelease: {})
        #expect {
            try joined.append(contentOf: part)
        } throws: { error in
            if case .disk? = error as? SpoolError { true } else { false }
        }
    }

    @Test(
        "the name of the joining upload is durable in the partial upload, and stays after it is consumed"
    )
    func final() throws {
        let spool = try directory.open()
        let part = try part("content", in: spool)
        let id = part.creation.id
        let joined = UploadID.random()
        #expect(part.final == nil)
        try part.goInto(joined)
        part.unlock()
        directory.cutPower()
        let again = try #require(try directory.open().lock(id))
        #expect(again.final == joined)
        #expect(try again.content() == Array("content".utf8))
        try again.finish(with: .sample)
        again.unlock()
        #expect(try directory.open().lock(id)?.final == joined)
        #expect(directory.content(of: id) == nil)
    }

    @Test(
        "if that cannot be written the partial upload is unchanged",
        arguments: [Disk.Call.write, .sync]
    )
    func notWritten(call: Disk.Call) throws {
        let scripted = ScriptedDisk()
        let part = try part("content", in: try directory.open(scripted.disk))
        scripted.refuse(call, errno: SystemError.lost, times: 1)
        #expect(throws: SpoolError.self) { try part.goInto(.random()) }
        #expect(part.final == nil)
        let id = part.creation.id
        part.unlock()
        #expect(try directory.open().lock(id)?.final == nil)
    }

    @Test(
        "an upload made of partial ones is never received again",
        arguments: [Queue.deferred, .active],
        [true, false]
    )
    func repair(queue: Queue, isConcatenation: Bool) {
        var state = RecordState(length: 10)
        state.durable = 5
        state.queue = queue
        state.then = queue == .active ? .deferred : nil
        let repair = Repair(
            state: state,
            dataSize: 10,
            responseFault: nil,
            isForeign: true,
            isSlotDamaged: false,
            isConcatenation: isConcatenation
        )
        #expect(repair == (isConcatenation ? .forget : .receiveAgain(from: 5)))
    }
}
