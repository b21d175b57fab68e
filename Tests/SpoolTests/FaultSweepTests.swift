// The sweep: one upload's whole life, with a fault at call 1, 2, 3 … until none is reached any more.
//
// After each fault the client and, where the process or the power went, recovery do what they would
// do, and the promises are compared with the files.

import Foundation
import Posix
import Testing
import UploadProtocol

@testable import Spool

/// How an upload goes while nothing fails.
struct Course: Sendable, CustomTestStringConvertible {
    /// All in one request, whose client hears of the offset only while the upstream works; else cut
    /// twice, and the offset asked for.
    var isInOneGo: Bool
    var isRepeatable: Bool

    var testDescription: String {
        "\(isInOneGo ? "in one go" : "cut"), \(isRepeatable ? "repeatable" : "once")"
    }

    static let all = [true, false].flatMap { isInOneGo in
        [true, false].map { Course(isInOneGo: isInOneGo, isRepeatable: $0) }
    }
}

/// What a client and an upstream know of one upload.
private struct Witness {
    var id = FaultyDisk.identity()
    var course: Course
    /// The offset the client was told last; nil: none.
    var told: Int64?
    /// Whether the client has seen that the upload exists.
    var isCreated = false
    /// How often the upstream got the whole content.
    var deliveries = 0
    /// Whether the upstream's response was stored.
    var isStored = false

    static let parts = ["the first part, ", "the second part, ", "and the end"]
    static let whole = parts.joined()

    /// Does what is left to do of the upload's life.
    mutating func live(in spool: Spool) throws(SpoolError) {
        if !isCreated {
            let creation = UploadCreation.sample(id, repeatable: course.isRepeatable)
            let upload = try spool.create(creation, release: {})
            defer { upload.detach() }
            isCreated = true
            try upload.append(Self.parts[0])
            if course.isInOneGo {
                try receive(upload, upTo: Self.whole.utf8.count)
                return try deliver(upload)
            }
        }
        try promise(in: spool)
        guard let upload = try spool.attach(id) else { return }
        defer { upload.detach() }
        try receive(upload, upTo: Self.parts[0].utf8.count + Self.parts[1].utf8.count)
        try upload.settle()
        told = upload.state.offset
        try receive(upload, upTo: Self.whole.utf8.count)
        try deliver(upload)
    }

    private mutating func promise(in spool: Spool) throws(SpoolError) {
        guard let upload = try spool.attach(id) else { return }
        defer { upload.detach() }
        try upload.settle()
        told = upload.state.offset
    }

    private func receive(_ upload: Upload, upTo offset: Int) throws(SpoolError) {
        guard upload.state.phase == .receiving, upload.state.offset < offset else { return }
        let rest = Self.whole.utf8.prefix(offset).dropFirst(Int(upload.state.offset))
        let bytes = Array(rest)
        try upload.append(bytes.span.bytes)
    }

    private mutating func deliver(_ upload: Upload) throws(SpoolError) {
        switch upload.state.phase {
        case .receiving:
            if upload.state.length == nil { try upload.setLength(Int64(Self.whole.utf8.count)) }
        case .deferred: break
        case .delivering, .delivered, .indeterminate: return
        }
        try upload.beginAttempt()
        #expect(throws: Never.self) { try #expect(upload.content() == Array(Self.whole.utf8)) }
        deliveries += 1
        if course.isInOneGo {
            do throws(SpoolError) {
                try upload.settle()
                told = upload.state.offset
            } catch {
                // The client is told nothing, and the delivery goes on.
            }
        }
        try upload.delivered(.sample)
        isStored = true
    }

