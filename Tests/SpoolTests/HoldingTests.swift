// Locks on uploads, by threads and, with the kernel's locks, by other processes.
//
// A second `Spool` stands for another process: it has its own table of locks, and open file description locks exclude
// open files, not processes.

import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateTextFormats
import SpoolgateUploadProtocol
import Synchronization
import Testing

@testable import SpoolgateSpool

private final class Counter: Sendable {
    private let state = Mutex((now: 0, maximum: 0, total: 0))

    var maximum: Int { state.withLock { $0.maximum } }
    var total: Int { state.withLock { $0.total } }

    func enter() {
        state.withLock { state in
            state.now += 1
            state.total += 1
            state.maximum = max(state.maximum, state.now)
        }
    }

    func leave() { state.withLock { $0.now -= 1 } }
}

@Suite("Locks")
struct HoldingTests {
    private let directory = TemporarySpool()

    @Test("many threads lock one upload, and only one at a time holds it")
    func oneHolder() throws {
        let spools = [try directory.open(), try directory.open()]
        let creation = UploadCreation.sample()
        try spools[0].create(creation, requestRelease: {}).unlock()
        let holders = Counter()
        let finished = Monitor(0)
        let threads = 12
        let rounds = 20
        for thread in 0..<threads {
            try Thread.start(name: "attach-\(thread)") {
                for _ in 0..<rounds {
                    let isReleased = Monitor(false)
                    // The other process may win the lock.
                    let upload = try? spools[thread % 2].lock(
                        creation.id,
                        until: .after(.seconds(300)),
                        requestRelease: { isReleased.update { $0 = true } }
                    )
                    guard let upload else { continue }
                    holders.enter()
                    // Some wait for a release request, as a receiving request does.
                    if thread % 3 == 0 {
                        _ = isReleased.wait(until: .after(.milliseconds(5))) { $0 ? true : nil }
                    }
                    try? upload.append("x")
                    holders.leave()
                    upload.unlock()
                }
                finished.update { $0 += 1 }
            }
        }
        let all = finished.wait(until: .after(.seconds(300))) { $0 == threads ? true : nil }
        #expect(all == true, "a thread did not return")
        #expect(holders.maximum == 1)
        #expect(holders.total >= threads)
        #expect(directory.content(of: creation.id)?.count == holders.total)
    }

    @Test("a receiving holder is asked once to release, and the newer request then has the lock")
    func newestWins() throws {
        let spool = try directory.open()
        let creation = UploadCreation.sample()
        let asked = Monitor(0)
        let upload = try spool.create(creation, requestRelease: { asked.update { $0 += 1 } })
        let outcome = Monitor<Int64?>(nil)
        try Thread.start(name: "newer") {
            let newer = try? spool.lock(creation.id)
            outcome.update { $0 = newer?.state.offset ?? -1 }
        }
        #expect(asked.wait(until: .after(.seconds(300))) { $0 > 0 ? true : nil } == true)
        try upload.append("late")
        upload.unlock()
        #expect(outcome.wait(until: .after(.seconds(300))) { $0 } == 4)
        #expect(asked.update { $0 } == 1)
        #expect(throws: SpoolError.busy(creation.id)) { try upload.append("too late") }
        #expect(throws: SpoolError.busy(creation.id)) { try upload.remove() }
    }

