// Uploads without a resource: received completely, then delivered or refused.

import Foundation
import HTTPTypes
import Logging
import SpoolgatePosix
import SpoolgateSpool
import SpoolgateTestSupport
import SpoolgateTextFormats
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Synchronization
import Testing

@testable import SpoolgateExchange
@testable import SpoolgateRequests
@testable import SpoolgateSettings

@Suite struct OrdinaryTests {
    private static let capacity = Upload.maximumInBuffer

    private func bytes(_ count: Int) -> [UInt8] {
        (0..<count).map { UInt8(truncatingIfNeeded: $0 &* 31 &+ $0 >> 8) }
    }

    @Test(
        "small content stays in memory, larger content goes to a nameless file, and both arrive whole",
        arguments: [
            (0, false), (1, false), (capacity - 1, false), (capacity, false), (capacity + 1, true),
            (3 * capacity + 7, true),
        ],
        [true, false]
    )
    func memoryOrFile(at size: (count: Int, isFile: Bool), isLengthKnown: Bool) throws {
        let test = try GatewayUnderTest()
        let content = bytes(size.count)
        let fragments = stride(from: 0, to: size.count, by: 50_000)
            .map { ScriptedExchange.Step.bytes(Array(content[$0...].prefix(50_000))) }
        let record = test.serve(
            ScriptedExchange(
                .put,
                "/plain.bin",
                [:],
                fragments,
                length: isLengthKnown ? nil : .unknown
            )
        )
        #expect(record.status == 201)
        #expect(record.interims.isEmpty)
        #expect(record[.uploadComplete] == nil && record[.uploadOffset] == nil)
        #expect(try test.drops() == [content])
        #expect(test.disk.count(.create) == (size.isFile ? 1 : 0))
        #expect(test.disk.count(.sync) == 0)
        #expect(try test.summaries().isEmpty)
        let written = size.count > 0 ? ["content written"] : []
        #expect(test.log.messages == written + ["ordinary upload delivered"])
    }

    @Test(
        "a small, complete upload whose URL is not reported goes the same way",
        arguments: [(nil, [104]), (10, [])] as [(Int?, [Int])]
    )
    func untold(version: Int?, interimStatuses: [Int]) throws {
        let test = try GatewayUnderTest()
        var context = ExchangeContext.empty
        context.interimStatuses = interimStatuses
        let record = test.serve(.creation(["small"], version: version, context: context))
        #expect(record.status == 201)
        #expect(record.interims.isEmpty && record.location == nil)
        #expect(record[.uploadComplete] == "?1" && record.offset == 5)
        #expect(try test.drops() == [Array("small".utf8)])
        #expect(test.disk.count(.create) == 0)
        #expect(test.log.messages == ["content written", "ordinary upload delivered"])
    }

    @Test(
        "content that is cut is neither delivered nor kept",
        arguments: [ContentError.truncated, .stalled],
        [10, 2 * capacity]
    )
    func cut(error: ContentError, count: Int) throws {
        let test = try GatewayUnderTest()
        let record = test.serve(
            ScriptedExchange(
                .post,
                "/plain",
                [:],
                [.bytes(bytes(count)), .fails(error)],
                length: .known(Int64(count) + 1)
            )
        )
        #expect(record.events == [.read, .abort])
        #expect(try test.drops().isEmpty)
        #expect(try test.summaries().isEmpty)
    }

    @Test("content over max-size is refused, before it is read if its length is known")
    func tooLarge() throws {
        let test = try GatewayUnderTest { _, route in route.limits.maxSize = 9 }
        let known = test.serve(ScriptedExchange(.post, "/p", [:], ["0123456789"]))
        #expect(known.events == [.head(413)])
        let unknown = test.serve(
            ScriptedExchange(.post, "/p", [:], ["0123456789"], length: .unknown)
        )
        #expect(unknown.events == [.read, .head(413)])
        for record in [known, unknown] {
            #expect(record[.contentType] == "application/problem+json")
            #expect(record[.uploadComplete] == nil)
        }
        #expect(test.serve(ScriptedExchange(.post, "/p", [:], ["012345678"])).status == 201)
        #expect(try test.drops().count == 1)
    }

    @Test("a creation below min-size costs no resource and no 104")
    func belowMinimum() throws {
        let test = try GatewayUnderTest { _, route in route.limits.minSize = 6 }
        let small = test.serve(.creation())
        #expect(small.events == [.read, .head(201)])
        #expect(test.disk.count(.create) == 0)
        let large = test.serve(.creation(["hello!"]))
        #expect(large.events == [.interim(104), .read, .head(201)])
    }

    @Test("an unreachable upstream is 502, without the protocol's fields")
    func upstreamDown() throws {
        let test = try GatewayUnderTest(.unix(path: "/dev/null/none.sock"))
        let record = test.serve(ScriptedExchange(.post, "/p", [:], ["x"]))
        #expect(record.status == 502)
        #expect(record[.uploadComplete] == nil)
        #expect(!record.text.contains("none.sock"))
        #expect(test.log.level(of: "ordinary upload failed") == .warning)
    }