    /// Compares what was promised with what is there.
    func check(_ directory: TemporarySpool, afterPowerCut: Bool) throws {
        let queues = directory.queues(of: id)
        #expect(queues.count <= 1, "in two queues")
        #expect(queues != [.corrupt], "set aside")
        if told != nil || isCreated && !afterPowerCut {
            #expect(queues.count == 1, "a promised upload is gone")
        }
        if let content = directory.content(of: id) {
            #expect(Self.whole.utf8.starts(with: content), "other bytes than were sent")
            if let told { #expect(content.count >= Int(told), "a promised offset is lost") }
        } else {
            #expect(queues.isEmpty || queues == [.delivered], "the content is gone")
        }
        if isStored, told != nil { #expect(queues == [.delivered], "the verdict is lost") }
        if deliveries > 0, !course.isRepeatable {
            #expect(
                queues.isEmpty || [[.hold], [.delivered], [.active]].contains(queues),
                "it can be delivered twice"
            )
        }
    }
}

@Suite("The fault sweep")
struct FaultSweepTests {
    @Test(
        "no fault at any call breaks a promise",
        arguments: FaultyDisk.Fault.allCases,
        Course.all
    )
    func sweep(fault: FaultyDisk.Fault, course: Course) throws {
        let directory = TemporarySpool()
        var number = 0
        while true {
            number += 1
            let faulty = FaultyDisk(fault, at: number, in: directory)
            var witness = Witness(course: course)
            var spool: Spool? = try directory.open(faulty.disk)
            faulty.begin()
            do throws(SpoolError) {
                if let spool { try witness.live(in: spool) }
                guard faulty.wasReached else { break }
            } catch {
                if case .corrupt = error { Issue.record("\(fault) at call \(number): \(error)") }
            }
            if fault.isPowerCut { try faulty.cutPower(directory) }
            if fault.endsProcess {
                spool = try directory.open()
                _ = try spool?.recover()
            }
            try witness.check(directory, afterPowerCut: fault.isPowerCut)
            // The client comes back, and everything works again.
            if let spool { try finish(&witness, spool, directory, afterPowerCut: fault.isPowerCut) }
            for summary in try directory.open().summaries() {
                #expect(try directory.open().remove(summary.id, ifUnchangedSince: summary))
            }
        }
        #expect(number > (course.isInOneGo ? 15 : 20), "the sweep ended after \(number) calls")
    }

    private func finish(
        _ witness: inout Witness,
        _ spool: Spool,
        _ directory: TemporarySpool,
        afterPowerCut: Bool
    ) throws {
        if directory.queues(of: witness.id).isEmpty {
            // Nothing was promised: the client begins again, as somebody else.
            witness = Witness(course: witness.course)
        }
        witness.isCreated = !directory.queues(of: witness.id).isEmpty
        try witness.live(in: spool)
        try witness.check(directory, afterPowerCut: afterPowerCut)
        let queues = directory.queues(of: witness.id)
        #expect(queues == [.delivered] || queues == [.hold] && !witness.course.isRepeatable)
        if queues == [.delivered] {
            let upload = try #require(try spool.attach(witness.id))
            #expect(try upload.response()?.head == StoredResponse.sample.head)
            #expect(directory.content(of: witness.id) == nil)
        }
    }

    @Test("an uninterrupted upload costs no sync and few calls")
    func happyPathIsCheap() throws {
        let directory = TemporarySpool()
        let faulty = FaultyDisk(.error, at: .max, in: directory)
        let spool = try directory.open(faulty.disk)
        faulty.begin()
        let upload = try spool.create(.sample(), release: {})
        try upload.append("content")
        try upload.beginAttempt()
        try upload.delivered(.sample)
        upload.detach()
        #expect(!faulty.calls.contains(.sync) && !faulty.calls.contains(.syncDirectory))
        #expect(faulty.calls.count <= 11, "\(faulty.calls)")
    }

    @Test("telling a durable offset again changes nothing on the disk")
    func settlingTwiceIsFree() throws {
        let directory = TemporarySpool()
        let faulty = FaultyDisk(.error, at: .max, in: directory)
        let spool = try directory.open(faulty.disk)
        let creation = UploadCreation.sample()
        let upload = try spool.create(creation, release: {})
        try upload.append("content")
        try upload.settle()
        upload.detach()
        faulty.begin()
        let again = try #require(try spool.attach(creation.id))
        try again.settle()
        again.detach()
        #expect(faulty.calls.isEmpty, "\(faulty.calls)")
    }

