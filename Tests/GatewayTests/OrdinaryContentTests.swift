// Uploads without a resource of their own: received whole, then delivered or refused.

import Foundation
import HTTPTypes
import Logging
import Posix
import TestSupport
import Testing
import UploadProtocol
import Upstream

@testable import Exchange
@testable import Gateway
@testable import Settings

@Suite struct OrdinaryContentTests {
    private static let capacity = OrdinaryContent.memoryLimit

    private func bytes(_ count: Int) -> [UInt8] {
        (0..<count).map { UInt8(truncatingIfNeeded: $0 &* 31 &+ $0 >> 8) }
    }

    @Test(
        "small content stays in memory, larger content goes to a nameless file, all of it arrives",
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
        #expect(test.log.messages == ["ordinary upload delivered"])
    }

    @Test(
        "content that is cut is delivered to nobody and kept nowhere",
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

    @Test("content over max-size is refused: before it is read where its length is known")
    func tooLarge() throws {
        let test = try GatewayUnderTest { _, route in route.limits.maxSize = 9 }
        let known = test.serve(ScriptedExchange(.post, "/p", [:], [.text("0123456789")]))
        #expect(known.events == [.head(413)])
        let unknown = test.serve(
            ScriptedExchange(.post, "/p", [:], [.text("0123456789")], length: .unknown)
        )
        #expect(unknown.events == [.read, .head(413)])
        for record in [known, unknown] {
            #expect(record[.contentType] == "application/problem+json")
            #expect(record[.uploadComplete] == nil)
        }
        #expect(test.serve(ScriptedExchange(.post, "/p", [:], [.text("012345678")])).status == 201)
        #expect(try test.drops().count == 1)
    }

    @Test("a creation below min-size costs no resource and no 104")
    func belowMinimum() throws {
        let test = try GatewayUnderTest { _, route in route.limits.minSize = 6 }
        let small = test.serve(.creation([.text("hello")], complete: true))
        #expect(small.events == [.read, .head(201)])
        #expect(test.disk.count(.create) == 0)
        let large = test.serve(.creation([.text("hello!")], complete: true))
        #expect(large.events == [.interim(104), .read, .head(201)])
    }

    @Test("an upstream that is not there is 502, without the protocol's fields")
    func upstreamDown() throws {
        let test = try GatewayUnderTest(.unix(path: "/dev/null/none.sock"))
        let record = test.serve(ScriptedExchange(.post, "/p", [:], [.text("x")]))
        #expect(record.status == 502)
        #expect(record[.uploadComplete] == nil)
        #expect(!record.text.contains("none.sock"))
        #expect(test.log.level(of: "ordinary upload failed") == .warning)
    }

    @Test("a web server that gave up before the delivery stops it")
    func abandoned() throws {
        let test = try GatewayUnderTest()
        let exchange = ScriptedExchange(.post, "/p", [:], [.text("x")])
        exchange.abandon()
        #expect(test.serve(exchange).events == [.read, .abort])
        #expect(try test.drops().isEmpty)
    }

    @Test("a client that leaves in the middle of the answer was delivered for all that")
    func clientGone() throws {
        let origin = try LoopbackOrigin(status: "201 Created", content: "taken")
        let test = try GatewayUnderTest(.http(base: origin.base))
        let exchange = ScriptedExchange(.post, "/p", [:], [.text("x")])
        exchange.leave(after: 0)
        #expect(test.serve(exchange).isAborted)
        #expect(test.log.messages == ["ordinary upload delivered", "client gone"])
        #expect(test.log.values(of: "status", in: "ordinary upload delivered") == ["201"])
        #expect(test.log.level(of: "client gone") == .debug)
    }

    @Test("the upstream gets the request as sent, its length known, and who stands behind it")
    func asSent() throws {
        let origin = try LoopbackOrigin(status: "202 Accepted", content: "taken")
        let test = try GatewayUnderTest(.http(base: origin.base))
        let context = ExchangeContext(remoteAddress: "192.0.2.7", scheme: "https")
        let record = test.serve(
            ScriptedExchange(
                .post,
                "/in?a=b",
                [.contentType: "text/x", .cookie: "k=v", .transferEncoding: "chunked"],
                [.text("ab"), .text("c")],
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

    @Test("a full spool refuses only what does not fit in memory, in an ordinary client's words")
    func full() throws {
        let test = try GatewayUnderTest(reserve: 1 << 60)
        #expect(test.serve(ScriptedExchange(.post, "/p", [:], [.text("x")])).status == 201)
        let record = test.serve(
            ScriptedExchange(.post, "/p", [:], [.bytes(bytes(Self.capacity + 1))])
        )
        #expect(record.status == 507)
        #expect(record[.retryAfter] != nil)
        #expect(record[.uploadComplete] == nil)
        #expect(test.log.level(of: "spool failed") == .error)
    }
}
