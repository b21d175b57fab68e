// Release requests for uploads that another process has locked; a second `Spool` stands for it, as in HoldingTests.

import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateTextFormats
import SpoolgateUploadProtocol
import Testing

@testable import SpoolgateSpool

@Suite("Releasing to another process")
struct AskingTests {
    private let directory = TemporarySpool()
    private let mine: Spool
    private let theirs: Spool
    private let creation = UploadCreation.sample(owner: "alice")

    init() throws {
        mine = try directory.open()
        theirs = try directory.open()
    }

    /// Locks in `mine` on a thread; the monitor receives the upload's state.
    private func attach(
        admits: @escaping @Sendable (UploadCreation) -> Bool = { _ in true },
        until deadline: Deadline = .after(.seconds(300))
    ) throws -> Monitor<Result<UploadState?, SpoolError>?> {
        let outcome = Monitor<Result<UploadState?, SpoolError>?>(nil)
        try Thread.start(name: "newer") { [mine, creation] in
            let result = Result { () throws(SpoolError) in
                let upload = try mine.lock(
                    creation.id,
                    until: deadline,
                    admits: admits,
                    requestRelease: {}
                )
                defer { upload?.unlock() }
                return upload?.state
            }
            outcome.update { $0 = result }
        }
        return outcome
    }

    /// Checks for release requests, as the holders' watch does, until `condition`.
    private func watch(_ spools: [Spool], until condition: @escaping () -> Bool) throws {
        try eventually("the release is requested") {
            for spool in spools { try? spool.requestReleaseForOthers() }
            return condition()
        }
    }

    @Test("a receiving holder is asked once, and the other process then has all it stored")
    func receiver() throws {
        let asked = Monitor(0)
        let upload = try theirs.create(creation, requestRelease: { asked.update { $0 += 1 } })
        try theirs.requestReleaseForOthers()
        #expect(asked.update { $0 } == 0)
        let outcome = try attach()
        // The waiting process checks too, and must not treat itself as the holder.
        try watch([mine, theirs]) { asked.update { $0 } > 0 }
        try theirs.requestReleaseForOthers()
        try upload.append("late")
        upload.unlock()
        let result = try #require(outcome.wait(until: .after(.seconds(300))) { $0 })
        #expect(try result.get() == UploadState(offset: 4))
        #expect(asked.update { $0 } == 1)
    }

    @Test("the request to release ends with the wait, whether it succeeded or not")
    func marksEnd() throws {
        let asked = Monitor(0)
        let upload = try theirs.create(creation, requestRelease: {})
        let lost = try attach(until: .after(.milliseconds(100)))
        let result = try #require(lost.wait(until: .after(.seconds(300))) { $0 })
        #expect(throws: SpoolError.busy(creation.id)) { try result.get() }
        let won = try attach()
        try watch([theirs]) { theirs.locks.receiving().isEmpty }
        upload.unlock()
        _ = try #require(won.wait(until: .after(.seconds(300))) { $0 })
        let again = try #require(
            try mine.lock(
                creation.id,
                until: .after(.seconds(300)),
                requestRelease: { asked.update { $0 += 1 } }
            )
        )
        try mine.requestReleaseForOthers()
        #expect(asked.update { $0 } == 0)
        again.unlock()
    }

    @Test("a holder that delivers is not asked, and another client asks no holder")
    func notAsked() throws {
        let asked = Monitor(0)
        let upload = try theirs.create(creation, requestRelease: { asked.update { $0 += 1 } })
        let stranger = try attach(admits: { $0.owner == "bob" })
        let refused = try #require(stranger.wait(until: .after(.seconds(300))) { $0 })
        #expect(try refused.get() == nil)
        try upload.beginAttempt()
        let outcome = try attach()
        try eventually("it waits") { try isMarked() }
        try theirs.requestReleaseForOthers()
        try upload.finish(with: .sample)
        upload.unlock()
        let result = try #require(outcome.wait(until: .after(.seconds(300))) { $0 })
        #expect(try result.get()?.phase == .delivered)
        #expect(asked.update { $0 } == 0)
    }

    private func isMarked() throws -> Bool {
        let format = try #require(
            try OpenFile.open("format", in: theirs.layout.root, forWriting: false)
        )
        return try format.descriptor.isMarkedElsewhere(subject: "format")
    }
}
