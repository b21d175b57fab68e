// Progress by 104 while content arrives: its rate, its promise, and no cost for clients without it.

import Foundation
import HTTPTypes
import Logging
@testable import SpoolgateExchange
import SpoolgatePosix
import SpoolgateRequests
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Testing

extension ScriptedExchange.Record {
    var toldOffsets: [Int64] {
        interims.compactMap { $0.fields[.uploadOffset].flatMap { Int64($0) } }
    }
}

@Suite struct ProgressTests {
    private func test(
        interval: Duration,
        size: Int64,
        holding jobs: HeldJobs? = nil
    ) throws -> GatewayUnderTest {
        try GatewayUnderTest(holding: jobs) { settings, _ in
            settings.interim.progressInterval = interval
            settings.interim.progressSize = size
        }
    }

    @Test("progress is reported after a number of new bytes, by creations and by appends")
    func size() throws {
        let test = try test(interval: .zero, size: 10)
        let creation = test.serve(
            .creation(
                ["123456789", "0", "123456789", "0", "0123456789ab", "12345", .fails(.truncated)],
                length: .known(50)
            )
        )
        #expect(creation.toldOffsets == [10, 20, 32])
        for progress in creation.interims.dropFirst() {
            #expect(progress.status.code == 104)
            #expect(progress.fields[.location] == nil)
            #expect(progress.fields[.uploadDraftInteropVersion] == "10")
        }
        let location = try #require(creation.location)
        let append = test.serve(.append(location, at: 37, ["123456789", "0123"]))
        #expect(append.events == [.read, .interim(104), .read, .head(201)])
        #expect(append.toldOffsets == [50])
    }

    @Test(
        "progress is reported no sooner than its interval after the start and after the last report"
    )
    func interval() throws {
        let test = try test(interval: .milliseconds(80), size: 0)
        let passes = ScriptedExchange.Step.happens {
            let deadline = Deadline.after(.milliseconds(81))
            while !deadline.hasPassed { usleep(1000) }
        }
        let record = test.serve(.creation([passes, "a", passes, passes, "b", passes, "c"]))
        #expect(record.toldOffsets == [1, 2, 3])
        let seldom = try self.test(interval: .seconds(3600), size: 0)
        let silent = seldom.serve(.creation(["a", passes, "b"]))
        #expect(silent.events == [.interim(104), .read, .head(201)])
        #expect(seldom.disk.count(.sync) == 0)
    }

    @Test(
        "content without a length is reported every 4 MiB; with a length the interval counts",
        arguments: [false, true]
    )
    func unknownLength(hasLane: Bool) throws {
        let test = try test(interval: .seconds(3600), size: 0)
        let parts = [ScriptedExchange.Step](
            repeating: .bytes([UInt8](repeating: 7, count: 64 << 10)),
            count: 200
        )
        func exchange(_ length: ContentLength) -> ScriptedExchange {
            let exchange = ScriptedExchange.creation(parts, complete: false, length: length)
            return hasLane ? exchange.offer(ScriptedLane()) : exchange
        }
        let told = test.serve(exchange(.unknown)).toldOffsets
        #expect(told == [4 << 20, 8 << 20, 12 << 20])
        #expect(test.serve(exchange(.known(200 * 64 << 10))).toldOffsets == [])
    }

    @Test("content arrives while an offset is made durable, and the next one is the newest")
    func beside() throws {
        let jobs = HeldJobs()
        let test = try test(interval: .zero, size: 1, holding: jobs)
        let maximum = Counter()
        let counts = ScriptedExchange.Step.happens { maximum.set(max(maximum.count, jobs.count)) }
        let ends = ScriptedExchange.Step.happens { jobs.run() }
        // The first promised offset is sent at once; it makes the names durable too.
        let record = test.serve(
            .creation(["a", "b", counts, "c", counts, "d", ends, "e", counts, "f", ends, "g"])
        )
        #expect(record.toldOffsets == [1, 2, 5, 7])
        #expect(maximum.count == 1)
        #expect(record.status == 201)
        #expect(!record.hasAlarm, "the alarm outlives the content")
        #expect(try test.drops() == [Array("abcdefg".utf8)])
    }

