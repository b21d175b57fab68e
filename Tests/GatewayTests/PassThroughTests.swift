// Requests other than uploads: streamed to the upstream and back without additions.

import HTTPTypes
import Logging
import SpoolgateExchange
import SpoolgatePosix
import SpoolgateRequests
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Testing

@Suite struct PassThroughTests {

    @Test(
        "content passes through, of known and of unknown length",
        arguments: [true, false],
        [0, 3, 400_000]
    )
    func content(isLengthKnown: Bool, count: Int) throws {
        let origin = try LoopbackOrigin(content: "seen")
        let test = try GatewayUnderTest(origin.target)
        let content = (0..<count).map { UInt8(truncatingIfNeeded: $0 &* 7 &+ $0 >> 9) }
        let steps = stride(from: 0, to: count, by: 150_000)
            .map { ScriptedExchange.Step.bytes(Array(content[$0...].prefix(150_000))) }
        let record = test.serve(
            ScriptedExchange(
                .delete,
                "/dav?x=%20",
                [.range: "bytes=0-1", .ifNoneMatch: "\"e\""],
                steps,
                length: isLengthKnown ? nil : .unknown
            )
        )
        #expect(record.status == 200)
        #expect(record.text == "seen")
        let request = try #require(origin.requests.first)
        #expect(request.line == "DELETE /dav?x=%20 HTTP/1.1")
        #expect(request.content == content)
        #expect(request.values("Range") == ["bytes=0-1"])
        #expect(request.values("If-None-Match") == ["\"e\""])
        let isChunked = !isLengthKnown && count > 0
        #expect(request.values("Transfer-Encoding") == (isChunked ? ["chunked"] : []))
        #expect(test.disk.count(.create) == 0)
    }

    @Test("a response passes through with its fields, its length and its status")
    func response() throws {
        let origin = try LoopbackOrigin(
            status: "206 Partial Content",
            fields: ["Content-Range: bytes 0-1/9", "Upload-Offset: 7", "Connection: keep-alive"],
            content: "ab"
        )
        let test = try GatewayUnderTest(origin.target)
        let record = test.serve(ScriptedExchange(.get, "/f", length: .unknown))
        #expect(record.status == 206)
        #expect(record.contentLength == 2)
        #expect(record[.contentRange] == "bytes 0-1/9")
        // An upstream's own protocol fields pass unchanged.
        #expect(record.offset == 7)
        #expect(record[.connection] == nil)
    }

    @Test(
        "a Destination at the gateway's own origin gets the scheme and the path of the upstream",
        arguments: [
            ("https://files.example/dav/b%20c?x=1", "/dav/b%20c?x=1"),
            ("HTTPS://Files.Example:443/dav/b", "/dav/b"), ("https://files.example", "/"),
            ("https://files.example?x", "/?x"),
            ("http://files.example/dav/b", nil), ("https://files.example:8443/b", nil),
            ("https://files.example.evil.test/b", nil), ("https://u@files.example/b", nil),
            ("https://other.example/b", nil), ("/dav/b", nil), ("https://files.example/b c", nil),
            ("https://files.example@other.example/b", nil), ("nonsense", nil),
        ] as [(String, String?)],
        ["", "/base"]
    )
    func destination(told: (value: String, path: String?), base: String) throws {
        let origin = try LoopbackOrigin(status: "201 Created")
        let test = try GatewayUnderTest(.http(base: origin.base + base))
        var context = ExchangeContext.empty
        context.origin = "https://files.example"
        let fields: HTTPFields = [.destination: told.value, .host: "files.example"]
        for method in ["MOVE", "COPY"] {
            let method = try #require(HTTPRequest.Method(method))
            let record = test.serve(
                ScriptedExchange(method, "/dav/a", fields, context: context)
            )
            #expect(record.status == 201)
        }
        let expected = told.path.map { "http://files.example\(base)\($0)" } ?? told.value
        #expect(origin.requests.map { $0.values("Destination") } == [[expected], [expected]])
        #expect(origin.requests.first?.line == "MOVE \(base)/dav/a HTTP/1.1")
    }

