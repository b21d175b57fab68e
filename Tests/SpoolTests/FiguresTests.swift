// The figures of a spool, and its waiting uploads.

import Foundation
import HTTPTypes
import SpoolgatePosix
import SpoolgateUploadProtocol
import Testing

@testable import SpoolgateSpool

@Suite("Figures")
struct FiguresTests {
    private func waiting(_ spool: Spool, known: Set<UploadID> = []) throws -> [WaitingUpload] {
        var all: [WaitingUpload] = []
        try spool.forEachWaiting { id, _ in
            !known.contains(id)
        } _: {
            all.append($0)
        }
        return all
    }

    @Test("figures follow creations, writes, deliveries and removals")
    func figures() throws {
        let directory = TemporarySpool()
        let spool = try directory.open(reserve: 7)
        #expect(spool.figures.uploads == 0)
        #expect(spool.figures.reserve == 7)
        #expect(spool.figures.quota == nil)
        let upload = try spool.create(.sample(), requestRelease: {})
        try upload.append("ten bytes.")
        let before = spool.figures
        #expect((before.uploads, before.unfinished) == (1, 1))
        #expect(before.bytes > 10)
        try upload.beginAttempt()
        try upload.finish(with: .sample)
        #expect((spool.figures.uploads, spool.figures.unfinished) == (1, 0))
        try upload.remove()
        #expect(spool.figures.uploads == 0)
    }

    @Test("an upload created during the walk counts twice until the next count")
    func recount() throws {
        let directory = TemporarySpool()
        let spool = try directory.open()
        let first = try spool.create(.sample(), requestRelease: {})
        defer { first.unlock() }
        var made: Upload?
        _ = spool.recover { _ in
        } step: {
            guard made == nil else { return }
            made = try? spool.create(.sample(), requestRelease: {})
        }
        #expect(made != nil)
        #expect(spool.figures.uploads >= 2)
        spool.recount(isDue: false)
        #expect((spool.figures.uploads, spool.figures.unfinished) == (2, 2))
        withExtendedLifetime(made) {}
    }

