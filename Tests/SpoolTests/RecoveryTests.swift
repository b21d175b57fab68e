// Recovery beside what the disk will not let it do: the rest goes on, and what was left is judged later
// as it would have been.

import Foundation
import Posix
import Testing
import UploadProtocol

@testable import Spool

@Suite("Recovery")
struct RecoveryTests {
    /// An upload of which the first part is promised and more has come.
    private func upload(
        in directory: TemporarySpool,
        _ id: UploadID = .random(),
        attempt: Bool = false
    ) throws -> UploadID {
        let upload = try directory.open().create(.sample(id), requestRelease: {})
        try upload.append("promised")
        try upload.sync()
        if attempt { try upload.beginAttempt() } else { try upload.append(", more") }
        upload.unlock()
        return id
    }

    private func offset(_ id: UploadID, _ spool: Spool) throws -> Int64? {
        try spool.lock(id)?.state.offset
    }

    @Test("goes on past an upload the disk will not let it mend, and says so")
    func onProgress() throws {
        let directory = TemporarySpool()
        let ids = try (0..<5).map { _ in try upload(in: directory, attempt: true) }
        let scripted = ScriptedDisk()
        let spool = try directory.open(scripted.disk)
        scripted.refuse(.write, on: "/active/\(FileName(ids[2]).path)", errno: SystemError.lost)
        var findings: [Recovery.Finding] = []
        let recovery = try spool.recover { findings.append($0) }
        #expect((recovery.interrupted, recovery.failed, recovery.uploads) == (4, 1, 5))
        guard case .leftAlone(ids[2], .disk)? = findings.first, findings.count == 1 else {
            Issue.record("\(findings)")
            return
        }
        #expect(directory.queues(of: ids[2]) == [.active])
        scripted.allow()
        #expect(try spool.lock(ids[2])?.state.phase == .deferred)
        #expect(try spool.recover() == Recovery(uploads: 5))
    }

    @Test("what a power cut left and could not be cut back is cut back by the next request")
    func leftForRequest() throws {
        let directory = TemporarySpool()
        let (left, other) = (try upload(in: directory), try upload(in: directory))
        try directory.cutPower()
        let scripted = ScriptedDisk()
        let spool = try directory.open(scripted.disk)
        scripted.refuse(.truncate, on: left.description, errno: SystemError.lost)
        let recovery = try spool.recover()
        #expect((recovery.cutBack, recovery.failed) == (1, 1))
        #expect(try offset(other, spool) == 8)
        // Never what the power cut may have spoilt.
        #expect(throws: SpoolError.self) { try spool.lock(left) }
        scripted.allow()
        #expect(try offset(left, spool) == 8)
        // Struck off: what comes now is not cut back again.
        let upload = try #require(try spool.lock(left))
        try upload.append(", again")
        upload.unlock()
        #expect(try offset(left, spool) == 15)
        #expect(try directory.open().recover().cutBack == 0)
        #expect(try offset(left, directory.open()) == 15)
    }

    @Test("or by the next recovery, which takes the others as they are now")
    func leftForRecovery() throws {
        let directory = TemporarySpool()
        let (left, other) = (try upload(in: directory), try upload(in: directory))
        try directory.cutPower()
        let scripted = ScriptedDisk()
        let spool = try directory.open(scripted.disk)
        scripted.refuse(.truncate, on: left.description, errno: SystemError.lost)
        #expect(try spool.recover().failed == 1)
        let upload = try #require(try spool.lock(other))
        try upload.append(", received since")
        upload.unlock()
        let next = try directory.open()
        #expect(try next.recover() == Recovery(cutBack: 1, uploads: 2))
        #expect(try offset(left, next) == 8)
        #expect(try offset(other, next) == 24)
        #expect(!FileManager.default.fileExists(atPath: "\(directory.path)/unrecovered"))
        // The first process knows of it still; what came since is not its to cut back.
        let resumed = try #require(try next.lock(left))
        try resumed.append(", received since")
        resumed.unlock()
        #expect(try offset(left, spool) == 24)
    }