    @Test("a Destination is unchanged if no origin is known, or another host is named")
    func foreignDestination() throws {
        let origin = try LoopbackOrigin(status: "201 Created")
        let set = HTTPField(name: .host, value: "dav.internal")
        let test = try GatewayUnderTest(origin.target) { _, route in route.fields.set = [set] }
        let method = try #require(HTTPRequest.Method("MOVE"))
        let fields: HTTPFields = [.destination: "https://files.example/b"]
        test.serve(ScriptedExchange(method, "/a", fields))
        var context = ExchangeContext.empty
        context.origin = "https://files.example"
        test.serve(ScriptedExchange(method, "/a", fields, context: context))
        let told = origin.requests.map { $0.values("Destination") }
        // The host of the requests to the upstream.
        #expect(told == [["https://files.example/b"], ["http://dav.internal/b"]])
    }

    @Test(
        "a field that makes a web server send a file is logged once",
        arguments: ["X-Accel-Redirect", "X-Sendfile", "X-LIGHTTPD-send-file"],
        [HTTPRequest.Method.get, .post]
    )
    func steering(field: String, method: HTTPRequest.Method) throws {
        let origin = try LoopbackOrigin(fields: ["\(field): /protected/f"], content: "")
        let test = try GatewayUnderTest(origin.target)
        for _ in 0..<3 {
            let exchange =
                method == .get
                ? ScriptedExchange(.get, "/f", length: .unknown) : .creation(complete: true)
            #expect(test.serve(exchange).status == 200)
        }
        #expect(test.log.values(of: "field", in: "upstream field ignored") == [field])
        #expect(test.log.level(of: "upstream field ignored") == .warning)
    }

    @Test("OPTIONS reports the gateway's limits and extensions, not the upstream's")
    func ownOptions() throws {
        let origin = try LoopbackOrigin(
            status: "204 No Content",
            fields: ["Upload-Limit: max-size=1", "Tus-Version: 0.2", "Tus-Max-Size: 1"],
            content: ""
        )
        let test = try GatewayUnderTest(origin.target)
        let record = test.serve(ScriptedExchange(.options, "/files", length: .unknown))
        let names = (record.head?.fields ?? [:]).map(\.name.canonicalName)
        for name in ["upload-limit", "tus-version", "tus-max-size"] {
            #expect(names.count { $0 == name } == 1, "\(name)")
        }
        #expect(record[.uploadLimit]?.contains("max-size=1,") == false)
    }

    @Test("HEAD passes through with the length that GET would have")
    func head() throws {
        let origin = try LoopbackOrigin(content: "0123456789")
        let test = try GatewayUnderTest(origin.target)
        let record = test.serve(ScriptedExchange(.head, "/f", length: .unknown))
        #expect(record.status == 200)
        #expect(record.contentLength == 10)
        #expect(record.content.isEmpty)
    }

    @Test(
        "OPTIONS gains the limits; a target without OPTIONS still accepts uploads",
        arguments: [
            ("405 Method Not Allowed", 200, ""), ("501 Not Implemented", 200, ""),
            ("200 OK", 200, "text"), ("204 No Content", 204, ""), ("403 Forbidden", 403, "text"),
        ]
    )
    func options(upstream: String, status: Int, content: String) throws {
        let origin = try LoopbackOrigin { connection in
            while try connection.receiveRequest() != nil {
                let isEmpty = upstream.hasPrefix("204")
                try connection.response(
                    upstream,
                    fields: ["Allow: GET, POST", "Content-Type: text/plain", "ETag: \"1\""],
                    content: isEmpty ? "" : "text"
                )
            }
        }
        let test = try GatewayUnderTest(origin.target)
        let record = test.serve(ScriptedExchange(.options, "/files", length: .unknown))
        #expect(record.status == status)
        #expect(record.text == content)
        #expect(record[.allow] == "GET, POST")
        #expect((record[.uploadLimit] != nil) == (status < 300))
        #expect((record[.contentType] == nil) == content.isEmpty || status == 204)
        #expect(origin.requests.first?.line == "OPTIONS /files HTTP/1.1")
    }

