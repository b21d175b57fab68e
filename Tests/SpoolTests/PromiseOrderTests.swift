// The order of the disk calls that make content durable, and a failure among them.

import SpoolgatePosix
import SpoolgateUploadProtocol
import Testing

@testable import SpoolgateSpool

@Suite("The order of a promise")
struct PromiseOrderTests {
    /// The calls that make content in memory durable.
    private static let promise = [
        "create data", "write data", "sync data", "syncDirectory uploads", "write record",
        "sync record",
    ]

    @Test("an uninterrupted upload needs no sync and few calls")
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
        #expect(
            scripted.places == [
                "create record", "write record", "write record", "write record", "write record",
            ]
        )
    }

    @Test("reporting a durable offset again changes nothing on the disk")
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

    @Test("deferred content that cannot be made durable is received again, never believed")
    func failedSyncOfWaitingContent() throws {
        let (directory, scripted) = (TemporarySpool(), ScriptedDisk())
        let spool = try directory.open(scripted.disk)
        let creation = UploadCreation.sample()
        let upload = try spool.create(creation, requestRelease: {})
        try upload.append("content")
        try upload.beginAttempt()
        try upload.postpone(reason: "not reached", .client(.now))
        scripted.forget()
        scripted.refuse(.sync, errno: 5, times: 1)
        #expect(throws: SpoolError.self) { try upload.sync() }
        #expect(scripted.calls.contains(.sync))
        upload.unlock()
        try expectReceivedAgain(creation.id, in: spool)
    }

    @Test("an offset reported during an attempt costs the same as any other, once")
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
            scripted.places == Self.promise
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
        #expect(scripted.places == ["create data", "write data", "sync data"])
        // The attempt continues with the content in memory.
        #expect(try upload.content() == Array("content".utf8))
        try upload.postpone(reason: "not reached", .client(.now))
        #expect(throws: SpoolError.self) { try upload.sync() }
        #expect(!scripted.calls.dropFirst(3).contains(.sync))
        upload.unlock()
        try expectReceivedAgain(creation.id, in: spool)
    }

    @Test(
        "an offset is reported only after data, directories and record are durable, in this order"
    )
    func promiseOrder() throws {
        let (directory, scripted) = (TemporarySpool(), ScriptedDisk())
        let spool = try directory.open(scripted.disk)
        let upload = try spool.create(.sample(), requestRelease: {})
        try upload.append("content")
        scripted.forget()
        try upload.sync()
        #expect(scripted.places == Self.promise)
        try upload.append(", more")
        scripted.forget()
        try upload.sync()
        #expect(scripted.places == ["sync data", "write record", "sync record"])
    }

    /// The content is received again from the start.
    private func expectReceivedAgain(_ id: UploadID, in spool: Spool) throws {
        let again = try #require(try spool.lock(id))
        #expect(again.state == UploadState(offset: 0, length: 7))
        try again.append("content")
        try again.sync()
        #expect(again.state.offset == 7)
    }
}
