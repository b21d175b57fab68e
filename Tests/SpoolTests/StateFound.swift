// The files of a state of spoolgate-spool(5), from this build or a stored spool of another, and their recovery.

import Foundation
import SpoolgatePosix
import SpoolgateUploadProtocol
import Testing

@testable import SpoolgateSpool

/// An upload in a state of the table, alone in its spool.
struct StateFound {
    private let row: StateRow
    private let directory: TemporarySpool
    private let id: UploadID
    private let isAfterPowerCut: Bool
    private let before: [UInt8]?
    private var kept: AnyObject?

    /// Checks the files against the row, then cuts the power if `afterPowerCut`.
    init(_ row: StateRow, _ directory: TemporarySpool, _ id: UploadID, afterPowerCut: Bool) {
        (self.row, self.directory, self.id) = (row, directory, id)
        isAfterPowerCut = afterPowerCut
        let isThere = FileManager.default.fileExists(atPath: directory.data(id))
        #expect(isThere == (row.content == "yes"), "the case differs from its row")
        before = directory.content(of: id)
        #expect(word == row.word, "the case differs from its row")
        if afterPowerCut { directory.cutPower() }
    }

    /// The same, with an object that lives as long.
    func keeping(_ object: AnyObject) -> StateFound {
        var found = self
        found.kept = object
        return found
    }

    /// The state in the record; `\-` if it cannot be read.
    private var word: String {
        let record = "\(directory.path)/uploads/\(id.description.prefix(1))/\(id)"
        let type = try? FileManager.default.attributesOfItem(atPath: record)[.type]
        switch type as? FileAttributeType {
        case nil: return "none"
        case .typeRegular?: return directory.state(of: id)?.queue.rawValue ?? "\\-"
        default: return "\\-"
        }
    }

    private func check(_ outcome: String) throws {
        let (word, content) = (word, directory.content(of: id))
        let kept = Array(StateMaker.content.utf8)
        switch outcome {
        case "\\-": #expect((word, content) == (row.word, before), "\(row.state)")
        case "cut back": #expect((word, content) == (row.word, kept), "\(row.state)")
        case "incoming":
            #expect((word, content) == (outcome, before.map { _ in kept }), "\(row.state)")
        case "emptied": #expect((word, content) == ("delivered", nil), "\(row.state)")
        case "removed":
            #expect((word, content) == ("none", nil), "\(row.state)")
            let left = try FileManager.default.contentsOfDirectory(atPath: "\(directory.path)/tmp")
            #expect(left.isEmpty, "\(row.state)")
        case "corrupt":
            #expect((word, content) == ("none", before), "\(row.state)")
            let moved = [directory.record(id), directory.data(id)]
            #expect(moved.contains { $0.contains("/corrupt/") }, "\(row.state)")
        default: #expect((word, content) == (outcome, before), "\(row.state)")
        }
    }

    /// Runs a daemon's walk twice, then the queue.
    func checkWalk() throws {
        let spool = try directory.open()

        let recovery = spool.recover()

        let outcome = row.outcome(afterPowerCut: isAfterPowerCut, byWalk: true)
        try check(outcome)
        #expect(recovery.corrupt == (outcome == "corrupt" ? 1 : 0), "\(row.state)")
        if row.word != "\\-", let time = directory.state(of: id)?.queueTime {
            #expect(directory.queueTimes(of: id).contains(time), "\(row.state)")
        }
        #expect(!FileManager.default.fileExists(atPath: directory.removal(id)), "\(row.state)")
        // The second one finds nothing to do.
        let second = try directory.open().recover()
        #expect(second == Recovery(uploads: second.uploads, skipped: second.skipped))
        let isInUse = row.state == "in-use" && isAfterPowerCut
        #expect(second.skipped == (isInUse ? [id] : []), "\(row.state)")
        // A queue run removes unneeded names.
        let needed = directory.state(of: id)?.queueTime
        try spool.forEachWaiting({ _, _ in true }, { _ in })
        #expect(directory.queueTimes(of: id).allSatisfy { $0 == needed }, "\(row.state)")
    }

    func checkAttaching() throws {
        let spool = try directory.open()
        let outcome = row.outcome(afterPowerCut: isAfterPowerCut, byWalk: false)
        switch (row.state, outcome) {
        case ("in-use", _):
            #expect(throws: SpoolError.busy(id)) { try spool.lock(id, seconds: 0) }
        case ("no-record", _), ("removed-content", _), ("removed-name", _), ("leftover", _),
            ("set-aside", _), ("set-aside-content", _):
            return #expect(try spool.lock(id) == nil)
        case ("record-newer", _), ("response-newer", _):
            #expect {
                // The version of a stored response is read only for a request, or after a power failure.
                _ = try spool.lock(id)?.response()
            } throws: { error in
                guard case .newer(id, _) = error as? SpoolError else { return false }
                return true
            }
        case (_, "removed"): #expect(try spool.lock(id) == nil)
        case (_, "corrupt"): #expect(throws: SpoolError.self) { try spool.lock(id) }
        default:
            let upload = try #require(try spool.lock(id))
            try check(outcome)
            let queue = try #require(directory.queue(of: id))
            #expect(upload.state.phase == queue.phase(upload.holdCause))
            if isAfterPowerCut, let time = directory.state(of: id)?.queueTime {
                #expect(directory.queueTimes(of: id).contains(time))
            }
            guard ["done-torn", "done-damaged"].contains(row.state) else { return }
            #expect(throws: SpoolError.self) { try upload.response() }
            return try check("corrupt")
        }
        try check(outcome)
    }
}
