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

@Suite("The state table")
struct StateTableTests {
    @Test("every row of the page has a case here, and every case a row")
    func complete() {
        #expect(StateRow.all.count >= 20)
        #expect(Set(StateRow.all.map(\.state)) == Set(StateMaker.cases.keys))
    }

    @Test(
        "recovery leaves what the page says",
        arguments: StateRow.all,
        [false, true]
    )
    func row(_ row: StateRow, afterPowerCut: Bool) throws {
        let directory = TemporarySpool()
        let maker = try StateMaker(directory)
        let make = try #require(StateMaker.cases[row.state])
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

    @Test("locking gives what recovery would have left", arguments: StateRow.all)
    func attaching(_ row: StateRow) throws {
        let directory = TemporarySpool()
        let maker = try StateMaker(directory)
        let make = try #require(StateMaker.cases[row.state])
        let held = try make(maker)
        let spool = try directory.open()
        switch (row.state, row.afterDeath) {
        case ("in-use", _):
            #expect(throws: SpoolError.busy(maker.id)) { try spool.lock(maker.id, seconds: 0) }
        case ("unnamed", _), ("leftover", _), ("content-lost", _), ("set-aside", _),
            ("refused-came-back", _):
            #expect(try spool.lock(maker.id) == nil)
        case (_, "corrupt"):
            #expect(throws: SpoolError.self) { try spool.lock(maker.id) }
            #expect(directory.queues(of: maker.id) == [.corrupt])
        case (_, let left):
            let upload = try #require(try spool.lock(maker.id))
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
