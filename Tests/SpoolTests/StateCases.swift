// The cases of the state table: how each state of spoolgate-spool(5) is made.
//
// Invariant: a case leaves exactly the files that its row names.

import Foundation
import HTTPTypes
import Posix
import Testing
import UploadProtocol

@testable import Spool

/// Makes states: with the spool's own calls as far as they lead there, and then by hand.
struct StateMaker {
    let directory: TemporarySpool
    let spool: Spool
    let id: UploadID

    static let content = "ten bytes."

    init(_ directory: TemporarySpool) throws {
        self.directory = directory
        spool = try directory.open()
        id = .random()
    }

    typealias Make = @Sendable (StateMaker) throws -> AnyObject?

    func incoming(promised: Bool, repeatable: Bool = true) throws -> Upload {
        let upload = try spool.create(.sample(id, repeatable: repeatable), requestRelease: {})
        try upload.append(Self.content)
        if promised { try upload.sync() }
        return upload
    }

    func active(promised: Bool, repeatable: Bool = true) throws -> Upload {
        let upload = try incoming(promised: promised, repeatable: repeatable)
        try upload.beginAttempt()
        return upload
    }

    func delivered(promised: Bool) throws {
        let upload = try active(promised: promised)
        try upload.finish(with: .sample)
        upload.unlock()
    }

    /// A whole upload that waits, and of which all was promised.
    func waiting(next: WallTime? = nil) throws -> Upload {
        let upload = try active(promised: true)
        try upload.postpone(reason: "not reached", next: next)
        try upload.sync()
        return upload
    }

    /// Moves the record back, as where the move is missing that a decision was to end with.
    func undoMove(from queue: Queue, to before: Queue) throws {
        try directory.move(id, from: queue, to: before)
    }

    func restoreContent() throws {
        try Data(Self.content.utf8).write(to: URL(filePath: directory.data(id)))
    }

    func editRecord(_ queue: Queue, _ change: (inout Data) -> Void) throws {
        try directory.edit(directory.file(queue, id), change)
    }
}

extension StateMaker {
    /// The cases by the names that the page has for them.
    static let cases = usual.merging(decided) { first, _ in first }

    private static let usual: [String: Make] = [
        "receiving": { maker in
            let upload = try maker.incoming(promised: true)
            try upload.append("more, not promised")
            return nil
        },
        "unpromised": { maker in
            _ = try maker.incoming(promised: false)
            return nil
        },
        "whole": { maker in
            let upload = try maker.incoming(promised: true)
            try upload.postpone(reason: "no free place")
            try maker.directory.move(maker.id, from: .deferred, to: .incoming)
            return nil
        },
        "unnamed": { maker in
            try maker.restoreContent()
            return nil
        },
        "attempt-repeatable": { maker in
            _ = try maker.active(promised: true)
            return nil
        },
        "attempt-once": { maker in
            _ = try maker.active(promised: true, repeatable: false)
            return nil
        },
        "attempt-unpromised": { maker in
            _ = try maker.active(promised: false)
            return nil
        },
        "answered": { maker in
            try maker.delivered(promised: true)
            try maker.restoreContent()
            try maker.directory.move(maker.id, from: .delivered, to: .active)
            return nil
        },
        "waiting": { maker in
            let upload = try maker.active(promised: true)
            try upload.postpone(reason: "not reached")
            return nil
        },
        "waiting-unpromised": { maker in
            let upload = try maker.active(promised: false)
            try upload.postpone(reason: "not reached")
            return nil
        },
        "waiting-untried": { maker in
            let upload = try maker.incoming(promised: true)
            try upload.append("more, not promised")
            try upload.postpone(reason: "no free place")
            return nil
        },
        "waiting-untold": { maker in
            let upload = try maker.incoming(promised: false)
            try upload.postpone(reason: "no free place")
            return nil
        },
        "waiting-cut-back": { maker in
            let upload = try maker.active(promised: false)
            try upload.postpone(reason: "not reached")
            try maker.directory.edit(maker.directory.data(maker.id)) { $0 = Data() }
            return nil
        },
        "held": { maker in
            let upload = try maker.active(promised: false)
            try upload.hold(.indeterminate, reason: "no answer")
            return nil
        },
        "held-unpromised": { maker in
            _ = try maker.active(promised: false)
            try maker.directory.move(maker.id, from: .active, to: .hold)
            return nil
        },
        "done": { maker in
            try maker.delivered(promised: true)
            return nil
        },
        "done-briefly": { maker in
            // The response does not fit, with its content or without it.
            let scripted = ScriptedDisk()
            let spool = try maker.directory.open(scripted.disk)
            let upload = try spool.create(.sample(maker.id), requestRelease: {})
            try upload.append(StateMaker.content)
            try upload.sync()
            try upload.beginAttempt()
            scripted.refuse(.write, errno: 28, times: 2)
            try upload.finish(with: .sample)
            upload.unlock()
            let again = try #require(try spool.lock(maker.id))
            let head = ResponseHead(status: .created, fields: [:])
            #expect(try again.response() == StoredResponse(head: head, content: nil))
            return nil
        },
        "done-with-content": { maker in
            try maker.delivered(promised: true)
            try maker.restoreContent()
            return nil
        },
        "done-torn": { maker in
            try maker.delivered(promised: false)
            try maker.editRecord(.delivered) { $0[$0.count - 30] ^= 1 }
            return nil
        },
        "done-damaged": { maker in
            try maker.delivered(promised: true)
            try maker.editRecord(.delivered) { $0[$0.count - 30] ^= 1 }
            return nil
        },
        "content-lost": { maker in
            _ = try maker.incoming(promised: true)
            try FileManager.default.removeItem(atPath: maker.directory.data(maker.id))
            return nil
        },
        "content-short": { maker in
            _ = try maker.incoming(promised: true)
            try maker.directory.edit(maker.directory.data(maker.id)) { $0.removeLast() }
            return nil
        },
        "content-unfit": { maker in
            let upload = try maker.active(promised: true)
            try upload.postpone(reason: "not reached")
            try maker.directory.edit(maker.directory.data(maker.id)) { $0.append(1) }
            return nil
        },
        "record-empty": { maker in
            _ = try maker.incoming(promised: false)
            try maker.editRecord(.incoming) { $0 = Data() }
            return nil
        },
        "record-torn": { maker in
            _ = try maker.incoming(promised: false)
            try maker.editRecord(.incoming) { $0.resetBytes(in: 1024..<$0.count) }
            return nil
        },
        "record-damaged": { maker in
            _ = try maker.incoming(promised: true)
            try maker.editRecord(.incoming) { $0[1100] ^= 1 }
            return nil
        },
        "record-strange": { maker in
            _ = try maker.incoming(promised: true)
            try maker.editRecord(.incoming) { record in
                record.replaceSubrange(1024..<1043, with: "spoolgate-record 2\n".utf8)
            }
            return nil
        },
        "record-of-another": { maker in
            let upload = try maker.spool.create(.sample(), requestRelease: {})
            let other = upload.creation.id
            try maker.restoreContent()
            try FileManager.default.moveItem(
                atPath: maker.directory.file(.incoming, other),
                toPath: maker.directory.file(.incoming, maker.id)
            )
            return nil
        },
        "record-no-file": { maker in
            _ = try maker.incoming(promised: true)
            try StrangeFile.pipe.replace(
                maker.directory.file(.incoming, maker.id),
                outside: maker.directory.path
            )
            try FileManager.default.removeItem(atPath: "\(maker.directory.path).target")
            return nil
        },
        "set-aside": { maker in
            _ = try maker.incoming(promised: true)
            try maker.directory.move(maker.id, from: .incoming, to: .corrupt)
            return nil
        },
        "in-use": { maker in try maker.incoming(promised: false) },
        "leftover": { maker in
            let path = "\(maker.directory.path)/tmp/leftover"
            try Data("left".utf8).write(to: URL(filePath: path))
            try FileManager.default.setAttributes(
                [.modificationDate: Date(timeIntervalSinceNow: -7200)],
                ofItemAtPath: path
            )
            return nil
        },
    ]

