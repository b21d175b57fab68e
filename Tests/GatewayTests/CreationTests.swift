// Creations and their appends.

import HTTPTypes
@testable import SpoolgateExchange
import SpoolgateJournal
import SpoolgatePosix
import SpoolgateRequests
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Testing

@Suite struct CreationTests {
    @Test(
        "104 is sent before the content is read, if dialect and web server allow it",
        arguments: [
            (10, [104], true), (3, [104], true), (6, [104, 100], true), (10, [], false),
            (10, [100], false), (nil, [104], false), (99, [104], false),
        ] as [(Int?, [Int], Bool)]
    )
    func interim(version: Int?, forwarded: [Int], isExpected: Bool) throws {
        let test = try GatewayUnderTest()
        let record = test.serve(
            .creation(
                version: version,
                context: ExchangeContext(interimStatuses: forwarded)
            )
        )
        let events: [ScriptedExchange.Event] = [.read, .head(201)]
        #expect(record.events == (isExpected ? [.interim(104)] : []) + events)
        if isExpected {
            #expect(record.interims[0].fields[.location]?.hasPrefix("/files/") == true)
        }
        #expect(try test.drops() == [Array("hello".utf8)])
    }

    @Test("the web server's origin makes Location absolute, in 104 and in 201")
    func absoluteLocation() throws {
        let test = try GatewayUnderTest()
        let context = ExchangeContext(origin: "https://x.test:8443", interimStatuses: [104])
        let record = test.serve(.creation(["a"], complete: false, context: context))
        let location = try #require(record[.location])
        #expect(location.hasPrefix("https://x.test:8443/files/upload-resource/"))
        #expect(record.interims.first?.fields[.location] == location)
    }

    @Test(
        "content received before a creation was cut is kept, and never completes it",
        arguments: [
            ["hel", "lo", .fails(.truncated)],
            ["hello", .fails(.stalled)],
            ["hel", .bytesThenFails(Array("lo".utf8), .truncated)],
            ["hel", "lo", .fails(.released)],
        ] as [[ScriptedExchange.Step]],
        [.unknown, .known(9)] as [ContentLength]
    )
    func cut(steps: [ScriptedExchange.Step], length: ContentLength) throws {
        let test = try GatewayUnderTest()
        let record = test.serve(.creation(steps, length: length))
        #expect(record.events == [.interim(104), .read, .abort])
        let location = try #require(record.location)
        let told = test.serve(.retrieval(location))
        #expect(told.offset == 5)
        #expect(told[.uploadComplete] == "?0")
        #expect(try test.drops().isEmpty)
        #expect(try test.queue(of: location) == .incoming)
        let done = test.serve(.append(location, at: 5, [" all"]))
        #expect(done.status == 201)
        #expect(try test.drops() == [Array("hello all".utf8)])
    }

    @Test("an upload continues in appends and is delivered once, by the append that completes it")
    func appends() throws {
        let test = try GatewayUnderTest()
        let location = test.createPartial("one ")
        let second = test.serve(.append(location, at: 4, ["two "], complete: false))
        #expect(second.status == 204)
        #expect(second.offset == 8)
        #expect(try test.drops().isEmpty)
        let third = test.serve(.append(location, at: 8, ["three"]))
        #expect(third.status == 201)
        #expect(third[.uploadComplete] == "?1")
        #expect(third.offset == 13)
        #expect(try test.drops() == [Array("one two three".utf8)])
        #expect(try test.queue(of: location) == .delivered)
    }

    @Test("a wrong offset is refused with the right one, made durable first", arguments: [0, 4, 6])
    func conflict(offset: Int64) throws {
        let test = try GatewayUnderTest()
        let cut = test.serve(.creation(["hello", .fails(.truncated)], length: .known(9)))
        let location = try #require(cut.location)
        let record = test.serve(.append(location, at: offset, ["xxxx"]))
        #expect(record.status == 409)
        #expect(record.offset == 5)
        #expect(!record.events.contains(.read))
        #expect(test.disk.count(.sync, on: ".data") == 1)
        #expect(test.serve(.retrieval(location)).offset == 5)
    }

    @Test(
        "content beyond a known length ends the upload, from version 7 on",
        arguments: [(4, 204), (5, 204), (6, 204), (7, 404), (10, 404)]
    )
    func excess(version: Int, status: Int) throws {
        let test = try GatewayUnderTest()
        let location = test.createPartial("hello", uploadLength: 8, version: version)
        let record = test.serve(
            .append(location, at: 5, ["worlds"], length: .unknown, version: version)
        )
        #expect(record.status == 400)
        let told = test.serve(.retrieval(location, version: version))
        #expect(told.status == status)
        #expect(test.log.messages.contains("upload deactivated") == (status == 404))
        #expect(try test.drops().isEmpty)
    }

    @Test("a creation beyond max-size is refused before its content is read")
    func tooLarge() throws {
        let test = try GatewayUnderTest { _, route in route.limits.maxSize = 9 }
        let record = test.serve(.creation(["0123456789"]))
        #expect(record.status == 413)
        #expect(record.events == [.head(413)])
        let streamed = test.serve(.creation(["01234", "56789"], length: .unknown))
        #expect(streamed.status == 413)
        #expect(streamed.offset == 9)
        #expect(try test.drops().isEmpty)
    }

    @Test("an append without content, at the offset, that completes nothing, has no effect")
    func emptyAppend() throws {
        let test = try GatewayUnderTest()
        let location = test.createPartial("hello")
        let record = test.serve(.append(location, at: 5, complete: false))
        #expect(record.status == 204)
        #expect(record.offset == 5)
        #expect(try test.queue(of: location) == .incoming)
    }
}