    @Test("another process's removals appear once they are due")
    func otherProcess() throws {
        let directory = TemporarySpool()
        let spool = try directory.open()
        let creation = UploadCreation.sample()
        try spool.create(creation, requestRelease: {}).unlock()
        let other = try directory.open()
        let upload = try #require(
            try other.lock(creation.id, until: .after(.seconds(60)), requestRelease: {})
        )
        try upload.remove()
        spool.recount(isDue: false)
        #expect(spool.figures.uploads == 1)
        spool.recount(isDue: true)
        #expect(spool.figures.uploads == 0)
    }

    @Test("a waiting upload is reported with its reason, and read only if that is unknown")
    func waits() throws {
        let directory = TemporarySpool()
        let spool = try directory.open()
        let creations = (0..<4).map { _ in UploadCreation.sample() }
        let uploads = try creations.map { creation in
            let upload = try spool.create(creation, requestRelease: {})
            try upload.append("ten bytes.")
            return upload
        }
        try uploads[0].postpone(reason: "a", .queue(WallTime(seconds: 5_000_000_000)))
        try uploads[1].postpone(reason: "b", .client(WallTime(seconds: 5_000_000_001)))
        try uploads[2].hold(.held, reason: "c")
        for upload in uploads { upload.unlock() }
        let seen = try waiting(spool)
        let found = Dictionary(uniqueKeysWithValues: seen.map { ($0.id, $0) })
        #expect(found.count == 3)
        let (first, second) = (found[creations[0].id], found[creations[1].id])
        #expect(first?.next == WallTime(seconds: 5_000_000_000))
        #expect(first?.cause == nil)
        #expect(first?.size == 10)
        #expect(second?.next == nil)
        #expect(second?.reason == "b")
        #expect(found[creations[2].id]?.cause == .held)
        #expect(try waiting(spool, known: Set(found.keys)) == [])
    }

    @Test("a spool in which no file can be created says so; a full one does not")
    func writable() throws {
        let directory = TemporarySpool()
        let scripted = ScriptedDisk()
        let spool = try directory.open(scripted.disk)
        try spool.tryOut()
        scripted.refuse(.create, on: "tmp", errno: 28)
        try spool.tryOut()
        let readOnly = try directory.open(
            Disk { call, _ throws(SystemError) in
                guard call != .create else {
                    throw SystemError(call: "openat", subject: "tmp", errno: 30)
                }
                return .max
            }
        )
        #expect(throws: SpoolError.self) { try readOnly.tryOut() }
    }

    @Test(
        "the trial reports an error of each of its calls, except a full disk, and leaves no file",
        arguments: [
            Disk.Call.create, .write, .sync, .syncDirectory, .unlink,
        ],
        [EIO, EACCES, EROFS, ENOSPC, EDQUOT]
    )
    func trial(call: Disk.Call, errno: Int32) throws {
        let directory = TemporarySpool()
        let scripted = ScriptedDisk()
        let spool = try directory.open(scripted.disk)
        for (number, place) in ["uploads", "/tmp", "/tmp/trial."].enumerated() {
            scripted.forget()
            try spool.tryOut(turn: number)
            guard scripted.calls.contains(call), call == .create || number == 2 else { continue }
            let part = call == .syncDirectory ? "/tmp" : place
            scripted.refuse(call, on: part, errno: errno, times: 1)
            if [ENOSPC, EDQUOT].contains(errno) {
                try spool.tryOut(turn: number)
            } else {
                #expect(throws: SpoolError.self) { try spool.tryOut(turn: number) }
            }
            scripted.allow()
            for name in try FileManager.default.contentsOfDirectory(
                atPath: "\(directory.path)/tmp"
            ) {
                // A file that could not be removed is removed by recovery.
                #expect(call == .unlink && name.hasPrefix("trial."), "\(name)")
                unlink("\(directory.path)/tmp/\(name)")
            }
        }
        #expect(spool.figures.uploads == 0)
        #expect(spool.figures.bytes == 0)
    }

    @Test(
        "a directory that was removed or replaced under a running daemon fails the trial",
        arguments: [
            "", "/queue", "/corrupt", "/daemons", "/tmp", "/uploads", "/uploads/0", "/uploads/v",
        ],
        [false, true]
    )
    func places(name: String, isReplaced: Bool) throws {
        let directory = TemporarySpool()
        let spool = try directory.open()
        try spool.tryOut()
        let (path, aside) = ("\(directory.path)\(name)", "\(directory.path)\(name).aside")
        #expect(rename(path, aside) == 0)
        if isReplaced {
            try FileManager.default.copyItem(atPath: aside, toPath: path)
        }
        let error = #expect(throws: SpoolError.self) { try spool.tryOut() }
        #expect("\(try #require(error))".contains(path))
        if isReplaced { try FileManager.default.removeItem(atPath: path) }
        #expect(rename(aside, path) == 0)
        try spool.tryOut()
    }

    @Test("any process can read the time of the last purge, and an unreadable one counts as none")
    func purged() throws {
        let directory = TemporarySpool()
        let spool = try directory.open()
        #expect(spool.lastPurge == nil)
        spool.notePurge()
        let time = try #require(try directory.open().lastPurge)
        #expect(abs(time.seconds - WallTime.now.seconds) < 60)
        try "x\n".write(toFile: "\(directory.path)/purged", atomically: false, encoding: .utf8)
        #expect(spool.lastPurge == nil)
    }

    @Test("each call that makes data durable is timed")
    func syncs() throws {
        let directory = TemporarySpool()
        let spool = try directory.open()
        let upload = try spool.create(.sample(), requestRelease: {})
        try upload.append("ten bytes.")
        let before = Disk.syncTimes.cumulated.last ?? 0
        try upload.sync()
        // Other tests may sync concurrently.
        #expect(Disk.syncTimes.cumulated.last ?? 0 >= before + 3)
        upload.unlock()
    }
}
