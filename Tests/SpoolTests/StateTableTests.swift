// One case for each row of the state table in spoolgate-spool(5), for the death of a process and for
// a power cut.
//
// The page is read here, so a row without a case and a case without a row both fail.

import Foundation
import HTTPTypes
import Posix
import Testing
import UploadProtocol

@testable import Spool

/// One row of the table.
struct StateRow: CustomTestStringConvertible {
    var state: String
    var record: String
    var data: String
    var afterDeath: String
    var afterPowerCut: String

    var testDescription: String { state }

    static let page = URL(filePath: #filePath).deletingLastPathComponent()
        .deletingLastPathComponent().deletingLastPathComponent()
        .appending(path: "deploy/man/spoolgate-spool.5")

    static let all: [StateRow] = {
        let text = (try? String(contentsOf: page, encoding: .utf8)) ?? ""
        let section = text.components(separatedBy: ".Sh STATES").last ?? ""
        return section.split(separator: "\n").compactMap { line in
            guard line.hasPrefix(".It ") else { return nil }
            let cells = line.dropFirst(4).components(separatedBy: " Ta ")
            guard cells.count == 5, !cells[0].hasPrefix("Em") else { return nil }
            return StateRow(
                state: cells[0],
                record: cells[1],
                data: cells[2],
                afterDeath: cells[3],
                afterPowerCut: cells[4]
            )
        }
    }()
}

/// Makes states: with the spool's own calls as far as they lead there, and then by hand.
private struct StateMaker {
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
        let upload = try spool.create(.sample(id, repeatable: repeatable), release: {})
        try upload.append(Self.content)
        if promised { try upload.settle() }
        return upload
    }

    func active(promised: Bool, repeatable: Bool = true) throws -> Upload {
        let upload = try incoming(promised: promised, repeatable: repeatable)
        try upload.beginAttempt()
        return upload
    }

    func delivered(promised: Bool) throws {
        let upload = try active(promised: promised)
        try upload.delivered(.sample)
        upload.detach()
    }