    @Test("a holder that delivers is waited for and never asked to release")
    func deliveringIsNotDisturbed() throws {
        let spool = try directory.open()
        let creation = UploadCreation.sample()
        let asked = Mutex(false)
        let upload = try spool.create(creation, requestRelease: { asked.withLock { $0 = true } })
        try upload.beginAttempt()
        #expect(throws: SpoolError.busy(creation.id)) {
            try spool.lock(creation.id, until: .after(.milliseconds(50)), requestRelease: {})
        }
        let phase = Monitor<UploadState.Phase?>(nil)
        try Thread.start(name: "waiting") {
            let waiting = try? spool.lock(creation.id)
            phase.update { $0 = waiting?.state.phase ?? .receiving }
        }
        try upload.finish(with: .sample)
        upload.unlock()
        #expect(phase.wait(until: .after(.seconds(300))) { $0 } == .delivered)
        #expect(!asked.withLock { $0 })
    }

    @Test("a change to an upload wakes only its own waiters")
    func othersAreNotWoken() throws {
        let spool = try directory.open()
        let (awaited, other) = (UploadCreation.sample(), UploadCreation.sample())
        let upload = try spool.create(awaited, requestRelease: {})
        try upload.beginAttempt()
        try spool.create(other, requestRelease: {}).unlock()
        let looks = Monitor(0)
        let finished = Monitor(0)
        let threads = 20
        for thread in 0..<threads {
            try Thread.start(name: "waits-\(thread)") {
                _ = try? spool.lock(
                    awaited.id,
                    until: .after(.seconds(300)),
                    admits: { _ in
                        looks.update { $0 += 1 }
                        return true
                    },
                    requestRelease: {}
                )
                finished.update { $0 += 1 }
            }
        }
        let all = looks.wait(until: .after(.seconds(300))) { $0 >= threads ? true : nil }
        #expect(all == true)
        for _ in 0..<50 { try #require(try spool.lock(other.id)).unlock() }
        #expect(looks.update { $0 } < 2 * threads, "a waiter tried again")
        try upload.finish(with: .sample)
        upload.unlock()
        let ended = finished.wait(until: .after(.seconds(300))) { $0 == threads ? true : nil }
        #expect(ended == true, "a waiter was not woken")
    }

    @Test("another client neither gets an upload nor disturbs its holder")
    func strangers() throws {
        let spool = try directory.open()
        let creation = UploadCreation.sample(owner: "alice")
        let asked = Mutex(false)
        let upload = try spool.create(creation, requestRelease: { asked.withLock { $0 = true } })
        let isBob: @Sendable (UploadCreation) -> Bool = { $0.owner == "bob" }
        let deadline = Deadline.after(.seconds(300))
        #expect(
            try spool.lock(creation.id, until: deadline, admits: isBob, requestRelease: {}) == nil
        )
        #expect(!asked.withLock { $0 })
        upload.unlock()
        #expect(
            try spool.lock(creation.id, until: deadline, admits: isBob, requestRelease: {}) == nil
        )
        #expect(try spool.lock(creation.id) != nil)
    }

    @Test(
        "an upload that another process holds is busy until it unlocks",
        arguments: [false, true]
    )
    func otherProcess(isDelivered: Bool) throws {
        let (mine, theirs) = (try directory.open(), try directory.open())
        let creation = UploadCreation.sample()
        var upload: Upload? = try theirs.create(creation, requestRelease: {})
        if isDelivered {
            try upload?.beginAttempt()
            try upload?.finish(with: .sample)
            upload = nil
            upload = try theirs.lock(creation.id)
        }
        #expect(throws: SpoolError.busy(creation.id)) {
            try mine.lock(creation.id, until: .after(.milliseconds(50)), requestRelease: {})
        }
        let summary = try #require(try mine.summaries().first { $0.id == creation.id })
        #expect(summary.isInUse)
        #expect(try !mine.remove(creation.id, ifUnchangedSince: summary))
        _ = mine.recover()
        upload?.unlock()
        #expect(try mine.lock(creation.id) != nil)
    }

    @Test("an unknown upload is not found")
    func unknown() throws {
        #expect(try directory.open().lock(.random()) == nil)
    }

    @Test("a lost reference unlocks")
    func deinitialised() throws {
        let spool = try directory.open()
        let creation = UploadCreation.sample()
        _ = try spool.create(creation, requestRelease: {})
        #expect(try spool.lock(creation.id, seconds: 0) != nil)
    }
}