    // What the queue, the gateway and operators decide.
    private static let decided: [String: Make] = [
        "queued": { maker in
            let upload = try maker.incoming(promised: false)
            try upload.postpone(reason: nil, next: .now)
            try upload.sync()
            return nil
        },
        "queued-untold": { maker in
            try maker.incoming(promised: false).postpone(reason: nil, next: .now)
            return nil
        },
        "queued-unmoved": { maker in
            try maker.incoming(promised: true).postpone(reason: nil, next: .now)
            try maker.undoMove(from: .deferred, to: .incoming)
            return nil
        },
        "queued-again": { maker in
            let upload = try maker.active(promised: true, repeatable: false)
            try upload.hold(.indeterminate, reason: "no answer")
            try upload.requeue(at: .now)
            return nil
        },
        "queued-again-unmoved": { maker in
            let upload = try maker.waiting(next: .now)
            try upload.hold(.failed, reason: "refused", response: .sample)
            try upload.requeue(at: .now)
            try maker.undoMove(from: .deferred, to: .hold)
            return nil
        },
        "failed": { maker in
            try maker.waiting(next: .now).hold(.failed, reason: "its time is over")
            return nil
        },
        "failed-answered": { maker in
            try maker.active(promised: true).hold(.failed, reason: "refused", response: .sample)
            return nil
        },
        "failed-unmoved": { maker in
            try maker.active(promised: true).hold(.failed, reason: "refused", response: .sample)
            try maker.undoMove(from: .hold, to: .active)
            return nil
        },
        "failed-waiting": { maker in
            try maker.waiting(next: .now).hold(.failed, reason: "its time is over")
            try maker.undoMove(from: .hold, to: .deferred)
            return nil
        },
        "held-by-operator": { maker in
            try maker.waiting(next: .now).hold(.held, reason: "wait")
            return nil
        },
        "held-unmoved": { maker in
            try maker.waiting(next: .now).hold(.held, reason: "wait")
            try maker.undoMove(from: .hold, to: .deferred)
            return nil
        },
        "held-cut-back": { maker in
            let scripted = ScriptedDisk()
            let spool = try maker.directory.open(scripted.disk)
            let upload = try spool.create(.sample(maker.id, repeatable: false), requestRelease: {})
            try upload.append(StateMaker.content)
            try upload.beginAttempt()
            scripted.refuse(.sync, on: "/data/", errno: 5, times: 1)
            try upload.hold(.indeterminate, reason: "no answer")
            return nil
        },
        "unverified": { maker in
            let upload = try maker.incoming(promised: true)
            try upload.beginUnverified()
            try upload.append("not verified")
            return nil
        },
        "unverified-unpromised": { maker in
            let upload = try maker.incoming(promised: false)
            try upload.beginUnverified()
            try upload.append("not verified")
            return nil
        },
        "refused": { maker in
            try maker.waiting(next: .now).finish(with: .sample)
            try maker.restoreContent()
            try maker.undoMove(from: .delivered, to: .deferred)
            return nil
        },
        "refused-at-once": { maker in
            try maker.incoming(promised: true).finish(with: .sample)
            try maker.restoreContent()
            try maker.undoMove(from: .delivered, to: .incoming)
            return nil
        },
        "refused-came-back": { maker in
            try maker.waiting().finish(with: .sample)
            try maker.undoMove(from: .delivered, to: .deferred)
            return nil
        },
    ]
}
