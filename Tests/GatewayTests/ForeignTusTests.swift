// The behavior of real tus clients: locks, empty messages, spellings of URLs, invalid metadata.

import HTTPTypes
@testable import SpoolgateExchange
import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateTextFormats
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Testing

@testable import SpoolgateDelivery
@testable import SpoolgateRequests
@testable import SpoolgateSettings
@testable import SpoolgateSpool

@Suite("tus clients")
struct ForeignTusTests {
    private func request(
        _ method: HTTPRequest.Method,
        _ target: String,
        _ fields: HTTPFields = [:],
        _ steps: [ScriptedExchange.Step] = [],
        length: ContentLength? = nil,
        context: ExchangeContext = ExchangeContext.empty
    ) -> ScriptedExchange {
        var fields = fields
        fields[.tusResumable] = Tus.version
        return ScriptedExchange(method, target, fields, steps, length: length, context: context)
    }

    private func create(
        _ test: GatewayUnderTest,
        _ fields: HTTPFields = [:],
        length: ContentLength = .known(0)
    ) -> ScriptedExchange.Record {
        var fields = fields
        if fields[.uploadLength] == nil { fields[.uploadLength] = "5" }
        return test.serve(request(.post, "/files", fields, [], length: length))
    }

    private func patch(_ location: String, _ text: String = "hello", at offset: Int = 0)
        -> ScriptedExchange
    {
        request(
            .patch,
            location,
            [.contentType: Tus.mediaType, .uploadOffset: "\(offset)"],
            [.bytes(Array(text.utf8))]
        )
    }

    /// Its upstream responds once the gate is open.
    private func holdingDelivery() throws -> (GatewayUnderTest, LoopbackOrigin, Gate) {
        let gate = Gate()
        let origin = try LoopbackOrigin { connection in
            while try connection.receiveRequest() != nil {
                gate.pass()
                try connection.response("201 Created")
            }
        }
        let test = try GatewayUnderTest(origin.target) { settings, _ in
            settings.inUseTimeout = .milliseconds(200)
        }
        return (test, origin, gate)
    }

    @Test(
        "a request for an upload under delivery gets 423 soon, returns, and the upstream gets it once"
    )
    func locked() throws {
        let (test, origin, gate) = try holdingDelivery()
        defer { gate.open() }
        let location = try #require(create(test).location)
        // Its proxy times out, so the client receives no response. The delivery continues.
        let running = try test.start(patch(location))
        try eventually("the delivery has begun") { origin.requests.count == 1 }
        for method in [HTTPRequest.Method.head, .patch, .delete] {
            let exchange =
                method == .patch ? patch(location, "", at: 5) : request(method, location)
            let record = test.serve(exchange)
            #expect(record.status == 423, "\(method)")
            #expect(record[.retryAfter] != nil, "\(method)")
        }
        gate.open()
        #expect(try running.finish().status == 204)
        #expect(test.serve(request(.head, location)).offset == 5)
        #expect(test.serve(patch(location, "", at: 5)).status == 204)
        let cancelled = test.serve(request(.delete, location))
        #expect(cancelled.status == 410)
        #expect(origin.requests.count == 1)
    }

    @Test("an upload that the upstream refused can be canceled")
    func refused() throws {
        let origin = try LoopbackOrigin(status: "422 x")
        let test = try GatewayUnderTest(origin.target)
        let location = try #require(create(test).location)
        _ = test.serve(patch(location))
        #expect(test.serve(request(.delete, location)).status == 204)
    }

    private func metadata(_ pairs: [(String, String)]) -> HTTPFields {
        let text = pairs.map { "\($0) \(Base64.encode(Array($1.utf8)))" }.joined(separator: ",")
        return [.uploadMetadata: text]
    }