    @Test("content that waits and cannot be made durable is received again, never believed")
    func failedSyncOfWaitingContent() throws {
        let directory = TemporarySpool()
        let faulty = FaultyDisk(.error, at: 1, in: directory)
        let spool = try directory.open(faulty.disk)
        let creation = UploadCreation.sample()
        let upload = try spool.create(creation, release: {})
        try upload.append("content")
        try upload.beginAttempt()
        try upload.deferred(reason: "not reached")
        faulty.begin()
        #expect(throws: SpoolError.self) { try upload.settle() }
        #expect(faulty.calls.first == .sync)
        upload.detach()
        let again = try #require(try spool.attach(creation.id))
        #expect(again.state == UploadState(offset: 0, length: 7))
        try again.append("content")
        try again.settle()
        #expect(again.state.offset == 7)
    }

    @Test(
        "a power cut after an offset was told during an attempt loses nothing and repeats nothing",
        arguments: [FaultyDisk.Fault.cutEarly, .cutLate],
        [(true, Queue.deferred), (false, .hold)]
    )
    func toldDuringAttempt(fault: FaultyDisk.Fault, left: (isRepeatable: Bool, queue: Queue)) throws
    {
        let directory = TemporarySpool()
        let faulty = FaultyDisk(fault, at: .max, in: directory)
        let spool = try directory.open(faulty.disk)
        faulty.begin()
        let creation = UploadCreation.sample(
            FaultyDisk.identity(),
            repeatable: left.isRepeatable
        )
        let upload = try spool.create(creation, release: {})
        try upload.append("content")
        try upload.beginAttempt()
        #expect(!faulty.calls.contains(.sync) && !faulty.calls.contains(.syncDirectory))
        let count = faulty.calls.count
        try upload.settle()
        // The directories: of the content, of the record, and the one it left.
        #expect(
            faulty.calls[count...] == [
                .sync, .syncDirectory, .syncDirectory, .syncDirectory, .write, .sync,
            ]
        )
        try upload.settle()
        #expect(faulty.calls.count == count + 6)
        try faulty.cutPower(directory)
        upload.detach()
        let recovery = try directory.open().recover()
        #expect(recovery.interrupted == 1)
        #expect(directory.queues(of: creation.id) == [left.queue])
        #expect(directory.content(of: creation.id) == Array("content".utf8))
    }

    @Test("content that could not be made durable during an attempt is not believed after it")
    func failedSyncDuringAttempt() throws {
        let directory = TemporarySpool()
        let faulty = FaultyDisk(.error, at: 1, in: directory)
        let spool = try directory.open(faulty.disk)
        let creation = UploadCreation.sample()
        let upload = try spool.create(creation, release: {})
        try upload.append("content")
        try upload.beginAttempt()
        faulty.begin()
        #expect(throws: SpoolError.self) { try upload.settle() }
        #expect(faulty.calls == [.sync])
        // The attempt goes on with what is in memory.
        #expect(try upload.content() == Array("content".utf8))
        try upload.deferred(reason: "not reached")
        #expect(throws: SpoolError.self) { try upload.settle() }
        #expect(!faulty.calls.dropFirst().contains(.sync))
        upload.detach()
        let again = try #require(try spool.attach(creation.id))
        #expect(again.state == UploadState(offset: 0, length: 7))
        try again.append("content")
        try again.settle()
        #expect(again.state.offset == 7)
    }

    @Test("an offset is told only after data, directories and record are durable, in this order")
    func promiseOrder() throws {
        let directory = TemporarySpool()
        let faulty = FaultyDisk(.error, at: .max, in: directory)
        let spool = try directory.open(faulty.disk)
        let upload = try spool.create(.sample(), release: {})
        try upload.append("content")
        faulty.begin()
        try upload.settle()
        #expect(faulty.calls == [.sync, .syncDirectory, .syncDirectory, .write, .sync])
    }
}
