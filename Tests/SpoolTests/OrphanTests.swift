// Content without a record: what a removal leaves is removed, and everything else is kept.

import Foundation
import SpoolgatePosix
import SpoolgateUploadProtocol
import Testing

@testable import SpoolgateSpool

/// How the record of an upload with content is lost.
enum RecordLoss: CaseIterable {
    case removed
    /// The copy was made while a daemon of another boot was running.
    case removedFromLiveCopy
    case emptied

    func apply(to id: UploadID, in directory: TemporarySpool) throws {
        switch self {
        case .removed: try FileManager.default.removeItem(atPath: directory.record(id))
        case .removedFromLiveCopy:
            try FileManager.default.removeItem(atPath: directory.record(id))
            directory.cutPower()
        case .emptied: try directory.edit(directory.record(id)) { $0 = Data() }
        }
    }
}

/// An upload as it is before its removal.
struct RemovalCase: CustomTestStringConvertible, Sendable {
    let testDescription: String
    let make: @Sendable (Upload) throws -> Void

    static let all: [RemovalCase] = [
        RemovalCase(testDescription: "partial") { upload in
            try upload.append("content")
            try upload.store()
        },
        RemovalCase(testDescription: "partial, durable") { upload in
            try upload.append("content")
            try upload.sync()
        },
        RemovalCase(testDescription: "deferred") { upload in
            try upload.append("content")
            try upload.postpone(reason: nil, .queue(WallTime(seconds: 5)))
            try upload.sync()
        },
        RemovalCase(testDescription: "on hold") { upload in
            try upload.append("content")
            try upload.hold(.failed, reason: "refused")
        },
        RemovalCase(testDescription: "delivered") { upload in
            try upload.append("content")
            try upload.beginAttempt()
            try upload.finish(with: .sample)
        },
    ]
}

@Suite("Content without a record")
struct OrphanTests {
    private func make(_ row: RemovalCase, in spool: Spool) throws -> UploadID {
        let upload = try spool.create(.sample(), requestRelease: {})
        try row.make(upload)
        upload.unlock()
        return upload.creation.id
    }

    private func names(of id: UploadID, in directory: TemporarySpool) throws -> [String] {
        let places = ["uploads/\(id.description.prefix(1))", "corrupt", "queue"]
        return try places.flatMap {
            try FileManager.default.contentsOfDirectory(atPath: "\(directory.path)/\($0)")
        }
    }

    @Test(
        "content without a record is moved to corrupt and named, however its record was lost",
        arguments: RecordLoss.allCases,
        RemovalCase.all.dropLast()
    )
    func lost(how: RecordLoss, row: RemovalCase) throws {
        let directory = TemporarySpool()
        let id = try make(row, in: directory.open())
        try how.apply(to: id, in: directory)
        let spool = try directory.open()
        var findings: [Recovery.Finding] = []
        let recovery = spool.recover { findings.append($0) }
        #expect((recovery.corrupt, recovery.orphans, recovery.forgotten) == (1, 0, 0))
        guard case .setAside(id, let reason)? = findings.first, findings.count == 1 else {
            Issue.record("\(findings)")
            return
        }
        #expect(reason.contains(how == .emptied ? "never written completely" : "missing"))
        #expect(directory.content(of: id) == Array("content".utf8))
        let summary = try #require(try spool.summaries().first)
        #expect((summary.id, summary.queue, summary.offset) == (id, .corrupt, 7))
        #expect(summary.lacksRecord == (how != .emptied))
        #expect(try spool.look(at: id) == summary)
        #expect(try spool.corruptCount() == 1)
        #expect(try directory.open().recover().corrupt == 0, "reported once")
        #expect(try spool.remove(id, ifUnchangedSince: summary))
        #expect(try spool.summaries().isEmpty && directory.content(of: id) == nil)
    }

    @Test(
        "content that a power failure left without its record (btrfs) is removed, no other content"
    )
    func powerFailure() throws {
        for (hasFailed, isRestored, isBefore) in [
            (true, false, true), (false, false, true), (true, true, true), (true, false, false),
        ] {
            let directory = TemporarySpool()
            let id = try make(RemovalCase.all[1], in: directory.open())
            try RecordLoss.removed.apply(to: id, in: directory)
            if hasFailed { directory.cutPower() }
            if isRestored {
                try FileManager.default.setAttributes(
                    [.modificationDate: Date(timeIntervalSinceNow: -3600)],
                    ofItemAtPath: directory.data(id)
                )
            }
            // Whether the machine has started after the last change.
            let shift: Int64 = isBefore ? 100 : -100
            let clock = SystemClock(
                wall: { WallTime(seconds: WallTime.now.seconds + shift) },
                uptime: { 0 }
            )
            let recovery = try directory.open(clock: clock).recover()
            let isExplained = hasFailed && !isRestored && isBefore
            #expect((recovery.orphans, recovery.corrupt) == (isExplained ? (1, 0) : (0, 1)))
            #expect((directory.content(of: id) == nil) == isExplained)
        }
    }