    @Test("where what is left cannot be noted down after a power cut, nothing is served")
    func cannotBeNoted() throws {
        let directory = TemporarySpool()
        _ = try upload(in: directory)
        try directory.cutPower()
        let scripted = ScriptedDisk()
        let spool = try directory.open(scripted.disk)
        scripted.refuse(.truncate, errno: SystemError.lost)
        scripted.refuse(.create, on: "/tmp/", errno: SystemError.lost)
        #expect(throws: SpoolError.self) { try spool.recover() }
        scripted.allow()
        #expect(try spool.recover().cutBack == 1)
    }

    @Test(
        "a subdirectory that cannot be read stops nothing else; after a power cut nothing uses it",
        // root reads everything.
        .enabled(if: geteuid() != 0),
        arguments: [false, true]
    )
    func unreadable(afterPowerCut: Bool) throws {
        let directory = TemporarySpool()
        let id = try upload(in: directory, UploadID(high: 0, low: 1))
        let other = try upload(in: directory, UploadID(high: 1 << 63, low: 1))
        if afterPowerCut { try directory.cutPower() }
        let shard = "\(directory.path)/incoming/0"
        let broken = try directory.open()
        try #require(chmod(shard, 0) == 0)
        var findings: [Recovery.Finding] = []
        let recovery = try broken.recover { findings.append($0) }
        #expect(recovery.failed == 1, "\(findings)")
        #expect(try offset(other, broken) == (afterPowerCut ? 8 : 14))
        if afterPowerCut {
            #expect(throws: SpoolError.self) { try broken.lock(id) }
            let new = UploadCreation.sample(UploadID(high: 0, low: 2))
            #expect(throws: SpoolError.self) { try broken.create(new, requestRelease: {}) }
        }
        try #require(chmod(shard, 0o700) == 0)
        let mended = try directory.open()
        #expect(try mended.recover() == Recovery(cutBack: afterPowerCut ? 1 : 0, uploads: 2))
        #expect(try offset(id, mended) == (afterPowerCut ? 8 : 14))
    }

    @Test(
        "a record that a power cut left in two queues keeps the name that must not be undone",
        arguments: [
            (Queue.incoming, Queue.active, Queue.deferred), (.incoming, .deferred, .deferred),
            (.active, .hold, .hold), (.deferred, .active, .deferred),
        ]
    )
    func twoNames(first: Queue, second: Queue, left: Queue) throws {
        let directory = TemporarySpool()
        let id = try upload(in: directory, attempt: true)
        if first != .active { try directory.move(id, from: .active, to: first) }
        try FileManager.default.linkItem(
            atPath: directory.file(first, id),
            toPath: directory.file(second, id)
        )
        try directory.cutPower()
        let spool = try directory.open()
        #expect(try spool.recover().uploads == 1)
        #expect(directory.queues(of: id) == [left])
        #expect(try offset(id, spool) == 8)
    }

    @Test("a spool of a format that is not known is refused, and both versions are named")
    func format() throws {
        for format in ["spoolgate-spool 0\n", "spoolgate-spool 2\n", "", "something else"] {
            let directory = TemporarySpool()
            let id = try upload(in: directory)
            let record = FileManager.default.contents(atPath: directory.file(.incoming, id))
            try Data(format.utf8).write(to: URL(filePath: "\(directory.path)/format"))
            for isExisting in [false, true] {
                #expect {
                    _ = isExisting ? try Spool(existing: directory.path) : try directory.open()
                } throws: { error in
                    guard case .unusable(_, let reason) = error as? SpoolError else { return false }
                    return reason.contains("'spoolgate-spool 1'")
                        && reason.contains("'\(format.split(separator: "\n").first ?? "")'")
                }
            }
            #expect(FileManager.default.contents(atPath: directory.file(.incoming, id)) == record)
        }
    }
}
