// 100 (Continue) precedes the first read of content, and is never sent if the content is not read.

import HTTPTypes
import Logging
import SpoolgateSpool
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Testing

@testable import SpoolgateExchange
@testable import SpoolgateJournal
@testable import SpoolgateRequests
@testable import SpoolgateSettings

@Suite struct ContinueTests {
    private static let expect: HTTPFields = [.expect: "100-Continue"]
    private static let forwarding = ExchangeContext(interimStatuses: [104, 100])

    /// A path that reads content, and its expected responses.
    struct Path: Sendable, CustomTestStringConvertible {
        var testDescription: String
        var status: Int
        var has104 = false
        var request: @Sendable (GatewayUnderTest, ExchangeContext) -> ScriptedExchange
    }

    static let paths = [
        Path(testDescription: "creation", status: 201, has104: true) { _, context in
            .creation(["a"], complete: false, fields: expect, context: context)
        },
        Path(testDescription: "whole creation", status: 200, has104: true) { _, context in
            .creation(fields: expect, context: context)
        },
        Path(
            testDescription: "whole creation of unknown length",
            status: 200,
            has104: true
        ) { _, context in
            .creation(["a"], length: .unknown, fields: expect, context: context)
        },
        Path(testDescription: "creation below min-size", status: 200) { _, context in
            .creation(["a"], fields: expect, context: context)
        },
        Path(testDescription: "append", status: 204) { test, context in
            .append(
                test.createPartial(),
                at: 5,
                ["b"],
                complete: false,
                fields: expect,
                context: context
            )
        },
        Path(testDescription: "ordinary upload", status: 200) { _, context in
            ScriptedExchange(.post, "/p", expect, ["c"], context: context)
        },
        Path(testDescription: "ordinary upload of unknown length", status: 200) { _, context in
            ScriptedExchange(.post, "/p", expect, ["c"], length: .unknown, context: context)
        },
        Path(testDescription: "pass-through", status: 200) { _, context in
            ScriptedExchange(.delete, "/dav", expect, ["d"], context: context)
        },
        Path(testDescription: "pass-through of unknown length", status: 200) { _, context in
            ScriptedExchange(.delete, "/dav", expect, ["d"], length: .unknown, context: context)
        },
    ]

    @Test(
        "100 is sent once, after the 104 and before the first read",
        arguments: paths,
        [([104, 100], true), ([100], true), ([104], false), ([], false)] as [([Int], Bool)]
    )
    func beforeReading(path: Path, front: (forwards: [Int], hears100: Bool)) throws {
        let origin = try LoopbackOrigin()
        let test = try GatewayUnderTest(origin.target) { _, route in route.limits.minSize = 2 }
        let context = ExchangeContext(interimStatuses: front.forwards)
        let record = test.serve(path.request(test, context))
        var events: [ScriptedExchange.Event] = []
        if path.has104, front.forwards.contains(104) { events.append(.interim(104)) }
        if front.hears100 { events.append(.interim(100)) }
        #expect(record.events == events + [.read, .head(path.status)])
    }

    @Test("an append that must be empty is also asked for its content")
    func emptyStream() throws {
        let test = try GatewayUnderTest(.unix(path: "/dev/null/none.sock"))
        let location = try #require(test.serve(.creation()).location)
        let append = test.serve(
            .append(
                location,
                at: 5,
                length: .unknown,
                fields: Self.expect,
                context: Self.forwarding
            )
        )
        #expect(append.events == [.interim(100), .read, .head(502)])
    }

    @Test("without content there is no 100")
    func noContent() throws {
        let origin = try LoopbackOrigin()
        let test = try GatewayUnderTest(origin.target)
        let location = test.createPartial()
        let requests: [ScriptedExchange] = [
            .creation([], complete: false, fields: Self.expect, context: Self.forwarding),
            .append(location, at: 5, fields: Self.expect, context: Self.forwarding),
            ScriptedExchange(.post, "/p", Self.expect, context: Self.forwarding),
            ScriptedExchange(.get, "/g", Self.expect, context: Self.forwarding),
        ]
        for request in requests {
            let record = test.serve(request)
            #expect(record.head?.status.kind == .successful)
            #expect(!record.events.contains(.interim(100)))
        }
    }

    @Test("a request that is refused before its content gets only the final response")
    func refused() throws {
        let test = try GatewayUnderTest { _, route in route.limits.maxSize = 9 }
        let location = test.createPartial("hello")
        let whole = try #require(test.serve(.creation()).location)
        let large: ScriptedExchange.Step = "0123456789"
        func append(_ location: String, at offset: Int64) -> ScriptedExchange {
            .append(location, at: offset, ["x"], fields: Self.expect, context: Self.forwarding)
        }
        let requests: [(ScriptedExchange, Int)] = [
            (.creation([large], fields: Self.expect, context: Self.forwarding), 413),
            (ScriptedExchange(.post, "/p", Self.expect, [large], context: Self.forwarding), 413),
            (append(location, at: 4), 409),
            (append("/files/upload-resource/\(UploadID.random())", at: 0), 404),
            (append(whole, at: 5), 400),
        ]
        for (request, status) in requests {
            #expect(test.serve(request).events == [.head(status)])
        }
        let full = try GatewayUnderTest(reserve: 1 << 60)
        let creation = ScriptedExchange.creation(
            ["x"],
            fields: Self.expect,
            context: Self.forwarding
        )
        #expect(full.serve(creation).events == [.head(507)])
        var context = Self.forwarding
        context.route = "none"
        let lost = ScriptedExchange(.post, "/p", Self.expect, ["x"], context: context)
        #expect(test.serve(lost).events == [.head(500)])
    }

    @Test(
        "content that the upstream refuses is not requested",
        arguments: [
            (UpstreamTarget.directory(path: "/dev/null"), 405),
            (.unix(path: "/dev/null/none.sock"), 502),
        ],
        [nil, .unknown] as [ContentLength?]
    )
    func notTaken(upstream: (target: UpstreamTarget, status: Int), length: ContentLength?) throws {
        let test = try GatewayUnderTest(upstream.target)
        let record = test.serve(
            ScriptedExchange(
                .delete,
                "/dav",
                Self.expect,
                ["d"],
                length: length,
                context: Self.forwarding
            )
        )
        #expect(record.events == [.head(upstream.status)])
    }
}
