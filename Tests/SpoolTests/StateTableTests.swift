// One case for each row of the state table in spoolgate-spool(5), after a crash and a power failure.
//
// The page is read, so a row or a case without the other fails.

import Foundation
import SpoolgatePosix
import SpoolgateUploadProtocol
import Testing

@testable import SpoolgateSpool

struct StateRow: CustomTestStringConvertible {
    var state: String
    var word: String
    var content: String
    var afterDeath: String
    var afterPowerCut: String
    var walk: String

    var testDescription: String { state }

    /// The expected state; `byWalk`: after a walk, which leaves some states to the next request.
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

    /// Creates a row's files and checks them.
    private func make(_ row: StateRow, afterPowerCut: Bool) throws -> StateFound {
        let directory = TemporarySpool()
        let maker = try StateMaker(directory)
        let makeCase = try #require(StateMaker.cases[row.state])
        try makeCase(maker)
        if row.state != "in-use" { maker.die() }
        let found = StateFound(row, directory, maker.id, afterPowerCut: afterPowerCut)
        // The maker holds the lock of `in-use`.
        return found.keeping(maker)
    }

    @Test("a walk leaves the state that the page says", arguments: StateRow.all, [false, true])
    func walk(_ row: StateRow, afterPowerCut: Bool) throws {
        try make(row, afterPowerCut: afterPowerCut).checkWalk()
    }

    @Test("locking leaves the state that the page says", arguments: StateRow.all, [false, true])
    func attaching(_ row: StateRow, afterPowerCut: Bool) throws {
        try make(row, afterPowerCut: afterPowerCut).checkAttaching()
    }
}