    @Test(
        "a file's type is its filetype, never the type of a message without content",
        arguments: [
            ("application/x-www-form-urlencoded", "image/png", "image/png"),
            ("text/plain", nil, "application/octet-stream"),
            (nil, "multipart/form-data; boundary=x", "application/octet-stream"),
            ("multipart/form-data; boundary=x", "MultiPart/Mixed", "application/octet-stream"),
        ] as [(String?, String?, String)]
    )
    func type(told: String?, filetype: String?, sent: String) throws {
        let origin = try LoopbackOrigin()
        let test = try GatewayUnderTest(origin.target) { _, route in route.form = .multipart }
        var fields = metadata([("filename", "a.png")] + (filetype.map { [("filetype", $0)] } ?? []))
        fields[.contentType] = told
        let location = try #require(create(test, fields).location)
        #expect(test.serve(patch(location)).status == 204)
        let request = try #require(origin.requests.first)
        #expect(
            request.values("Content-Type").first?.hasPrefix(
                "multipart/form-data; boundary=spoolgate"
            ) == true
        )
        let text = String(decoding: request.content, as: UTF8.self)
        #expect(text.contains("filename=\"a.png\"\r\nContent-Type: \(sent)\r\n\r\nhello"))
    }

    @Test(
        "a partial upload's own multipart type is ignored",
        arguments: ["multipart/mixed; boundary=a", "Multipart/related"]
    )
    func partOfParts(type: String) throws {
        let origin = try LoopbackOrigin()
        let test = try GatewayUnderTest(origin.target) { _, route in route.form = .multipart }
        #expect(test.serve(.creation(fields: [.contentType: type])).status == 200)
        let text = String(decoding: try #require(origin.requests.first).content, as: UTF8.self)
        #expect(text.contains("\r\nContent-Type: application/octet-stream\r\n\r\nhello"))
    }

    @Test(
        "metadata is not hidden by the name of a field that was not sent",
        arguments: [true, false]
    )
    func hiddenMetadata(comes: Bool) throws {
        let origin = try LoopbackOrigin()
        let test = try GatewayUnderTest(origin.target) { _, route in
            route.form = .multipart
            route.multipart.fromFields = [.init(name: "title", source: .made("X-Title"))]
        }
        var fields = metadata([("title", "of metadata")])
        if comes { fields[.made("X-Title")] = "of the field" }
        let location = try #require(create(test, fields).location)
        #expect(test.serve(patch(location)).status == 204)
        let text = String(decoding: try #require(origin.requests.first).content, as: UTF8.self)
        #expect(text.contains("of the field") == comes)
        #expect(text.contains("of metadata") == !comes)
    }

    @Test(
        "a checksum has no effect on a message without content",
        arguments: [ContentLength.known(0), .unknown]
    )
    func checksumOfNothing(length: ContentLength) throws {
        let test = try GatewayUnderTest()
        let checksum: HTTPFields = [.uploadChecksum: "sha1 qvTGHdzF6KLavt4PO0gs2a6pQ00="]
        let record = create(test, checksum, length: length)
        #expect(record.status == 201)
        let location = try #require(record.location)
        let empty = request(
            .patch,
            location,
            [.contentType: Tus.mediaType, .uploadOffset: "0", .uploadChecksum: "crc32 x"],
            [],
            length: .known(0)
        )
        #expect(test.serve(empty).status == 204)
        #expect(test.serve(patch(location)).status == 204)
    }

    @Test("a creation of unknown length and any type is refused only if it has content")
    func typeOfNothing() throws {
        let test = try GatewayUnderTest()
        let type: HTTPFields = [.contentType: "text/plain", .uploadLength: "5"]
        #expect(create(test, type, length: .unknown).status == 201)
        let some = test.serve(request(.post, "/files", type, ["x"], length: .unknown))
        #expect(some.status == 415)
        #expect(try test.summaries().count == 1)
    }

    @Test(
        "a length with too many digits is too large",
        arguments: ["1000000000000000", "99999999999999999999"]
    )
    func length(digits: String) throws {
        let test = try GatewayUnderTest()
        #expect(create(test, [.uploadLength: digits]).status == 413)
        #expect(create(test, [.uploadLength: "-\(digits)"]).status == 400)
    }

    @Test(
        "a partial upload may be named by any URL of this service, and by no other",
        arguments: [
            ("", 201), ("https://uploads.example", 201), ("HTTPS://Uploads.Example:443", 201),
            ("http://inside.example:8080", 201), ("https://INSIDE.example:8080", 201),
            ("https://evil.example", 400), ("https://uploads.example:444", 400),
            ("ftp://uploads.example", 400),
            ("//uploads.example", 400), ("https://uploads.example@evil.example", 400),
        ]
    )
    func partURL(origin: String, status: Int) throws {
        let test = try GatewayUnderTest { _, route in
            route.uploadResources = "/files/resources/"
        }
        let part = test.serve(
            request(
                .post,
                "/files",
                [.uploadConcat: "partial", .uploadLength: "1", .contentType: Tus.mediaType],
                ["x"]
            )
        )
        let path = try #require(part.location)
        let final = request(
            .post,
            "/files",
            [.uploadConcat: "final;\(origin)\(path)", .host: "inside.example:8080"],
            [],
            length: .known(0),
            // Without a configured origin, the host of the request is the gateway's.
            context: ExchangeContext(
                origin: origin.lowercased().contains("inside") ? nil : "https://uploads.example"
            )
        )
        let record = test.serve(final)
        #expect(record.status == status)
        if status == 400 { #expect(record.text.contains("\(origin)\(path)".prefix(200))) }
    }

    @Test("a creation whose upload would have a URL that web servers refuse is refused itself")
    func longPath() throws {
        let test = try GatewayUnderTest()
        func status(_ count: Int) -> Int? {
            let target = "/" + String(repeating: "a", count: count)
            let fields: HTTPFields = [.uploadLength: "5"]
            return test.serve(request(.post, target, fields, [], length: .known(0))).status
        }
        #expect(status(7_900) == 201)
        #expect(status(8_000) == 414)
        #expect(
            test.serve(
                .creation(complete: false, target: "/" + String(repeating: "a", count: 8_000))
            ).status == 414
        )
    }

    @Test("a tus client whose proxy timed out returns, and the upstream gets the upload once")
    func tusProxy() throws {
        let (test, origin, gate) = try holdingDelivery()
        defer { gate.open() }
        let created = test.serve(
            request(.post, "/files", [.uploadLength: "5"], [], length: .known(0))
        )
        let location = try #require(created.location)
        let first = patch(location)
        let running = try test.start(first)
        try eventually("the delivery has begun") { origin.requests.count == 1 }
        first.abandon()
        for _ in 0..<3 {
            let look = test.serve(request(.head, location))
            #expect(look.status == 423)
            #expect(look[.retryAfter] != nil)
        }
        gate.open()
        _ = try running.finish()
        let look = test.serve(request(.head, location))
        #expect(look.status == 200)
        #expect(look.offset == 5)
        #expect(test.serve(patch(location, "", at: 5)).status == 204)
        #expect(origin.requests.count == 1)
    }

    @Test("a draft client whose proxy timed out returns, and the upstream gets the upload once")
    func draftProxy() throws {
        let (test, origin, gate) = try holdingDelivery()
        defer { gate.open() }
        let location = try #require(
            test.serve(.creation(complete: false)).location
        )
        let offset = try #require(test.serve(.retrieval(location)).offset)
        let first = ScriptedExchange.append(location, at: offset, [" world"])
        let running = try test.start(first)
        try eventually("the delivery has begun") { origin.requests.count == 1 }
        first.abandon()
        // The response to the draft client's HEAD meanwhile.
        let look = test.serve(.retrieval(location))
        #expect(look.isAborted)
        let back = ScriptedExchange.append(location, at: offset + 6)
        let again = try test.start(back)
        gate.open()
        _ = try running.finish()
        let end = try again.finish()
        #expect(end.status == 201)
        #expect(origin.requests.count == 1)
    }

    @Test("an unreadable checksum has no effect on empty content of unknown length")
    func checksum() throws {
        let test = try GatewayUnderTest()
        let record = test.serve(
            request(
                .post,
                "/files",
                [.uploadLength: "5", .uploadChecksum: "crc32 x"],
                [],
                length: .unknown
            )
        )
        #expect(record.status == 201)
    }

    @Test(
        "a partial upload at another host's network-path reference is refused",
        arguments: ["//evil.example", "https://evil.example"]
    )
    func networkPath(origin: String) throws {
        let test = try GatewayUnderTest()
        let part = test.serve(
            request(
                .post,
                "/files",
                [.uploadConcat: "partial", .uploadLength: "1", .contentType: Tus.mediaType],
                ["x"]
            )
        )
        let path = try #require(part.location)
        let record = test.serve(
            request(
                .post,
                "/files",
                [.uploadConcat: "final;\(origin)\(path)"],
                [],
                length: .known(0),
                context: ExchangeContext(origin: "https://uploads.example")
            )
        )
        #expect(record.status == 400)
    }
}