    /// A whole upload that waits, and of which all was promised.
    func waiting(next: WallTime? = nil) throws -> Upload {
        let upload = try active(promised: true)
        try upload.deferred(reason: "not reached", next: next)
        try upload.settle()
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

private let makers: [String: StateMaker.Make] = [
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
        try upload.deferred(reason: "no free place")
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
        try upload.deferred(reason: "not reached")
        return nil
    },
    "waiting-unpromised": { maker in
        let upload = try maker.active(promised: false)
        try upload.deferred(reason: "not reached")
        return nil
    },
    "waiting-untried": { maker in
        let upload = try maker.incoming(promised: true)
        try upload.append("more, not promised")
        try upload.deferred(reason: "no free place")
        return nil
    },
    "waiting-untold": { maker in
        let upload = try maker.incoming(promised: false)
        try upload.deferred(reason: "no free place")
        return nil
    },
    "waiting-cut-back": { maker in
        let upload = try maker.active(promised: false)
        try upload.deferred(reason: "not reached")
        try maker.directory.edit(maker.directory.data(maker.id)) { $0 = Data() }
        return nil
    },
    "held": { maker in
        let upload = try maker.active(promised: false)
        try upload.indeterminate(reason: "no answer")
        return nil
    },
    "held-unpromised": { maker in
        _ = try maker.active(promised: false)
        try maker.directory.move(maker.id, from: .active, to: .hold)
        return nil
    },
    "queued": { maker in
        let upload = try maker.incoming(promised: false)
        try upload.deferred(reason: nil, next: .now)
        try upload.settle()
        return nil
    },
    "queued-untold": { maker in
        try maker.incoming(promised: false).deferred(reason: nil, next: .now)
        return nil
    },
    "queued-unmoved": { maker in
        try maker.incoming(promised: true).deferred(reason: nil, next: .now)
        try maker.undoMove(from: .deferred, to: .incoming)
        return nil
    },
    "queued-again": { maker in
        let upload = try maker.active(promised: true, repeatable: false)
        try upload.indeterminate(reason: "no answer")
        try upload.requeue(at: .now)
        return nil
    },
    "queued-again-unmoved": { maker in
        let upload = try maker.waiting(next: .now)
        try upload.failed(reason: "refused", response: .sample)
        try upload.requeue(at: .now)
        try maker.undoMove(from: .deferred, to: .hold)
        return nil
    },
    "failed": { maker in
        try maker.waiting(next: .now).failed(reason: "its time is over")
        return nil
    },
    "failed-answered": { maker in
        try maker.active(promised: true).failed(reason: "refused", response: .sample)
        return nil
    },
    "failed-unmoved": { maker in
        try maker.active(promised: true).failed(reason: "refused", response: .sample)
        try maker.undoMove(from: .hold, to: .active)
        return nil
    },
    "failed-waiting": { maker in
        try maker.waiting(next: .now).failed(reason: "its time is over")
        try maker.undoMove(from: .hold, to: .deferred)
        return nil
    },
    "held-by-operator": { maker in
        try maker.waiting(next: .now).held(reason: "wait")
        return nil
    },
    "held-unmoved": { maker in
        try maker.waiting(next: .now).held(reason: "wait")
        try maker.undoMove(from: .hold, to: .deferred)
        return nil
    },
    "held-cut-back": { maker in
        let scripted = ScriptedDisk()
        let spool = try maker.directory.open(scripted.disk)
        let upload = try spool.create(.sample(maker.id, repeatable: false), release: {})
        try upload.append(StateMaker.content)
        try upload.beginAttempt()
        scripted.refuse(.sync, on: "/data/", errno: 5, times: 1)
        try upload.indeterminate(reason: "no answer")
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
        try maker.waiting(next: .now).delivered(.sample)
        try maker.restoreContent()
        try maker.undoMove(from: .delivered, to: .deferred)
        return nil
    },
    "refused-at-once": { maker in
        try maker.incoming(promised: true).delivered(.sample)
        try maker.restoreContent()
        try maker.undoMove(from: .delivered, to: .incoming)
        return nil
    },
    "refused-came-back": { maker in
        try maker.waiting().delivered(.sample)
        try maker.undoMove(from: .delivered, to: .deferred)
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
        let upload = try spool.create(.sample(maker.id), release: {})
        try upload.append(StateMaker.content)
        try upload.settle()
        try upload.beginAttempt()
        scripted.refuse(.write, errno: 28, times: 2)
        try upload.delivered(.sample)
        upload.detach()
        let again = try #require(try spool.attach(maker.id))
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
        try upload.deferred(reason: "not reached")
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
        let upload = try maker.spool.create(.sample(), release: {})
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

@Suite("The state table")
struct StateTableTests {
    @Test("every row of the page has a case here, and every case a row")
    func complete() {
        #expect(StateRow.all.count >= 20)
        #expect(Set(StateRow.all.map(\.state)) == Set(makers.keys))
    }

    @Test(
        "recovery leaves what the page says",
        arguments: StateRow.all,
        [false, true]
    )
    func row(_ row: StateRow, afterPowerCut: Bool) throws {
        let directory = TemporarySpool()
        let maker = try StateMaker(directory)
        let make = try #require(makers[row.state])
        let held = try make(maker)
        let id = maker.id
        if let queue = Queue(rawValue: row.record) {
            #expect(directory.queues(of: id) == [queue], "the case is not what its row says")
        }
        #expect((directory.content(of: id) != nil) == (row.data == "yes"))
        let before = directory.content(of: id)
        if afterPowerCut { try directory.cutPower() }

        let recovery = try directory.open().recover()

        let expected = afterPowerCut ? row.afterPowerCut : row.afterDeath
        switch expected {
        case "\\-":
            #expect(directory.queues(of: id).map(\.rawValue) == [row.record])
            #expect(directory.content(of: id) == before)
        case "cut back":
            #expect(directory.queues(of: id).map(\.rawValue) == [row.record])
            #expect(directory.content(of: id) == Array(StateMaker.content.utf8))
            #expect(recovery.cutBack == 1)
        case "removed":
            #expect(directory.queues(of: id).isEmpty)
            #expect(directory.content(of: id) == nil)
            let left = try FileManager.default.contentsOfDirectory(atPath: "\(directory.path)/tmp")
            #expect(left.isEmpty)
        default:
            #expect(directory.queues(of: id).map(\.rawValue) == [expected])
            #expect(
                (directory.content(of: id) == nil) == (before == nil || expected == "delivered")
            )
            #expect(recovery.corrupt == (expected == "corrupt" ? 1 : 0))
        }
        // Nothing is left to do for a second recovery.
        let second = try directory.open().recover()
        #expect(second == Recovery(uploads: second.uploads))
        withExtendedLifetime(held) {}
    }

    @Test("attaching gives what recovery would have left", arguments: StateRow.all)
    func attaching(_ row: StateRow) throws {
        let directory = TemporarySpool()
        let maker = try StateMaker(directory)
        let make = try #require(makers[row.state])
        let held = try make(maker)
        let spool = try directory.open()
        switch (row.state, row.afterDeath) {
        case ("in-use", _):
            #expect(throws: SpoolError.busy(maker.id)) { try spool.attach(maker.id, seconds: 0) }
        case ("unnamed", _), ("leftover", _), ("content-lost", _), ("set-aside", _),
            ("refused-came-back", _):
            #expect(try spool.attach(maker.id) == nil)
        case (_, "corrupt"):
            #expect(throws: SpoolError.self) { try spool.attach(maker.id) }
            #expect(directory.queues(of: maker.id) == [.corrupt])
        case (_, let left):
            let upload = try #require(try spool.attach(maker.id))
            let stays = ["\\-", "cut back"].contains(left)
            let queue = try #require(Queue(rawValue: stays ? row.record : left))
            #expect(upload.state.phase == queue.phase(upload.holdCause))
            #expect(directory.queues(of: maker.id) == [queue])
            if ["done-torn", "done-damaged"].contains(row.state) {
                #expect(throws: SpoolError.self) { try upload.response() }
                #expect(directory.queues(of: maker.id) == [.corrupt])
            }
        }
        withExtendedLifetime(held) {}
    }
}
