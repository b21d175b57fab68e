// The spool as a whole: opening, space, listing, purging, scratch files, and the order of an upload's steps.

import Foundation
import SpoolgatePosix
import SpoolgateUploadProtocol
import Synchronization
import Testing

@testable import SpoolgateSpool

@Suite("The spool")
struct SpoolTests {
    @Test("a directory that is not a spool is refused and left unchanged")
    func strangersDirectory() throws {
        let directory = TemporarySpool()
        try FileManager.default.createDirectory(
            atPath: directory.path,
            withIntermediateDirectories: true
        )
        try Data().write(to: URL(filePath: "\(directory.path)/passwd"))
        #expect(throws: SpoolError.self) { try directory.open() }
        #expect(throws: SpoolError.self) { try Spool(existing: directory.path) }
        let left = try FileManager.default.contentsOfDirectory(atPath: directory.path)
        #expect(left == ["passwd"])
    }

    @Test("reading a spool does not create one")
    func existing() throws {
        let directory = TemporarySpool()
        #expect(throws: SpoolError.self) { try Spool(existing: directory.path) }
        #expect(!FileManager.default.fileExists(atPath: directory.path))
        _ = try directory.open()
        #expect(try Spool(existing: directory.path).summaries().isEmpty)
    }

    @Test("a spool of another format is refused")
    func otherFormat() throws {
        let directory = TemporarySpool()
        _ = try directory.open()
        try Data("spoolgate-spool 3\n".utf8).write(to: URL(filePath: "\(directory.path)/format"))
        #expect {
            try directory.open()
        } throws: { error in
            guard case .unusable(_, let reason, _) = error as? SpoolError else { return false }
            return reason.contains("spoolgate-spool 3")
        }
    }

    @Test("an interrupted creation of a spool is finished the next time")
    func interruptedMaking() throws {
        var number = 0
        while true {
            number += 3
            let directory = TemporarySpool()
            let calls = Mutex(0)
            let limit = number
            let disk = Disk { call, subject throws(SystemError) in
                let count = calls.withLock { calls in
                    calls += 1
                    return calls
                }
                guard count < limit else {
                    throw SystemError(call: call.rawValue, subject: subject, errno: EIO)
                }
                return Int.max
            }
            let isMade = (try? directory.open(disk)) != nil
            let creation = UploadCreation.sample()
            try directory.open().create(creation, requestRelease: {}).unlock()
            #expect(directory.queue(of: creation.id) == .incoming)
            if isMade { break }
        }
        #expect(number > 40)
    }

    @Test("processes that create the same spool at the same time all get it")
    func madeTogether() throws {
        for round in 0..<400 {
            let directory = TemporarySpool()
            let faults = Mutex<[String]>([])
            let path = directory.path
            DispatchQueue.concurrentPerform(iterations: 4) { number in
                // Different delays, so that they meet at every step.
                for _ in 0..<number * round { _ = access(path, F_OK) }
                do { _ = try Spool(directory: path) { $0.writer = "boot" } } catch {
                    faults.withLock { $0.append("\(error)") }
                }
            }
            #expect(faults.withLock { $0 } == [])
        }
    }

    @Test("below the reserve nothing is accepted")
    func reserve() throws {
        let directory = TemporarySpool()
        _ = try directory.open()
        let spool = try directory.open(reserve: .max / 2)
        #expect {
            try spool.create(.sample(), requestRelease: {})
        } throws: { error in
            guard case .full(directory.path, 0, let free, .max / 2) = error as? SpoolError else {
                return false
            }
            return free > 0
        }
        #expect(throws: SpoolError.self) {
            try spool.createUnrecorded(.sample(), expecting: 1 << 20)
        }
        #expect(try spool.summaries().isEmpty)
    }

    @Test("without enough free inodes nothing is accepted, and the error says so")
    func files() throws {
        let directory = TemporarySpool()
        try FileManager.default.createDirectory(
            atPath: directory.path,
            withIntermediateDirectories: true
        )
        let mounted = mount("none", directory.path, "tmpfs", 0, "size=8m,nr_inodes=1020")
        guard mounted == 0 else { try Test.cancel("a tmpfs cannot be mounted here") }
        defer { umount2(directory.path, 2) }
        let spool = try directory.open()
        #expect {
            try spool.create(.sample(), requestRelease: {})
        } throws: { error in
            guard case .fewFiles(directory.path, let free, 1000) = error as? SpoolError else {
                return false
            }
            return free > 0 && free < 1000
        }
    }

    @Test("content that arrives in many parts is one content")
    func parts() throws {
        let directory = TemporarySpool()
        let creation = UploadCreation.sample(repeatable: false)
        var sent: [UInt8] = []
        for part in 0..<5 {
            let spool = try directory.open()
            let found =
                try part == 0
                ? spool.create(creation, requestRelease: {}) : spool.lock(creation.id)
            let upload = try #require(found)
            #expect(upload.state.offset == Int64(sent.count))
            let bytes = (0..<1000 * part + 1).map { _ in UInt8.random(in: 0...255) }
            try upload.append(bytes.span.bytes)
            sent += bytes
        }
        let upload = try #require(try directory.open().lock(creation.id))
        #expect(try upload.content() == sent)
        try upload.setLength(Int64(sent.count))
        try upload.beginAttempt()
        try upload.postpone(reason: "not reached", .client(.now))
        #expect(upload.state.phase == .deferred)
        try upload.beginAttempt()
        try upload.hold(.indeterminate, reason: "no answer")
        upload.unlock()
        let held = try #require(try directory.open().lock(creation.id))
        #expect(
            held.state
                == UploadState(
                    offset: Int64(sent.count),
                    length: Int64(sent.count),
                    phase: .indeterminate
                )
        )
        let summary = try #require(try directory.open().summaries().first)
        #expect((summary.queue, summary.attempts, summary.reason) == (.hold, 2, "no answer"))
        try held.requeue(at: .now)
        try held.beginAttempt()
        #expect(try held.content() == sent)
        try held.finish(with: .sample)
        #expect(directory.queue(of: creation.id) == .delivered)
        try held.remove()
        #expect(directory.queue(of: creation.id) == nil)
        #expect(try directory.open().lock(creation.id) == nil)
    }

    @Test("a reported length survives a crash of the process")
    func length() throws {
        let directory = TemporarySpool()
        let creation = UploadCreation.sample()
        let upload = try directory.open().create(creation, requestRelease: {})
        try upload.setLength(100)
        try upload.append("some")
        upload.unlock()
        let again = try #require(try directory.open().lock(creation.id))
        #expect(again.state == UploadState(offset: 4, length: 100))
    }

    @Test("a purge removes unused uploads that it listed, in every queue")
    func purge() throws {
        let directory = TemporarySpool()
        let spool = try directory.open()
        for _ in 0..<3 { try spool.create(.sample(), requestRelease: {}).append("content") }
        let delivered = try spool.create(.sample(), requestRelease: {})
        try delivered.beginAttempt()
        try delivered.finish(with: .sample)
        delivered.unlock()
        let damaged = try spool.create(.sample(), requestRelease: {}).creation.id
        try directory.setAside(damaged)
        let held = try spool.create(.sample(), requestRelease: {})
        let seen = try spool.summaries()
        #expect(Set(seen.map(\.id)).count == 6 && seen.count == 6)
        #expect(seen.filter(\.isInUse).map(\.id) == [held.creation.id])
        let purger = try Spool(existing: directory.path)
        for summary in seen {
            let isRemoved = try purger.remove(summary.id, ifUnchangedSince: summary)
            #expect(isRemoved == (summary.id != held.creation.id))
            #expect((directory.queue(of: summary.id) == nil) == isRemoved)
            #expect(!isRemoved || directory.content(of: summary.id) == nil)
        }
        #expect(try purger.summaries().map(\.id) == [held.creation.id])
    }

    @Test("an upload that was resumed since it was listed is not purged")
    func purgeOfResumed() throws {
        let directory = TemporarySpool()
        let spool = try directory.open()
        let creation = UploadCreation.sample()
        try spool.create(creation, requestRelease: {}).unlock()
        let seen = try #require(try spool.summaries().first)
        let upload = try #require(try spool.lock(creation.id))
        #expect(try !spool.remove(creation.id, ifUnchangedSince: seen))
        try upload.append("more")
        upload.unlock()
        #expect(try !spool.remove(creation.id, ifUnchangedSince: seen))
        #expect(directory.queue(of: creation.id) == .incoming)
    }

    @Test("a purge completes an interrupted removal once it is old, and nothing else")
    func orphans() throws {
        let directory = TemporarySpool()
        let scripted = ScriptedDisk()
        let spool = try directory.open(scripted.disk)
        let orphan = UploadCreation.sample()
        let upload = try spool.create(orphan, requestRelease: {})
        try upload.append("content")
        try upload.sync()
        scripted.refuse(.unlink, on: ".data", errno: EIO)
        #expect(throws: SpoolError.self) { try upload.remove() }
        scripted.allow()
        let held = try spool.create(.sample(), requestRelease: {})
        try held.append("held")
        try held.sync()
        try spool.create(.sample(), requestRelease: {}).unlock()
        let purger = try Spool(existing: directory.path)
        let before = WallTime(seconds: WallTime.now.seconds - 3600)
        let after = WallTime(seconds: WallTime.now.seconds + 3600)
        for (limit, isDryRun, expected) in [
            (before, false, []), (after, true, [orphan.id]), (after, false, [orphan.id]),
            (after, false, []),
        ] {
            var found: [UploadID] = []
            try purger.recoverOrphans(unchangedSince: limit, isDryRun: isDryRun) {
                id,
                status,
                outcome in
                #expect((status.size, outcome) == (7, .removed))
                found.append(id)
            }
            #expect(found == expected)
        }
        #expect(directory.content(of: orphan.id) == nil)
        #expect(!FileManager.default.fileExists(atPath: directory.removal(orphan.id)))
        #expect(directory.content(of: held.creation.id) != nil)
        #expect(try spool.summaries().count == 2)
    }

    @Test("an upload without a record holds the written content, and its file has no name")
    func unrecorded() throws {
        let directory = TemporarySpool()
        let spool = try directory.open()
        let upload = try spool.createUnrecorded(.sample(), expecting: 0)
        let bytes = Array("content".utf8)
        try upload.append(bytes.span.bytes)
        try upload.append(bytes.span.bytes)
        #expect(upload.state.offset == 14)
        var read = [UInt8](repeating: 0, count: 20)
        let count = try read.withUnsafeMutableBytes { try upload.read(into: $0, at: 7) }
        #expect(read[..<count].elementsEqual(bytes))
        #expect(try spool.summaries().isEmpty)
        #expect(try directory.open().recover() == Recovery())
        #expect(
            try FileManager.default.contentsOfDirectory(atPath: "\(directory.path)/tmp").isEmpty
        )
    }

    @Test("a response that does not fit is stored without its content")
    func responseWithoutRoom() throws {
        let directory = TemporarySpool()
        let isFull = Mutex(false)
        let spool = try directory.open(
            Disk { call, subject throws(SystemError) in
                // The disk is full for one write: the response with its content.
                let fails = isFull.withLock { flag in
                    defer { if call == .write { flag = false } }
                    return flag && call == .write
                }
                if fails { throw SystemError(call: "pwrite", subject: subject, errno: ENOSPC) }
                return Int.max
            }
        )
        let upload = try spool.create(.sample(), requestRelease: {})
        try upload.beginAttempt()
        isFull.withLock { $0 = true }
        try upload.finish(with: .sample)
        #expect(try upload.response()?.head == StoredResponse.sample.head)
        #expect(try upload.response()?.content == nil)
    }

    @Test("a full disk is reported as such, and written content stays")
    func fullDisk() throws {
        let directory = TemporarySpool()
        let room = Mutex(Int.max)
        let spool = try directory.open(
            Disk { call, subject throws(SystemError) in
                guard call == .write else { return Int.max }
                let left = room.withLock { $0 }
                guard left > 0 else {
                    throw SystemError(call: "pwrite", subject: subject, errno: EDQUOT)
                }
                if left < 100 { room.withLock { $0 = 0 } }
                return left
            }
        )
        let upload = try spool.create(.sample(), requestRelease: {})
        // Once the upload is durable, content goes to its file.
        try upload.sync()
        room.withLock { $0 = 3 }
        #expect {
            try upload.append("content")
        } throws: { error in
            guard case .noSpace(let cause, directory.path, _?) = error as? SpoolError else {
                return false
            }
            return cause.errno == EDQUOT
        }
        #expect(upload.state.offset == 3)
        #expect(directory.content(of: upload.creation.id) == Array("con".utf8))
        room.withLock { $0 = .max }
        try upload.append("tent")
        #expect(try upload.content() == Array("content".utf8))
    }
}
