// What a promise costs and in which order it is made: the calls on the disk, and what a failed one
// among them leaves.
//
// Faults at every call, and power cuts, are in FaultTests.

import Posix
import Testing
import UploadProtocol

@testable import Spool

@Suite("The order of a promise")
struct PromiseOrderTests {
    @Test("an uninterrupted upload costs no sync and few calls")
    func happyPathIsCheap() throws {
        let (directory, scripted) = (TemporarySpool(), ScriptedDisk())
        let spool = try directory.open(scripted.disk)
        scripted.forget()
        let upload = try spool.create(.sample(), requestRelease: {})
        try upload.append("content")
        try upload.beginAttempt()
        try upload.finish(with: .sample)
        upload.unlock()
        #expect(!scripted.calls.contains(.sync) && !scripted.calls.contains(.syncDirectory))
        #expect(scripted.calls.count <= 11, "\(scripted.calls)")
    }

    @Test("telling a durable offset again changes nothing on the disk")
    func settlingTwiceIsFree() throws {
        let (directory, scripted) = (TemporarySpool(), ScriptedDisk())
        let spool = try directory.open(scripted.disk)
        let creation = UploadCreation.sample()
        let upload = try spool.create(creation, requestRelease: {})
        try upload.append("content")
        try upload.sync()
        upload.unlock()
        scripted.forget()
        let again = try #require(try spool.lock(creation.id))
        try again.sync()
        again.unlock()
        #expect(scripted.calls.isEmpty, "\(scripted.calls)")
    }

    @Test("content that waits and cannot be made durable is received again, never believed")
    func failedSyncOfWaitingContent() throws {
        let (directory, scripted) = (TemporarySpool(), ScriptedDisk())
        let spool = try directory.open(scripted.disk)
        let creation = UploadCreation.sample()
        let upload = try spool.create(creation, requestRelease: {})
        try upload.append("content")
        try upload.beginAttempt()
        try upload.postpone(reason: "not reached")
        scripted.forget()
        scripted.refuse(.sync, errno: 5, times: 1)
        #expect(throws: SpoolError.self) { try upload.sync() }
        #expect(scripted.calls.first == .sync)
        upload.unlock()
        try expectReceivedAgain(creation.id, in: spool)
    }

    @Test("an offset told during an attempt costs the directory that the record left too, once")
    func toldDuringAttempt() throws {
        let (directory, scripted) = (TemporarySpool(), ScriptedDisk())
        let spool = try directory.open(scripted.disk)
        let upload = try spool.create(.sample(), requestRelease: {})
        try upload.append("content")
        scripted.forget()
        try upload.beginAttempt()
        #expect(!scripted.calls.contains(.sync) && !scripted.calls.contains(.syncDirectory))
        scripted.forget()
        try upload.sync()
        #expect(
            scripted.places == [
                "sync data", "syncDirectory data", "syncDirectory active",
                "syncDirectory incoming", "write incoming", "sync incoming",
            ]
        )
        try upload.sync()
        #expect(scripted.calls.count == 6)
    }

    @Test("content that could not be made durable during an attempt is not believed after it")
    func failedSyncDuringAttempt() throws {
        let (directory, scripted) = (TemporarySpool(), ScriptedDisk())
        let spool = try directory.open(scripted.disk)
        let creation = UploadCreation.sample()
        let upload = try spool.create(creation, requestRelease: {})
        try upload.append("content")
        try upload.beginAttempt()
        scripted.forget()
        scripted.refuse(.sync, errno: 5, times: 1)
        #expect(throws: SpoolError.self) { try upload.sync() }
        #expect(scripted.calls == [.sync])
        // The attempt goes on with what is in memory.
        #expect(try upload.content() == Array("content".utf8))
        try upload.postpone(reason: "not reached")
        #expect(throws: SpoolError.self) { try upload.sync() }
        #expect(!scripted.calls.dropFirst().contains(.sync))
        upload.unlock()
        try expectReceivedAgain(creation.id, in: spool)
    }

    @Test("an offset is told only after data, directories and record are durable, in this order")
    func promiseOrder() throws {
        let (directory, scripted) = (TemporarySpool(), ScriptedDisk())
        let spool = try directory.open(scripted.disk)
        let upload = try spool.create(.sample(), requestRelease: {})
        try upload.append("content")
        scripted.forget()
        try upload.sync()
        #expect(scripted.calls == [.sync, .syncDirectory, .syncDirectory, .write, .sync])
    }

    /// What could not be made durable is received from the beginning once more.
    private func expectReceivedAgain(_ id: UploadID, in spool: Spool) throws {
        let again = try #require(try spool.lock(id))
        #expect(again.state == UploadState(offset: 0, length: 7))
        try again.append("content")
        try again.sync()
        #expect(again.state.offset == 7)
    }
}
