// Requests that need a sync, and those that must not.

import HTTPTypes
import Logging
import SpoolgateExchange
import SpoolgatePosix
import SpoolgateRequests
import SpoolgateSpool
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Testing

@Suite struct DurabilityTests {
    private func test() throws -> (GatewayUnderTest, LoopbackOrigin) {
        let origin = try LoopbackOrigin()
        return (try GatewayUnderTest(origin.target), origin)
    }

    @Test(
        "an upload that one request creates and completes needs no sync",
        arguments: [.known(9), .unknown] as [ContentLength]
    )
    func uninterrupted(length: ContentLength) throws {
        let (test, origin) = try test()
        let record = test.serve(.creation(["hello", " all"], length: length))
        #expect(record.status == 200)
        #expect(test.disk.count(.sync) == 0)
        #expect(test.disk.count(.syncDirectory) == 0)
        #expect(origin.requests.count == 1)
    }

    @Test("an interrupted upload needs one sync of the content; its reported offset needs none")
    func offsetReported() throws {
        let (test, _) = try test()
        let location = try #require(
            test.serve(.creation(["hello", .fails(.truncated)], length: .known(9))).location
        )
        let told = test.serve(.retrieval(location))
        #expect(told.offset == 5)
        #expect(test.disk.count(.sync, on: ".data") == 1)
        #expect(test.disk.count(.sync) == 2)
        #expect(test.disk.count(.syncDirectory) == 1)
        test.disk.forget()
        #expect(test.serve(.retrieval(location)).offset == 5)
        #expect(test.serve(.append(location, at: 0, complete: false)).status == 409)
        #expect(test.disk.count(.sync) == 0)
        #expect(test.disk.count(.syncDirectory) == 0)
        // The next offset needs no sync of a directory, because the names are durable.
        #expect(test.serve(.append(location, at: 5, ["!"], complete: false)).offset == 6)
        #expect(test.disk.count(.sync, on: ".data") == 1)
        #expect(test.disk.count(.sync) == 2)
        #expect(test.disk.count(.syncDirectory) == 0)
    }

    @Test("an offset that cannot be made durable is not reported")
    func syncFails() throws {
        let (test, _) = try test()
        let location = test.createPartial("hello")
        test.disk.refuse(.sync, errno: 5)
        let appended = test.serve(.append(location, at: 5, ["xyz"], complete: false))
        #expect(appended.status == 500)
        #expect(appended.offset == nil)
        test.disk.allow()
        let conflict = test.serve(.append(location, at: 1, ["x"]))
        #expect(conflict.status == 409)
        // Only an offset sent earlier may be repeated.
        #expect(conflict.offset == 5)
    }

    @Test("slow content goes to its file, and content that is soon complete stays in memory")
    func slowContent() throws {
        let (test, origin) = try test()
        let part = [UInt8](repeating: 1, count: 5000)
        #expect(test.serve(.creation([.bytes(part), .bytes(part), .bytes(part)])).status == 200)
        #expect(test.disk.count(.create, on: ".data") == 0)
        #expect(test.serve(.creation(["a", "b", "c"])).status == 200)
        #expect(test.disk.count(.create, on: ".data") == 1)
        #expect(origin.requests.map(\.content) == [part + part + part, Array("abc".utf8)])
    }

    @Test("a disk that fills up during content gives 507; the written part is kept")
    func fillsUp() throws {
        let (test, _) = try test()
        // More than fits in memory.
        let content = [UInt8](repeating: 1, count: 300_000)
        let record = test.serve(
            .creation([
                .bytes(content), .happens { test.disk.refuse(.write, errno: 28) }, "world",
            ])
        )
        #expect(record.status == 507)
        let location = try #require(record.location)
        #expect(try test.queue(of: location) == .incoming)
        #expect(try test.summaries().map(\.offset) == [300_000])
    }
}
