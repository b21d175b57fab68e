// When deliveries begin, what is kept after a failure, and that none happens twice.

import Foundation
import HTTPTypes
import Logging
@testable import SpoolgateExchange
import SpoolgatePosix
import SpoolgateRequests
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Testing

@Suite struct DeliveryTests {
    /// Reads each request completely and closes the connection.
    private static func silentOrigin() throws -> LoopbackOrigin {
        try LoopbackOrigin { connection in _ = try connection.receiveRequest() }
    }

    @Test("one regular request is made from the creation, without the protocol's fields")
    func request() throws {
        let origin = try LoopbackOrigin()
        let test = try GatewayUnderTest(.http(base: "\(origin.base)/base"))
        let creation = test.serve(
            .creation(
                ["one ", .fails(.truncated)],
                length: .known(9),
                target: "/in?x=1",
                fields: [.contentType: "text/plain", .authorization: "Bearer t"],
                context: ExchangeContext(
                    interimStatuses: [104],
                    remoteAddress: "192.0.2.7",
                    scheme: "https"
                )
            )
        )
        let location = try #require(creation.location)
        let fields: HTTPFields = [.authorization: "Bearer of the append"]
        let record = test.serve(.append(location, at: 4, ["two", "!!"], fields: fields))
        #expect(record.status == 200)
        let request = try #require(origin.requests.first)
        #expect(origin.requests.count == 1)
        #expect(request.line == "POST /base/in?x=1 HTTP/1.1")
        #expect(request.content == Array("one two!!".utf8))
        #expect(request.values("Content-Length") == ["9"])
        #expect(request.values("Content-Type") == ["text/plain"])
        #expect(request.values("Authorization") == ["Bearer of the append"])
        #expect(request.values("X-Forwarded-For") == ["192.0.2.7"])
        #expect(!request.fieldLines.contains { $0.lowercased().hasPrefix("upload-") })
    }

    @Test(
        "Idempotency-Key is sent if the upstream honors it, the client's own before the gateway's"
    )
    func idempotencyKey() throws {
        let origin = try LoopbackOrigin()
        let test = try GatewayUnderTest(origin.target) { _, route in
            route.honoursIdempotencyKey = true
        }
        let ours = test.serve(.creation(["x"]))
        let location = try #require(ours.location)
        let key = try #require(HTTPField.Name("Idempotency-Key"))
        test.serve(.creation(["x"], fields: [key: "\"mine\""]))
        let keys = origin.requests.flatMap { $0.values("Idempotency-Key") }
        #expect(keys.count == 2)
        #expect(location.hasSuffix(try #require(keys.first).filter { $0 != "\"" }))
        #expect(keys.last == "\"mine\"")
    }

    @Test("an upstream that is down loses nothing: the content stays, an empty append tries again")
    func upstreamDown() throws {
        let socket = QueueScene.socketPath()
        defer { unlink(socket) }
        let test = try GatewayUnderTest(.unix(path: socket))
        let record = test.serve(.creation())
        #expect(record.status == 502)
        #expect(record[.uploadComplete] == "?0")
        #expect(record.offset == 5)
        #expect(record[.retryAfter] != nil)
        #expect(!record.text.contains(socket))
        let location = try #require(record.location)
        #expect(try test.queue(of: location) == .deferred)
        #expect(test.disk.count(.sync, on: ".data") == 1)
        let told = test.serve(.retrieval(location))
        #expect(told.status == 204)
        #expect(told.offset == 5)
        #expect(told[.uploadComplete] == "?0")
        #expect(test.serve(.append(location, at: 5)).status == 502)

        let origin = try LoopbackOrigin(socketPath: socket, status: "201 Created")
        try test.age(location, by: 2)
        let done = test.serve(.append(location, at: 5))
        #expect(done.status == 201)
        #expect(done[.uploadComplete] == "?1")
        #expect(origin.requests.map(\.content) == [Array("hello".utf8)])
        #expect(try test.queue(of: location) == .delivered)
        #expect(test.serve(.retrieval(location))[.uploadComplete] == "?1")
    }