    @Test(
        "the end of a message waits for the sync of an offset, and not for a busy thread"
    )
    func waits() throws {
        // The job runs only in the request itself.
        let test = try test(interval: .zero, size: 1, holding: HeldJobs())
        let record = test.serve(.creation(["a", "b", "c"], complete: false))
        #expect(record.status == 201 && record.offset == 3)
        #expect(record.toldOffsets == [1, 2])
        let location = try #require(record.location)
        let cut = test.serve(.append(location, at: 3, ["d", "e", .fails(.truncated)]))
        #expect(cut.isAborted)
        #expect(test.serve(.retrieval(location)).offset == 5)
    }

    @Test(
        "an offset whose sync failed during content is not reported, and the content is sent again",
        arguments: [Disk.Call.sync, .write]
    )
    func failsBeside(call: Disk.Call) throws {
        let jobs = HeldJobs()
        let test = try test(interval: .zero, size: 1, holding: jobs)
        let fails = ScriptedExchange.Step.happens {
            test.disk.refuse(call, errno: SystemError.lost)
            jobs.run()
            test.disk.allow()
        }
        let record = test.serve(.creation(["a", "b", "c", fails, "d", "e"], complete: false))
        #expect(record.toldOffsets == [1])
        #expect(record.status == 500)
        let location = try #require(record.location)
        let offset = try #require(test.serve(.retrieval(location)).offset)
        #expect(call == .sync ? offset == 1 : (1...4).contains(offset))
        let rest = String("abcdefg".dropFirst(Int(offset)))
        #expect(test.serve(.append(location, at: offset, [.text(rest)])).status == 201)
        #expect(try test.drops() == [Array("abcdefg".utf8)])
    }

    @Test("an offset is durable before it is reported, and is not reported otherwise")
    func durable() throws {
        let test = try test(interval: .zero, size: 1)
        let record = test.serve(
            .creation(["hello", .happens { test.disk.refuse(.sync, errno: 5) }, " all"])
        )
        #expect(record.toldOffsets == [5])
        #expect(record.status == 500)
        test.disk.allow()
        let location = try #require(record.location)
        #expect(test.serve(.retrieval(location)).offset == 5)
        #expect(try test.drops().isEmpty)
    }

    @Test(
        "if progress cannot be received, nothing is reported and nothing synced",
        arguments: [
            (3, [104]), (4, [104]), (nil, [104]), (99, [104]), (10, []), (10, [100]), (6, [103]),
        ] as [(Int?, [Int])]
    )
    func undelivered(version: Int?, forwarded: [Int]) throws {
        let test = try test(interval: .zero, size: 1)
        let record = test.serve(
            .creation(
                ["hello", " all"],
                version: version,
                context: ExchangeContext(interimStatuses: forwarded)
            )
        )
        #expect(record.status == 201)
        #expect(record.toldOffsets == [])
        #expect(test.disk.count(.sync) == 0)
        #expect(test.disk.count(.syncDirectory) == 0)
    }

    @Test(
        "versions 5 and 6 receive no report of a last byte that is held back",
        arguments: [5, 6],
        [ContentLength.known(5), .unknown]
    )
    func heldBack(version: Int, length: ContentLength) throws {
        let test = try test(interval: .zero, size: 1)
        let record = test.serve(
            .creation(["hel", "lo", .fails(.truncated)], length: length, version: version)
        )
        // Without a length, any byte may be the last.
        #expect(record.toldOffsets == [length == .unknown ? 2 : 3, 4])
        let location = try #require(record.location)
        #expect(test.serve(.retrieval(location, version: version)).offset == 4)
    }
}
