// One case for each row of the state table in spoolgate-spool(5), for the death of a process and for
// a power cut.
//
// The page is read here, so a row without a case and a case without a row both fail.

import Foundation
import SpoolgatePosix
import SpoolgateUploadProtocol
import Testing

@testable import SpoolgateSpool

/// One row of the table.
struct StateRow: CustomTestStringConvertible {
    var state: String
    var word: String
    var content: String
    var afterDeath: String
    var afterPowerCut: String
    var walk: String

    var testDescription: String { state }

    /// What becomes of it; by a walk, which leaves some to whoever comes.
    func outcome(afterPowerCut isPowerCut: Bool, byWalk: Bool) -> String {
        let isLeft = byWalk && walk != "both" && !(walk == "power" && isPowerCut)
        return isLeft ? "\\-" : isPowerCut ? afterPowerCut : afterDeath
    }

    static let page = URL(filePath: #filePath).deletingLastPathComponent()
        .deletingLastPathComponent().deletingLastPathComponent()
        .appending(path: "deploy/man/spoolgate-spool.5")

    static let all: [StateRow] = {
        let text = (try? String(contentsOf: page, encoding: .utf8)) ?? ""
        let section = text.components(separatedBy: ".Sh STATES").last ?? ""
        return section.split(separator: "\n").compactMap { line in
            guard line.hasPrefix(".It ") else { return nil }
            let cells = line.dropFirst(4).components(separatedBy: " Ta ")
            guard cells.count == 6, !cells[0].hasPrefix("Em") else { return nil }
            return StateRow(
                state: cells[0],
                word: cells[1],
                content: cells[2],
                afterDeath: cells[3],
                afterPowerCut: cells[4],
                walk: cells[5]
            )
        }
    }()
}

@Suite("The state table")
struct StateTableTests {
    @Test("every row of the page has a case here, and every case a row")
    func complete() {
        #expect(StateRow.all.count >= 40)
        #expect(Set(StateRow.all.map(\.state)) == Set(StateMaker.cases.keys))
        #expect(StateRow.all.allSatisfy { ["both", "power", "\\-"].contains($0.walk) })
    }

    /// Makes the files of a row, and looks whether they are those that it names.
    private func make(
        _ row: StateRow,
        afterPowerCut: Bool
    ) throws -> (maker: StateMaker, content: [UInt8]?) {
        let directory = TemporarySpool()
        let maker = try StateMaker(directory)
        let makeCase = try #require(StateMaker.cases[row.state])
        try makeCase(maker)
        if row.state != "in-use" { maker.die() }
        #expect(word(directory, maker.id) == row.word, "the case is not what its row says")
        let isThere = FileManager.default.fileExists(atPath: directory.data(maker.id))
        #expect(isThere == (row.content == "yes"), "the case is not what its row says")
        if afterPowerCut { directory.cutPower() }
        return (maker, directory.content(of: maker.id))
    }

    /// The state's word in an upload's record; `\-` where none can be read.
    private func word(_ directory: TemporarySpool, _ id: UploadID) -> String {
        let record = "\(directory.path)/uploads/\(id.description.prefix(1))/\(id)"
        let type = try? FileManager.default.attributesOfItem(atPath: record)[.type]
        switch type as? FileAttributeType {
        case nil: return "none"
        case .typeRegular?: return directory.state(of: id)?.queue.rawValue ?? "\\-"
        default: return "\\-"
        }
    }

    private func check(
        _ outcome: String,
        of row: StateRow,
        _ maker: StateMaker,
        from before: [UInt8]?
    ) throws {
        let (directory, id) = (maker.directory, maker.id)
        let (word, content) = (word(directory, id), directory.content(of: id))
        let kept = Array(StateMaker.content.utf8)
        switch outcome {
        case "\\-": #expect((word, content) == (row.word, before))
        case "cut back": #expect((word, content) == (row.word, kept))
        case "incoming": #expect((word, content) == (outcome, before.map { _ in kept }))
        case "emptied": #expect((word, content) == ("delivered", nil))
        case "removed":
            #expect((word, content) == ("none", nil))
            let left = try FileManager.default.contentsOfDirectory(atPath: "\(directory.path)/tmp")
            #expect(left.isEmpty)
        case "corrupt":
            #expect((word, content) == ("none", before))
            #expect(directory.record(id).contains("/corrupt/"))
        default: #expect((word, content) == (outcome, before))
        }
    }

    @Test("a walk leaves what the page says", arguments: StateRow.all, [false, true])
    func walk(_ row: StateRow, afterPowerCut: Bool) throws {
        let (maker, before) = try make(row, afterPowerCut: afterPowerCut)
        let (directory, id) = (maker.directory, maker.id)
        let spool = try directory.open()

        let recovery = spool.recover()

        let outcome = row.outcome(afterPowerCut: afterPowerCut, byWalk: true)
        try check(outcome, of: row, maker, from: before)
        #expect(recovery.corrupt == (outcome == "corrupt" ? 1 : 0))
        if row.word != "\\-", let time = directory.state(of: id)?.queueTime {
            #expect(directory.queueTimes(of: id).contains(time))
        }
        // Nothing is left to do for a second one.
        let second = try directory.open().recover()
        #expect(second == Recovery(uploads: second.uploads, skipped: second.skipped))
        #expect(second.skipped == (row.state == "in-use" && afterPowerCut ? [id] : []))
        // What has a name that it does not need loses it when the queue comes to it.
        let needed = directory.state(of: id)?.queueTime
        try spool.forEachWaiting({ _, _ in true }, { _ in })
        #expect(directory.queueTimes(of: id).allSatisfy { $0 == needed })
    }

    @Test("locking leaves what the page says", arguments: StateRow.all, [false, true])
    func attaching(_ row: StateRow, afterPowerCut: Bool) throws {
        let (maker, before) = try make(row, afterPowerCut: afterPowerCut)
        let (directory, id) = (maker.directory, maker.id)
        let spool = try directory.open()
        let outcome = row.outcome(afterPowerCut: afterPowerCut, byWalk: false)
        switch (row.state, outcome) {
        case ("in-use", _):
            #expect(throws: SpoolError.busy(id)) { try spool.lock(id, seconds: 0) }
        case ("no-record", _), ("leftover", _), ("set-aside", _):
            return #expect(try spool.lock(id) == nil)
        case ("record-newer", _), ("response-newer", _):
            #expect {
                // Of a stored response it is found when a client asks for it, or after a power cut.
                _ = try spool.lock(id)?.response()
            } throws: { error in
                guard case .newer(id, _) = error as? SpoolError else { return false }
                return true
            }
        case (_, "removed"): #expect(try spool.lock(id) == nil)
        case (_, "corrupt"): #expect(throws: SpoolError.self) { try spool.lock(id) }
        default:
            let upload = try #require(try spool.lock(id))
            try check(outcome, of: row, maker, from: before)
            let queue = try #require(directory.queue(of: id))
            #expect(upload.state.phase == queue.phase(upload.holdCause))
            if afterPowerCut, let time = directory.state(of: id)?.queueTime {
                #expect(directory.queueTimes(of: id).contains(time))
            }
            guard ["done-torn", "done-damaged"].contains(row.state) else { return }
            #expect(throws: SpoolError.self) { try upload.response() }
            return try check("corrupt", of: row, maker, from: before)
        }
        try check(outcome, of: row, maker, from: before)
    }
}