    @Test("an upstream that is down is 502 without an internal name")
    func upstreamDown() throws {
        let test = try GatewayUnderTest(.unix(path: "/dev/null/none.sock"))
        let record = test.serve(ScriptedExchange(.get, "/f", length: .unknown))
        #expect(record.status == 502)
        #expect(!record.text.contains("none.sock"))
        #expect(test.log.level(of: "request failed") == .warning)
    }

    @Test(
        "an incomplete response is 502 if none of it was sent, and otherwise closes the connection",
        arguments: [HTTPRequest.Method.get, .post, .put],
        OrdinaryUploads.allCases
    )
    func truncatedResponse(
        method: HTTPRequest.Method,
        ordinary: OrdinaryUploads
    ) throws {
        let origin = try LoopbackOrigin.truncating()
        let test = try GatewayUnderTest(origin.target) { _, route in route.ordinary = ordinary }
        for (index, response) in TruncatedResponse.all.enumerated() {
            let content: [ScriptedExchange.Step] = method == .get ? [] : ["hello"]
            let record = test.serve(ScriptedExchange(method, "/f?\(index)", [:], content))
            #expect(record.status == (response.isBegun ? 200 : 502), "\(response)")
            #expect(record.isAborted == response.isBegun, "\(response)")
            #expect(record.faults.isEmpty)
            // The client must check whether the request was processed.
            #expect(response.isBegun || record.text.contains("Check whether it was processed"))
        }
        #expect(origin.requests.count == TruncatedResponse.all.count)
    }

    @Test(
        "a response without content is complete although the upstream closes its connection",
        arguments: [(.head, 200), (.get, 204), (.get, 304)] as [(HTTPRequest.Method, Int)]
    )
    func noContent(method: HTTPRequest.Method, status: Int) throws {
        let origin = try LoopbackOrigin { connection in
            _ = try connection.receiveRequest()
            try connection.send("HTTP/1.1 \(status) x\r\nContent-Length: 5\r\n\r\n")
        }
        let test = try GatewayUnderTest(origin.target)
        let record = test.serve(ScriptedExchange(method, "/f", [:], []))
        #expect(record.status == status)
        #expect(!record.isAborted)
    }

    @Test(
        "a request whose content is cut ends without a response",
        arguments: [ContentError.truncated, .stalled],
        [.known(9), .unknown] as [ContentLength]
    )
    func cutRequest(error: ContentError, length: ContentLength) throws {
        let origin = try LoopbackOrigin()
        let test = try GatewayUnderTest(origin.target)
        let record = test.serve(
            ScriptedExchange(.delete, "/dav", [:], ["abc", .fails(error)], length: length)
        )
        #expect(record.events == [.read, .abort])
        #expect(origin.requests.isEmpty)
        #expect(test.log.messages == ["client disconnected"])
    }

    @Test("a client that leaves is no failure", arguments: [-1, 0])
    func clientGone(count: Int) throws {
        let origin = try LoopbackOrigin(status: "200 OK", content: "event")
        for target in [origin.target, nil] {
            let test = try GatewayUnderTest(target)
            let exchange = ScriptedExchange(.get, "/events", length: .unknown)
            exchange.leave(after: count)
            #expect(test.serve(exchange).isAborted)
            #expect(test.log.messages == ["client disconnected"])
            #expect(test.log.level(of: "client disconnected") == .debug)
            let reason = try #require(
                test.log.values(of: "reason", in: "client disconnected").first
            )
            #expect(reason.hasSuffix(": the client disconnected"), "\(reason)")
        }
    }

    @Test("a directory accepts only uploads")
    func directory() throws {
        let test = try GatewayUnderTest()
        let get = test.serve(ScriptedExchange(.get, "/f", length: .unknown))
        #expect(get.status == 405)
        let options = test.serve(ScriptedExchange(.options, "/f", length: .unknown))
        #expect(options.status == 200)
        #expect(options[.uploadLimit] != nil)
        #expect(options.content.isEmpty)
    }
}
