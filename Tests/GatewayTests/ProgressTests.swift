// Progress by 104 while content comes: its rate, what it promises, and that silence costs nothing.

import Foundation
import HTTPTypes
import Logging
import SpoolgateExchange
import SpoolgatePosix
import SpoolgateRequests
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Testing

extension ScriptedExchange.Record {
    /// The offsets that interim responses told, in order.
    var toldOffsets: [Int64] {
        interims.compactMap { $0.fields[.uploadOffset].flatMap { Int64($0) } }
    }
}

@Suite struct ProgressTests {
    private func test(interval: Duration, size: Int64) throws -> GatewayUnderTest {
        try GatewayUnderTest { settings, _ in
            settings.interim.progressInterval = interval
            settings.interim.progressSize = size
        }
    }

    @Test("progress is told after so many new bytes, by creations and by appends")
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

    @Test("progress is told no sooner than its interval after the start and after the last time")
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

    @Test("an offset is durable before it is told, and is not told otherwise")
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
        "where progress cannot be heard nothing is told and nothing synced",
        arguments: [
            (3, [104]), (4, [104]), (nil, [104]), (99, [104]), (10, []), (10, [100]), (6, [103]),
        ] as [(Int?, Set<Int>)]
    )
    func unheard(version: Int?, forwarded: Set<Int>) throws {
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
        "versions 5 and 6 do not hear of a last byte that is held back",
        arguments: [5, 6]
    )
    func heldBack(version: Int) throws {
        let test = try test(interval: .zero, size: 1)
        let record = test.serve(
            .creation(["hel", "lo", .fails(.truncated)], length: .known(5), version: version)
        )
        #expect(record.toldOffsets == [3, 4])
        let location = try #require(record.location)
        #expect(test.serve(.retrieval(location, version: version)).offset == 4)
    }
}
