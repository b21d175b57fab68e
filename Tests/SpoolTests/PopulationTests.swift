// The limits on uploads, in all and per client, and their update after a removal.

import Foundation
import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateTextFormats
import SpoolgateUploadProtocol
import Testing

@testable import SpoolgateSpool

@Suite("The number of uploads")
struct PopulationTests {
    private func spool(_ directory: TemporarySpool, total: Int? = nil, ofClient: Int? = nil) throws
        -> Spool
    {
        let spool = try directory.open()
        spool.setBounds(UploadBounds(total: total, ofClient: ofClient))
        return spool
    }

    private func bound(_ body: () throws -> Void) -> UploadBound? {
        do { try body() } catch SpoolError.tooMany(_, let bound) { return bound } catch {
            Issue.record(error)
        }
        return nil
    }

    @Test("one client's uploads are limited, and delivered ones do not count")
    func ofClient() throws {
        let directory = TemporarySpool()
        let spool = try spool(directory, ofClient: 2)
        let mine = try (0..<2).map { _ in try spool.create(.sample(owner: "a"), requestRelease: {})
        }
        #expect(
            bound { _ = try spool.create(.sample(owner: "a"), requestRelease: {}) } == .ofClient(2)
        )
        #expect(try spool.summaries().count == 2)
        // Another client's limit is separate.
        #expect(bound { _ = try spool.create(.sample(owner: "b"), requestRelease: {}) } == nil)
        try mine[0].append("x")
        try mine[0].beginAttempt()
        try mine[0].finish(with: .sample)
        let third = try spool.create(.sample(owner: "a"), requestRelease: {})
        #expect(
            bound { _ = try spool.create(.sample(owner: "a"), requestRelease: {}) } == .ofClient(2)
        )
        try third.remove()
        #expect(bound { _ = try spool.create(.sample(owner: "a"), requestRelease: {}) } == nil)
    }

    @Test("all uploads are limited, including those with a stored response")
    func total() throws {
        let directory = TemporarySpool()
        let spool = try spool(directory, total: 2)
        let first = try spool.create(.sample(), requestRelease: {})
        try first.append("x")
        try first.beginAttempt()
        try first.finish(with: .sample)
        _ = try spool.create(.sample(), requestRelease: {})
        #expect(bound { _ = try spool.create(.sample(), requestRelease: {}) } == .total(2))
        try first.remove()
        #expect(bound { _ = try spool.create(.sample(), requestRelease: {}) } == nil)
    }

    @Test("a creation that fails takes no place")
    func failed() throws {
        let directory = TemporarySpool()
        let scripted = ScriptedDisk()
        let spool = try directory.open(scripted.disk)
        spool.setBounds(UploadBounds(total: 1))
        scripted.refuse(.create, errno: SystemError.lost)
        for _ in 0..<3 {
            #expect(throws: SpoolError.self) { try spool.create(.sample(), requestRelease: {}) }
        }
        scripted.allow()
        #expect(bound { _ = try spool.create(.sample(), requestRelease: {}) } == nil)
    }

    @Test("recovery counts the uploads it finds, each with its client")
    func recovery() throws {
        let directory = TemporarySpool()
        let before = try directory.open()
        for _ in 0..<3 { try before.create(.sample(owner: "a"), requestRelease: {}).unlock() }
        let spool = try spool(directory, ofClient: 3)
        _ = spool.recover()
        #expect(
            bound { _ = try spool.create(.sample(owner: "a"), requestRelease: {}) } == .ofClient(3)
        )
        #expect(bound { _ = try spool.create(.sample(owner: "b"), requestRelease: {}) } == nil)
    }

    @Test("this process's removals make room at once")
    func removed() throws {
        let directory = TemporarySpool()
        let spool = try spool(directory, total: 1)
        for _ in 0..<3 {
            let upload = try spool.create(.sample(), requestRelease: {})
            upload.unlock()
            let summary = try #require(try spool.summaries().first)
            #expect(try spool.remove(upload.creation.id, ifUnchangedSince: summary))
        }
    }

    @Test("another process's purge makes room")
    func purged() throws {
        let directory = TemporarySpool()
        let spool = try spool(directory, total: 2)
        for _ in 0..<2 { try spool.create(.sample(), requestRelease: {}).unlock() }
        let purger = try Spool(existing: directory.path)
        for summary in try purger.summaries() {
            #expect(try purger.remove(summary.id, ifUnchangedSince: summary))
        }
        #expect(bound { _ = try spool.create(.sample(), requestRelease: {}) } == nil)
    }

    @Test("a count that misses an upload under creation does not make room for more")
    func pending() throws {
        let directory = TemporarySpool()
        let room = try spool(directory, total: 1).room
        let client = ClientName(owner: "a", address: nil)
        try room.takeUpload(of: client, record: 100)
        room.count { Census() }
        #expect(bound { try room.takeUpload(of: client, record: 100) } == .total(1))
        room.wasMade(client, record: 100)
        room.count { Census() }
        #expect(bound { try room.takeUpload(of: client, record: 100) } == nil)
    }

    /// The processor time in seconds that creations take with unfinished uploads of `clients`.
    private func cost(clients: Int, whileCounting: Bool) throws -> Double {
        let directory = TemporarySpool()
        let spool = try directory.open(quota: 1 << 40)
        spool.setBounds(UploadBounds(total: 1 << 40, ofClient: 10))
        let room = spool.room
        func create(_ number: Int) throws {
            let client = ClientName(owner: ExactText("client \(number)"), address: nil)
            try room.takeUpload(of: client, record: 500)
            room.wasMade(client, record: 500)
        }
        var best = Double.infinity
        func run() throws {
            for number in 0..<clients { try create(number) }
            // The best of several runs excludes the growth of the tables and other work of the machine.
            for _ in 0..<10 {
                let before = ThreadTime.seconds
                for number in 0..<100 { try create(number % clients) }
                best = min(best, ThreadTime.seconds - before)
                for number in 0..<100 {
                    let client = ClientName(
                        owner: ExactText("client \(number % clients)"),
                        address: nil
                    )
                    room.giveBackUpload(of: client, isFinished: false)
                }
            }
        }
        if whileCounting {
            room.count {
                do { try run() } catch { Issue.record(error) }
                return Census()
            }
        } else {
            try run()
        }
        return best
    }

    @Test("a creation costs the same with any number of clients", arguments: [false, true])
    func cost(whileCounting: Bool) throws {
        let few = try cost(clients: 100, whileCounting: whileCounting)
        let many = try cost(clients: 30_000, whileCounting: whileCounting)
        // A copy of the counts of 30,000 clients costs a hundred creations.
        #expect(many < 20 * few, "\(few) s with 100 clients, \(many) s with 30,000")
    }

    @Test("a refused creation reserves nothing")
    func refused() throws {
        let mine = ClientName(owner: "a", address: nil)
        let other = ClientName(owner: "b", address: nil)
        let large = SpoolRoom.freeRecords
        for bounds in [UploadBounds(), UploadBounds(total: 1), UploadBounds(ofClient: 1)] {
            let directory = TemporarySpool()
            let spool = try directory.open(quota: 100)
            spool.setBounds(bounds)
            let room = spool.room
            try room.takeUpload(of: mine, record: large)
            let before = room.figures
            #expect(throws: SpoolError.self) {
                try room.takeUpload(of: bounds.total == nil ? mine : other, record: large)
            }
            let after = room.figures
            #expect((after.uploads, after.unfinished) == (before.uploads, before.unfinished))
            #expect(after.bytes == before.bytes)
        }
    }

    @Test("many concurrent creations do not exceed a limit", .timeLimit(.minutes(10)))
    func together() throws {
        let directory = TemporarySpool()
        let spool = try spool(directory, total: 50)
        let left = Monitor(8)
        for _ in 0..<8 {
            try SpoolgatePosix.Thread.start(name: "creator", stackSize: 1 << 20) {
                for _ in 0..<100 {
                    guard let upload = try? spool.create(.sample(), requestRelease: {}) else {
                        break
                    }
                    upload.unlock()
                }
                left.update { $0 -= 1 }
            }
        }
        #expect(left.wait(until: .after(.seconds(300))) { $0 == 0 ? true : nil } == true)
        #expect(try spool.summaries().count == 50)
    }
}