    @Test("the empty append may have content of unknown length, which must turn out empty")
    func emptyStream() throws {
        let socket = QueueScene.socketPath()
        defer { unlink(socket) }
        let test = try GatewayUnderTest(.unix(path: socket))
        let location = try #require(test.serve(.creation()).location)
        let origin = try LoopbackOrigin(socketPath: socket)
        let more = test.serve(.append(location, at: 5, ["!"], length: .unknown))
        #expect(more.status == 400)
        #expect(more.offset == 5)
        #expect(origin.requests.isEmpty)
        let none = test.serve(.append(location, at: 5, length: .unknown))
        #expect(none.status == 200)
        #expect(origin.requests.map(\.content) == [Array("hello".utf8)])
    }

    @Test("a POST that the upstream read without a response is never sent again")
    func indeterminate() throws {
        let origin = try Self.silentOrigin()
        let test = try GatewayUnderTest(origin.target)
        let record = test.serve(.creation())
        #expect(record.status == 502)
        #expect(record[.uploadComplete] == "?1")
        let location = try #require(record.location)
        #expect(try test.queue(of: location) == .hold)
        #expect(test.log.level(of: "delivery outcome unknown") == .error)
        for version in [nil, 3, 5, 6, 10] {
            #expect(test.serve(.retrieval(location, version: version)).status == 410)
        }
        let again = test.serve(.append(location, at: 5))
        #expect(again.status == 502)
        #expect(again[.uploadComplete] == "?1")
        #expect(origin.requests.count == 1)
        #expect(origin.connectionCount == 1)
    }

