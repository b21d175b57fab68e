// Content that counts only after verification, and the fields of a completing request.

import Foundation
import HTTPTypes
import SpoolgatePosix
import SpoolgateUploadProtocol
import Testing

@testable import SpoolgateSpool

@Suite("Unverified content")
struct UnverifiedTests {
    private let directory = TemporarySpool()
    private let scripted = ScriptedDisk()
    private let spool: Spool
    private let creation = UploadCreation.sample()

    init() throws { spool = try directory.open(scripted.disk) }

    /// Durable content `known`, then unverified content.
    private func unverified() throws -> Upload {
        let upload = try spool.create(creation, requestRelease: {})
        try upload.append("known")
        try upload.sync()
        try upload.beginUnverified()
        try upload.append(", perhaps")
        return upload
    }

    private func again() throws -> Upload { try #require(try spool.lock(creation.id)) }

    @Test("verified content counts, discarded content does not")
    func ends() throws {
        let upload = try unverified()
        #expect((upload.state.offset, upload.durableOffset) == (14, 5))
        try upload.discardUnverified()
        #expect((upload.state.offset, upload.durableOffset) == (5, 5))
        try upload.beginUnverified()
        try upload.append(", truly")
        try upload.verify()
        upload.unlock()
        #expect(try again().state.offset == 12)
        #expect(try again().content() == Array("known, truly".utf8))
    }

    @Test("after a crash the offset is the old one, and later content is not truncated with it")
    func death() throws {
        for hasPowerCut in [false, true] {
            let upload = try unverified()
            upload.unlock()
            if hasPowerCut { directory.cutPower() }
            let found = try #require(try directory.open().lock(creation.id))
            #expect(found.state.offset == 5)
            try found.append(", later")
            found.unlock()
            let later = try #require(try directory.open().lock(creation.id))
            #expect(later.state.offset == 12)
            try later.remove()
        }
    }

    @Test("it is not promised while it is unverified, and earlier content stays promised")
    func settling() throws {
        let upload = try unverified()
        scripted.forget()
        try upload.sync()
        upload.unlock()
        directory.cutPower()
        #expect(try directory.open().lock(creation.id)?.state.offset == 5)
    }

    @Test("it is invisible from outside")
    func listing() throws {
        let upload = try unverified()
        #expect(try spool.look(at: creation.id)?.offset == 5)
        withExtendedLifetime(upload) {}
    }

    @Test(
        "content that the disk kept after a discard is discarded by the next lock",
        arguments: [Disk.Call.truncate, .write]
    )
    func refusedDiscard(call: Disk.Call) throws {
        let upload = try unverified()
        scripted.refuse(call, errno: SystemError.lost)
        #expect(throws: SpoolError.self) { try upload.discardUnverified() }
        upload.unlock()
        scripted.allow()
        let found = try again()
        #expect(found.state.offset == 5)
        try found.append(", later")
        found.unlock()
        #expect(try again().content() == Array("known, later".utf8))
    }

    @Test("content that cannot be made durable is truncated to the durable part, verified or not")
    func failedSync() throws {
        let upload = try spool.create(creation, requestRelease: {})
        try upload.append("known")
        try upload.beginUnverified()
        try upload.append(", perhaps")
        scripted.refuse(.sync, on: ".data", errno: 5, times: 1)
        #expect(throws: SpoolError.self) { try upload.sync() }
        #expect((upload.state.offset, upload.durableOffset) == (0, 0))
        upload.unlock()
        let found = try again()
        try found.append("all of it again")
        found.unlock()
        #expect(try again().state.offset == 15)
    }
}

@Suite("The completing request's fields")
struct CompletionTests {
    private let directory = TemporarySpool()
    private let scripted = ScriptedDisk()
    private let spool: Spool
    private let creation = UploadCreation.sample()

    init() throws { spool = try directory.open(scripted.disk) }

    private func fields(_ size: Int, _ letter: String = "a") -> HTTPFields {
        [.authorization: String(repeating: letter, count: size)]
    }

    private func again() throws -> Upload { try #require(try spool.lock(creation.id)) }

    @Test("they read back after replacements of any length, and the record stays small")
    func lengths() throws {
        let upload = try spool.create(creation, requestRelease: {})
        #expect(try upload.completion() == nil)
        try upload.append("content")
        upload.unlock()
        let before = try size()
        for size in [10, 500, 20, 2000, 500, 10, 2000, 1, 2000, 30, 1999, 2000] {
            let upload = try again()
            try upload.keepCompletion(fields(size))
            upload.unlock()
            #expect(try again().completion() == fields(size))
        }
        // Each has its own blocks, because the content is durable.
        #expect(try size() - before < 4 * 4096)
    }

    private func size() throws -> Int {
        try #require(
            FileManager.default.contents(atPath: directory.record(creation.id))
        ).count
    }

    @Test("storing the same fields again costs nothing")
    func same() throws {
        let upload = try spool.create(creation, requestRelease: {})
        try upload.keepCompletion(fields(10))
        scripted.forget()
        try upload.keepCompletion(fields(10))
        #expect(scripted.calls.isEmpty)
    }

    @Test("a crash before new fields count leaves the old ones", arguments: [1, 2, 3])
    func death(number: Int) throws {
        let upload = try spool.create(creation, requestRelease: {})
        try upload.append("content")
        try upload.keepCompletion(fields(100))
        try upload.postpone(reason: nil, .queue(.now))
        try upload.sync()
        scripted.die(after: number - 1)
        #expect(throws: SpoolError.self) { try upload.keepCompletion(fields(40, "b")) }
        upload.unlock()
        scripted.allow()
        #expect(try again().completion() == fields(100))
    }

    @Test("damaged fields are not used")
    func damage() throws {
        let upload = try spool.create(creation, requestRelease: {})
        try upload.keepCompletion(fields(100))
        upload.unlock()
        try directory.edit(directory.record(creation.id)) { $0[$0.count - 50] ^= 1 }
        #expect(try again().completion() == nil)
        try directory.edit(directory.record(creation.id)) { $0.removeLast(20) }
        #expect(try again().completion() == nil)
    }

    @Test("a stored response does not replace them")
    func response() throws {
        let upload = try spool.create(creation, requestRelease: {})
        try upload.append("content")
        try upload.keepCompletion(fields(100))
        try upload.beginAttempt()
        try upload.finish(with: .sample)
        upload.unlock()
        let found = try again()
        #expect(try found.response() == .sample)
        #expect(try found.completion() == fields(100))
    }
}