    @Test("a web server that left before the delivery stops it")
    func abandoned() throws {
        let test = try GatewayUnderTest()
        let exchange = ScriptedExchange(.post, "/p", [:], ["x"])
        exchange.abandon()
        #expect(test.serve(exchange).events == [.read, .abort])
        #expect(try test.drops().isEmpty)
    }

    @Test("an upload is delivered even if its client leaves during the response")
    func clientGone() throws {
        let origin = try LoopbackOrigin(status: "201 Created", content: "taken")
        let test = try GatewayUnderTest(origin.target)
        let exchange = ScriptedExchange(.post, "/p", [:], ["x"])
        exchange.leave(after: 0)
        #expect(test.serve(exchange).isAborted)
        #expect(
            test.log.messages == [
                "content written", "ordinary upload delivered", "client disconnected",
            ]
        )
        #expect(test.log.values(of: "status", in: "ordinary upload delivered") == ["201"])
        #expect(test.log.level(of: "client disconnected") == .debug)
    }

    @Test("the upstream gets the request as sent, with a known length and the forwarding fields")
    func asSent() throws {
        let origin = try LoopbackOrigin(status: "202 Accepted", content: "taken")
        let test = try GatewayUnderTest(origin.target)
        let context = ExchangeContext(remoteAddress: "192.0.2.7", scheme: "https")
        let record = test.serve(
            ScriptedExchange(
                .post,
                "/in?a=b",
                [.contentType: "text/x", .cookie: "k=v", .transferEncoding: "chunked"],
                ["ab", "c"],
                length: .unknown,
                context: context
            )
        )
        #expect(record.status == 202)
        #expect(record.text == "taken")
        let request = try #require(origin.requests.first)
        #expect(request.line == "POST /in?a=b HTTP/1.1")
        #expect(request.content == Array("abc".utf8))
        #expect(request.values("Content-Length") == ["3"])
        #expect(request.values("Transfer-Encoding") == [])
        #expect(request.values("Cookie") == ["k=v"])
        #expect(request.values("X-Forwarded-For") == ["192.0.2.7"])
        #expect(request.values("X-Forwarded-Proto") == ["https"])
    }

    @Test(
        "a full spool refuses only content that does not fit in memory, with an ordinary response"
    )
    func full() throws {
        let test = try GatewayUnderTest(reserve: 1 << 60)
        #expect(test.serve(ScriptedExchange(.post, "/p", [:], ["x"])).status == 201)
        let record = test.serve(
            ScriptedExchange(.post, "/p", [:], [.bytes(bytes(Self.capacity + 1))])
        )
        #expect(record.status == 507)
        #expect(record[.retryAfter] != nil)
        #expect(record[.uploadComplete] == nil)
        #expect(test.log.level(of: "spool error") == .error)
    }

    @Test("ordinary uploads wait for no delivery slot, however slow their upstream is")
    func noPlaces() throws {
        let gate = Gate()
        let origin = try LoopbackOrigin { connection in
            while let request = try connection.receiveRequest() {
                if request.line.contains("/slow") { gate.pass() }
                try connection.response("201 Created")
            }
        }
        let test = try GatewayUnderTest(origin.target) { settings, _ in
            settings.inUseTimeout = .milliseconds(50)
            settings.maximumDeliveries = 2
        }
        let slow = try (0..<40).map { _ in
            try test.start(
                ScriptedExchange(.post, "/slow", [.contentType: "application/json"], ["{}"])
            )
        }
        try eventually("the upstream has all") { origin.requests.count == 40 }
        let fast = test.serve(ScriptedExchange(.post, "/fast", [:], ["{}"]))
        #expect(fast.status == 201)
        // Nor do they take waiting uploads' slots.
        #expect(test.serve(.creation(["whole"])).status == 201)
        gate.open()
        for running in slow { #expect(try running.finish().status == 201) }
    }

    // MARK: ordinary: pass

    private func passing(_ base: String, maxSize: Int64 = 1 << 20) throws -> GatewayUnderTest {
        try GatewayUnderTest(.http(base: base)) { _, route in
            route.ordinary = .pass
            route.limits.maxSize = maxSize
            route.limits.minSize = 100
        }
    }

    /// Records content as it arrives, up to its last bytes.
    private static func listen(to connection: OriginConnection, _ seen: borrowing Mutex<String>)
        throws
    {
        var text = ""
        while !text.contains("last") {
            let part = connection.receive()
            guard !part.isEmpty else { return }
            text += String(decoding: part, as: UTF8.self)
            seen.withLock { [text] in $0 = text }
        }
        try connection.response("200 OK", content: "heard")
    }

    @Test("with `pass` the upstream has the first bytes before the client has sent the last")
    func passes() throws {
        let seen = Mutex("")
        let origin = try LoopbackOrigin { connection in
            guard try connection.receiveHead() != nil else { return }
            try Self.listen(to: connection, seen)
        }
        let test = try passing(origin.base)
        let wait = ScriptedExchange.Step.happens {
            try? eventually("the upstream has it") { seen.withLock { $0.contains("first") } }
        }
        let record = test.serve(
            ScriptedExchange(.post, "/live", [:], ["first", wait, "last"], length: .unknown)
        )
        #expect(record.status == 200)
        #expect(record.text == "heard")
        #expect(test.disk.count(.create) == 0)
        #expect(seen.withLock { $0.contains("last") })
    }

    @Test("a request marked as an upload is still received whole")
    func markedIsSpooled() throws {
        let origin = try LoopbackOrigin(status: "201 Created")
        let test = try passing(origin.base)
        let record = test.serve(.creation(["small"], fields: [.reprDigest: "sha-256=:AAAA:"]))
        #expect(record.status == 400)
        #expect(test.serve(.creation(["small"])).status == 201)
        let request = try #require(origin.requests.first)
        #expect(request.values("Content-Length") == ["5"])
    }

    @Test("`pass` enforces the size limit, with and without a length", arguments: [true, false])
    func limited(isLengthKnown: Bool) throws {
        let origin = try LoopbackOrigin(status: "201 Created")
        let test = try passing(origin.base, maxSize: 10)
        let steps = [ScriptedExchange.Step.text("123456"), "7890", "1"]
        let record = test.serve(
            ScriptedExchange(.post, "/live", [:], steps, length: isLengthKnown ? nil : .unknown)
        )
        #expect(record.status == 413)
        #expect(origin.requests.isEmpty)
        let whole = test.serve(
            ScriptedExchange(
                .post,
                "/live",
                [:],
                Array(steps.dropLast()),
                length: isLengthKnown ? nil : .unknown
            )
        )
        #expect(whole.status == 201)
        #expect(origin.requests.map { $0.contentLength } == [10])
    }

    @Test("`pass` authorizes requests, as `spool` does")
    func guarded() throws {
        let origin = try LoopbackOrigin(status: "201 Created")
        let asked = try LoopbackOrigin(status: "403 Forbidden", content: "not you")
        let test = try GatewayUnderTest(origin.target) { _, route in
            route.ordinary = .pass
            route.anonymous = .refuse
            route.authorization.url = try? ServiceURL(asked.base + "/ask")
        }
        let exchange = { ScriptedExchange(.put, "/f", [:], ["x"], context: $0) }
        let anonymous = exchange(ExchangeContext.empty)
        #expect(test.serve(anonymous).status == 403)
        #expect(asked.requests.isEmpty)
        let named = test.serve(exchange(ExchangeContext(owner: "alice")))
        #expect(named.text == "not you")
        #expect(asked.requests.count == 1)
        #expect(origin.requests.isEmpty)
    }

    // MARK: Incremental (RFC 10036)

    @Test(
        "a request for immediate forwarding is refused before any content is read",
        arguments: ["?1", "?1;a=b"]
    )
    func incrementalRefused(value: String) throws {
        let origin = try LoopbackOrigin(status: "201 Created")
        let test = try GatewayUnderTest(origin.target)
        let never = ScriptedExchange.Step.happens { Issue.record("content was read") }
        let record = test.serve(
            ScriptedExchange(.post, "/f", [.incremental: value], [never, "x"], length: .unknown)
        )
        #expect(record.status == 501)
        #expect(record[.proxyStatus] == "spoolgate; error=incremental_refused")
        #expect(record.text.contains(#""code":"incremental-refused""#))
        #expect(origin.requests.isEmpty)
    }

    @Test(
        "a false or malformed request for it is received whole",
        arguments: ["?0", "1", "true", "?1, ?1"]
    )
    func notIncremental(value: String) throws {
        let origin = try LoopbackOrigin(status: "201 Created")
        let test = try GatewayUnderTest(origin.target)
        #expect(
            test.serve(ScriptedExchange(.post, "/f", [.incremental: value], ["x"])).status == 201
        )
        #expect(origin.requests.map(\.contentLength) == [1])
    }

    @Test("with `ordinary: pass` it is streamed, with the field")
    func incrementalPasses() throws {
        let seen = Mutex("")
        let origin = try LoopbackOrigin { connection in
            guard let head = try connection.receiveHead() else { return }
            #expect(head.values("Incremental") == ["?1"])
            try Self.listen(to: connection, seen)
        }
        let test = try GatewayUnderTest(origin.target) { _, route in route.ordinary = .pass }
        let wait = ScriptedExchange.Step.happens {
            try? eventually("the upstream has it") { seen.withLock { $0.contains("first") } }
        }
        let streamed = test.serve(
            ScriptedExchange(
                .post,
                "/live",
                [.incremental: "?1"],
                ["first", wait, "last"],
                length: .unknown
            )
        )
        #expect(streamed.text == "heard")
    }

    @Test("an upload of the protocol is unaffected: the gateway is its recipient")
    func incrementalUpload() throws {
        let origin = try LoopbackOrigin(status: "201 Created")
        let test = try GatewayUnderTest(origin.target)
        #expect(test.serve(.creation(["small"], fields: [.incremental: "?1"])).status == 201)
        let request = try #require(origin.requests.first)
        #expect(request.values("Incremental").isEmpty)
    }
}