    @Test("an upstream that aborts in the middle was reached, and its client is told so")
    func requestAborted() throws {
        let origin = try LoopbackOrigin { connection in
            _ = try connection.receiveHead()
            _ = connection.receive()
            connection.reset()
        }
        let test = try GatewayUnderTest(origin.target)
        let content = [UInt8](repeating: 7, count: 4 << 20)
        let record = test.serve(.creation([.bytes(content)], method: .put))
        #expect(record.status == 502)
        #expect(record[.uploadComplete] == "?0")
        #expect(record[.retryAfter] != nil)
        #expect(
            record.text.contains(
                "stored and was sent to the upstream server, but no response was received"
            ),
            "\(record.text)"
        )
        #expect(!record.text.contains("the connection failed"))
    }

    @Test(
        "if repeating is safe, an upstream without a response is tried again",
        arguments: [(.put, false), (.post, true)] as [(HTTPRequest.Method, Bool)]
    )
    func repeatable(method: HTTPRequest.Method, honoursKey: Bool) throws {
        let origin = try LoopbackOrigin { connection in
            guard let request = try connection.receiveRequest() else { return }
            if request.number > 0 { try connection.response("204 No Content") }
        }
        let test = try GatewayUnderTest(origin.target) { _, route in
            route.honoursIdempotencyKey = honoursKey
        }
        let record = test.serve(.creation(method: method))
        #expect(record.status == 502)
        #expect(record[.uploadComplete] == "?0")
        #expect(record.offset == 5)
        let location = try #require(record.location)
        #expect(try test.queue(of: location) == .deferred)
        let done = test.serve(.append(location, at: 5))
        #expect(done.status == 204)
        #expect(origin.requests.map(\.content) == [Array("hello".utf8), Array("hello".utf8)])
    }

    @Test(
        "versions 5 and 6 receive offset == length only with the result",
        arguments: [5, 6]
    )
    func deliveryBeforeSuccess(version: Int) throws {
        let socket = QueueScene.socketPath()
        defer { unlink(socket) }
        let test = try GatewayUnderTest(.unix(path: socket))
        let location = try #require(test.serve(.creation(version: version)).location)
        let locked = test.serve(.retrieval(location, version: version))
        #expect(locked.status == 423)
        #expect(locked.offset == nil)
        #expect(locked[.retryAfter] != nil)
        let origin = try LoopbackOrigin(socketPath: socket)
        try test.age(location, by: 2)
        let told = test.serve(.retrieval(location, version: version))
        #expect(told.status == 204)
        // The client has not received the final response yet.
        #expect(told[.uploadComplete] == "?0")
        #expect(told.offset == 5)
        #expect(origin.requests.count == 1)
        #expect(try test.queue(of: location) == .delivered)
    }

    @Test(
        "content that reaches the length is whole for versions 5 and 6, although it says incomplete",
        arguments: [5, 6, 8],
        [ContentLength.known(2), .unknown]
    )
    func wholeByLength(version: Int, length: ContentLength) throws {
        let test = try GatewayUnderTest()
        let location = test.createPartial("hel", uploadLength: 5, version: version)
        let last = test.serve(
            .append(location, at: 3, ["lo"], complete: false, length: length, version: version)
        )
        let isWhole = version < 8
        #expect(last[.uploadComplete] == (isWhole ? "?1" : "?0"))
        #expect(try test.drops() == (isWhole ? [Array("hello".utf8)] : []))
        // It may say "complete" later, and hears the same.
        #expect(test.serve(.append(location, at: 5, version: version)).status == 201)
        #expect(try test.drops() == [Array("hello".utf8)])
        let creation = test.serve(
            .creation(["hello"], complete: false, uploadLength: 5, version: version)
        )
        #expect(creation.status == 201 && creation.location != nil)
        #expect(creation[.uploadComplete] == (isWhole ? "?1" : "?0"))
        #expect(try test.drops().count == (isWhole ? 2 : 1))
    }

    @Test(
        "after a crash at any call of the completion, versions 5 and 6 hear offset == length only with success",
        arguments: [5, 6],
        [ContentLength.known(2), .unknown]
    )
    func crashed(version: Int, length: ContentLength) throws {
        var count = 0
        var isEnded = false
        while !isEnded {
            let test = try GatewayUnderTest()
            let location = test.createPartial(
                "hel",
                uploadLength: length == .unknown ? nil : 5,
                version: version
            )
            test.disk.die(after: count)
            let append = test.serve(
                .append(location, at: 3, ["lo"], length: length, version: version)
            )
            test.disk.allow()
            isEnded = append.status == 201
            let told = test.serve(.retrieval(location, version: version))
            if told.offset == 5, told.status == 204 {
                #expect(try test.drops() == [Array("hello".utf8)], "after \(count) calls")
            }
            count += 1
        }
        #expect(count > 3)
    }

    @Test("a web server that left before the delivery stops it; the client returns for it")
    func abandoned() throws {
        let test = try GatewayUnderTest()
        let exchange = ScriptedExchange.creation()
        exchange.abandon()
        let record = test.serve(exchange)
        #expect(record.events == [.interim(104), .read, .abort])
        #expect(try test.drops().isEmpty)
        let location = try #require(record.location)
        #expect(test.serve(.retrieval(location)).offset == 5)
        #expect(test.serve(.append(location, at: 5)).status == 201)
        #expect(try test.drops() == [Array("hello".utf8)])
    }

    @Test(
        "an upload whose web server left at its last byte is not reported as success either",
        arguments: [5, 6],
        [ContentLength.known(2), .unknown]
    )
    func abandonedThenAsked(version: Int, length: ContentLength) throws {
        let test = try GatewayUnderTest()
        let isKnown = length != .unknown
        let location = test.createPartial(
            "hel",
            uploadLength: isKnown ? 5 : nil,
            version: version
        )
        let exchange = ScriptedExchange.append(
            location,
            at: 3,
            ["lo"],
            length: length,
            version: version
        )
        exchange.abandon()
        #expect(test.serve(exchange).isAborted)
        let told = test.serve(.retrieval(location, version: version))
        #expect(told.status == 204)
        #expect(told[.uploadComplete] == "?0")
        #expect(told.offset == 4)
        #expect(try test.drops().isEmpty)
        let last = ScriptedExchange.append(location, at: 4, ["o"], version: version)
        #expect(test.serve(last).status == 201)
        #expect(try test.drops() == [Array("hello".utf8)])
    }
}