    @Test("content that cannot be moved is tried again")
    func again() throws {
        let directory = TemporarySpool()
        let id = try make(RemovalCase.all[1], in: directory.open())
        try RecordLoss.removed.apply(to: id, in: directory)
        let scripted = ScriptedDisk()
        let spool = try directory.open(scripted.disk)
        scripted.refuse(.rename, on: "/\(id)", errno: EIO)
        let recovery = spool.recover()
        #expect(recovery == Recovery(failed: 1, skipped: [id]))
        #expect(spool.recoverAgain(after: recovery) == recovery)
        scripted.allow()
        #expect(spool.recoverAgain(after: recovery) == Recovery(corrupt: 1))
    }

    @Test("content that a process still writes is moved once it is unlocked")
    func inUse() throws {
        let directory = TemporarySpool()
        let id = try make(RemovalCase.all[1], in: directory.open())
        try RecordLoss.removed.apply(to: id, in: directory)
        let spool = try directory.open()
        var file = try directory.open().layout.openData(FileName(id))
        #expect(try file?.tryLock() == true)
        let recovery = spool.recover()
        #expect((recovery.corrupt, recovery.skipped) == (0, [id]))
        file = nil
        #expect(spool.recoverAgain(after: recovery) == Recovery(corrupt: 1))
    }

    @Test(
        "a removal is completed or undone after a crash before any of its calls",
        arguments: RemovalCase.all,
        [true, false]
    )
    func interrupted(row: RemovalCase, byPurge: Bool) throws {
        var isEnded = false
        for count in 0..<10 where !isEnded {
            let directory = TemporarySpool()
            let id = try make(row, in: directory.open())
            let before = directory.content(of: id)
            let scripted = ScriptedDisk()
            let spool = try directory.open(scripted.disk)
            let summary = try #require(try spool.summaries().first)
            let upload = byPurge ? nil : try spool.lock(id)
            scripted.die(after: count)
            do {
                if let upload {
                    try upload.remove(durably: true)
                } else {
                    try spool.remove([summary]) { _ in }
                }
                isEnded = true
            } catch {}
            let next = try directory.open()
            let recovery = next.recover()
            #expect((recovery.corrupt, recovery.failed) == (0, 0), "after \(count) calls")
            #expect(!FileManager.default.fileExists(atPath: directory.removal(id)))
            try next.forEachWaiting({ _, _ in true }, { _ in })
            if directory.queue(of: id) == nil {
                #expect(try names(of: id, in: directory).isEmpty, "after \(count) calls")
            } else {
                #expect(!isEnded && directory.content(of: id) == before, "after \(count) calls")
                #expect(try next.lock(id)?.state.phase == summary.queue.phase(summary.holdCause))
            }
        }
        #expect(isEnded)
    }

    @Test(
        "a removal from corrupt is completed by the next one after a crash before any of its calls"
    )
    func interruptedInCorrupt() throws {
        var isEnded = false
        for count in 0..<10 where !isEnded {
            let directory = TemporarySpool()
            let id = try make(RemovalCase.all[1], in: directory.open())
            try directory.setAside(id)
            let scripted = ScriptedDisk()
            let spool = try directory.open(scripted.disk)
            let summary = try #require(try spool.summaries().first)
            scripted.die(after: count)
            isEnded = (try? spool.remove(id, ifUnchangedSince: summary)) == true
            let next = try directory.open()
            #expect(next.recover() == Recovery())
            if let left = try next.summaries().first {
                #expect(!left.lacksRecord)
                #expect(try next.remove(id, ifUnchangedSince: left))
            }
            #expect(try names(of: id, in: directory).isEmpty, "after \(count) calls")
        }
        #expect(isEnded)
    }

    @Test("a removal succeeds without room for another name")
    func fullDisk() throws {
        let (directory, scripted) = (TemporarySpool(), ScriptedDisk())
        let spool = try directory.open(scripted.disk)
        let id = try make(RemovalCase.all[1], in: spool)
        scripted.refuse(.createEmpty, errno: ENOSPC)
        try spool.lock(id)?.remove(durably: true)
        #expect(try names(of: id, in: directory).isEmpty)
    }

    @Test("a removal that fails is undone, and leaves no name that explains a later loss")
    func failed() throws {
        let (directory, scripted) = (TemporarySpool(), ScriptedDisk())
        let spool = try directory.open(scripted.disk)
        let id = try make(RemovalCase.all[1], in: spool)
        scripted.refuse(.unlink, on: "/\(id)", errno: EIO, times: 1)
        #expect(throws: SpoolError.self) { try spool.lock(id)?.remove() }
        #expect(!FileManager.default.fileExists(atPath: directory.removal(id)))
        #expect(try spool.lock(id)?.state.offset == 7)
    }
}
