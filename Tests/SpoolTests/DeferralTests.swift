// A whole upload for which no attempt can begin: incoming -> deferred, without a moment in `active`.

import Posix
import Testing
import UploadProtocol

@testable import Spool

@Suite("Deferral without an attempt")
struct DeferralTests {
    @Test("of what nothing was promised it costs two calls and no sync")
    func unpromised() throws {
        let directory = TemporarySpool()
        let scripted = ScriptedDisk()
        let upload = try directory.open(scripted.disk).create(.sample(), requestRelease: {})
        try upload.append("content")
        scripted.forget()
        try upload.postpone(reason: "no free place")
        #expect(scripted.places == ["write incoming", "rename deferred"])
        #expect(upload.state == UploadState(offset: 7, length: 7, phase: .deferred))
    }

    @Test(
        "of what was promised content and length are durable before the move, and the move at last"
    )
    func promised() throws {
        let directory = TemporarySpool()
        let scripted = ScriptedDisk()
        let spool = try directory.open(scripted.disk)
        let upload = try spool.create(.sample(), requestRelease: {})
        try upload.append("content")
        try upload.sync()
        try upload.append(", and more")
        scripted.forget()
        try upload.postpone(reason: "no free place")
        #expect(
            scripted.places == ["sync data", "write incoming", "sync incoming", "rename deferred"]
        )
        scripted.forget()
        try upload.sync()
        #expect(scripted.places.prefix(2) == ["syncDirectory deferred", "syncDirectory incoming"])
        upload.unlock()
        try directory.cutPower()
        _ = try directory.open().recover()
        let again = try #require(try spool.lock(upload.creation.id))
        #expect(again.state == UploadState(offset: 17, length: 17, phase: .deferred))
    }

    @Test(
        "an attempt that may not be repeated any more is held where the process dies, or the power goes",
        arguments: [false, true],
        [false, true]
    )
    func notRepeatable(isPromised: Bool, isPowerCut: Bool) throws {
        guard isPromised || !isPowerCut else { return }
        let directory = TemporarySpool()
        let creation = UploadCreation.sample(repeatable: true)
        let upload = try directory.open().create(creation, requestRelease: {})
        try upload.append("content")
        if isPromised { try upload.sync() }
        try upload.beginAttempt(isRepeatable: false)
        upload.unlock()
        if isPowerCut { try directory.cutPower() }
        let spool = try directory.open()
        _ = try spool.recover()
        let again = try #require(try spool.lock(creation.id))
        #expect(again.holdCause == .indeterminate)
    }

    @Test("it counts no attempt, and the next one finds the content")
    func nextAttempt() throws {
        let directory = TemporarySpool()
        let spool = try directory.open()
        let creation = UploadCreation.sample(repeatable: false)
        let upload = try spool.create(creation, requestRelease: {})
        try upload.append("content")
        try upload.postpone(reason: "no free place")
        upload.unlock()
        let summary = try #require(try spool.summaries().first)
        #expect((summary.queue, summary.attempts) == (.deferred, 0))
        #expect(summary.reason == "no free place")
        let again = try #require(try spool.lock(creation.id))
        try again.beginAttempt()
        #expect(try again.content() == Array("content".utf8))
        try again.finish(with: .sample)
        #expect(directory.queues(of: creation.id) == [.delivered])
    }

    @Test(
        "where the disk refuses a step, it stays in incoming and can be tried again",
        arguments: [(.sync, 0), (.write, 7), (.rename, 7)] as [(Disk.Call, Int64)]
    )
    func refused(call: Disk.Call, offset: Int64) throws {
        let directory = TemporarySpool()
        let scripted = ScriptedDisk()
        let spool = try directory.open(scripted.disk)
        let creation = UploadCreation.sample()
        let upload = try spool.create(creation, requestRelease: {})
        try upload.sync()
        try upload.append("content")
        scripted.refuse(call, on: call == .sync ? "/data/" : "", errno: SystemError.lost)
        #expect(throws: SpoolError.self) { try upload.postpone(reason: "no free place") }
        scripted.allow()
        upload.unlock()
        #expect(directory.queues(of: creation.id) == [.incoming])
        let again = try #require(try spool.lock(creation.id))
        #expect(again.state.phase == .receiving)
        #expect(again.state.offset == offset)
        if offset == 0 { try again.append("content") }
        try again.postpone(reason: "no free place")
        #expect(directory.queues(of: creation.id) == [.deferred])
    }
}

@Suite("Removal")
struct RemovalTests {
    @Test(
        "of what was promised is durable before the content goes; of other uploads it costs nothing"
    )
    func durable() throws {
        for (isPromised, calls) in [
            (false, ["unlink incoming", "unlink data"]),
            (true, ["unlink incoming", "syncDirectory", "unlink data"]),
        ] {
            let directory = TemporarySpool()
            let scripted = ScriptedDisk()
            let upload = try directory.open(scripted.disk).create(.sample(), requestRelease: {})
            try upload.append("content")
            if isPromised { try upload.sync() }
            scripted.forget()
            try upload.remove(durably: true)
            var made: [String] = []
            var synced: Set<String> = []
            for place in scripted.places {
                let isSync = place.hasPrefix("syncDirectory ")
                if isSync { synced.insert(place) }
                let shown = isSync ? "syncDirectory" : place
                if made.last != shown { made.append(shown) }
            }
            #expect(made == calls)
            #expect(synced.isEmpty || synced.contains("syncDirectory incoming"))
            #expect(directory.queues(of: upload.creation.id).isEmpty)
            #expect(directory.content(of: upload.creation.id) == nil)
        }
    }
}
