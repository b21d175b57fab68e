// The authorizer's requests and the effect of its responses.

import Foundation
import HTTPTypes
import SpoolgateSpool
import SpoolgateTestSupport
import SpoolgateTextFormats
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Testing

@testable import SpoolgateDelivery
@testable import SpoolgateExchange
@testable import SpoolgateRequests
@testable import SpoolgateSettings

@Suite struct AuthorizationTests {
    private let owned = ExchangeContext(
        owner: "front",
        interimStatuses: [104],
        remoteAddress: "192.0.2.7",
        scheme: "https"
    )

    private func asking(
        _ origin: LoopbackOrigin,
        _ path: String = "/may?x=1",
        _ change: @escaping (inout Settings, inout RouteSettings) -> Void = { _, _ in }
    ) throws -> GatewayUnderTest {
        let url = try ServiceURL(origin.base + path)
        return try GatewayUnderTest { settings, route in
            route.authorization.url = url
            change(&settings, &route)
        }
    }

    @Test("it receives the client's fields and the metadata before content is read")
    func question() throws {
        let origin = try LoopbackOrigin(status: "204 No Content", content: "")
        let test = try asking(origin)
        let record = test.serve(
            .creation(
                target: "/files/a?b=c",
                fields: [
                    .host: "uploads.example", .authorization: "Bearer t", .cookie: "a=b",
                    .contentType: "text/plain", .ifMatch: "x", .range: "bytes=0-1",
                    .spoolgateOwner: "forged", .xForwardedUri: "/forged", .xForwardedHost: "f",
                    .made("spoolgate-set-x"): "forged",
                    .xForwardedFor: "198.51.100.1", .contentEncoding: "identity",
                ],
                context: owned
            )
        )
        #expect(record.status == 201)
        #expect(origin.requests.count == 2, "before content and before the delivery")
        let first = try #require(origin.requests.first)
        #expect(first.line == "GET /may?x=1 HTTP/1.1")
        let expected = [
            "host": "127.0.0.1:\(origin.port)", "authorization": "Bearer t", "cookie": "a=b",
            "content-type": "text/plain", "x-forwarded-method": "POST",
            "x-forwarded-uri": "/files/a?b=c", "x-forwarded-host": "uploads.example",
            "x-forwarded-for": "192.0.2.7", "x-forwarded-proto": "https",
            "spoolgate-owner": "front", "spoolgate-event": "creation", "upload-length": "5",
        ]
        for (name, value) in expected { #expect(first.values(name) == [value], "\(name)") }
        for name in [
            "upload-complete", "upload-draft-interop-version", "if-match", "range",
            "content-length", "spoolgate-upload", "spoolgate-set-x", "expect",
        ] { #expect(first.values(name) == [], "\(name)") }
        let second = origin.requests[1]
        #expect(second.values("spoolgate-event") == ["delivery"])
        let id = try #require(try test.summaries().first?.id)
        #expect(second.values("spoolgate-upload") == [id.description])
        #expect(second.values("authorization") == ["Bearer t"])
        #expect(second.values("x-forwarded-uri") == ["/files/a?b=c"])
        #expect(second.values("upload-length") == ["5"])
    }

    @Test("a response other than 2xx is passed to the client unchanged, and no content is read")
    func relayed() throws {
        let origin = try LoopbackOrigin(
            status: "401 Unauthorized",
            fields: ["WWW-Authenticate: Basic realm=x", "Set-Cookie: a=1", "X-Why: because"],
            content: "who are you?"
        )
        let test = try asking(origin)
        let creation = ScriptedExchange.creation()
        for exchange in [creation, ScriptedExchange(.put, "/plain", [:], ["hello"])] {
            let record = test.serve(exchange)
            #expect(record.status == 401)
            #expect(record.text == "who are you?")
            #expect(record[.wwwAuthenticate] == "Basic realm=x")
            #expect(record[.setCookie] == "a=1")
            #expect(!record.events.contains(.read))
            #expect(record.interims.isEmpty)
        }
        #expect(try test.summaries().isEmpty)
        #expect(try test.drops().isEmpty)
    }

    @Test("response content over the limit is omitted, not truncated")
    func overCap() throws {
        let content = String(repeating: "x", count: Authorizer.responseCap + 1)
        let origin = try LoopbackOrigin(status: "403 Forbidden", content: content)
        let record = try asking(origin).serve(.creation(["x"]))
        #expect(record.status == 403)
        #expect(record.content.isEmpty)
        #expect(record.contentLength == 0)
    }

    @Test("if it is missing, silent or sends nonsense: 503, and nothing is read")
    func unavailable() throws {
        let silent = try LoopbackOrigin { connection in
            _ = try connection.receiveRequest()
            connection.waitForEnd()
        }
        let nonsense = try LoopbackOrigin(fields: ["Spoolgate-Max-Size: -5"])
        let gone = try LoopbackOrigin()
        gone.stop()
        for origin in [silent, nonsense, gone] {
            let test = try asking(origin) { _, route in
                route.authorization.timeout = .milliseconds(200)
            }
            for exchange in [
                ScriptedExchange.creation(["x"]),
                ScriptedExchange(.put, "/plain", [:], ["x"]),
            ] {
                let record = test.serve(exchange)
                #expect(record.status == 503)
                #expect(!record.events.contains(.read))
            }
            #expect(try test.summaries().isEmpty)
            #expect(test.log.messages.contains("authorization failed"))
        }
    }

    @Test("it can name an owner if the web server names none, for lists only")
    func owner() throws {
        let origin = try LoopbackOrigin(fields: ["Spoolgate-Owner: app-user"])
        let test = try asking(origin)
        let location = test.createPartial()
        let creation = try #require(try test.summaries().first?.creation)
        #expect(creation.owner == nil)
        #expect(creation.principal == "app-user")
        #expect(test.serve(.retrieval(location)).status == 204, "the owner is for lists only")
        _ = test.createPartial(context: owned)
        #expect(try test.summaries().contains { $0.creation?.principal == "front" })
    }

    @Test("it can set, replace and remove fields of the request to the upstream")
    func fields() throws {
        let origin = try LoopbackOrigin(
            fields: [
                "Spoolgate-Set-X-User: 42", "Spoolgate-Set-X-Role: a", "Spoolgate-Set-X-Role: b",
                "Spoolgate-Set-Cookie:", "Spoolgate-Set-Content-Length: 3",
                "Spoolgate-Set-Upload-Offset: 1", "Spoolgate-Set-Connection: close",
            ]
        )
        let upstream = try LoopbackOrigin()
        let test = try asking(origin) { _, route in route.upstream.targets = [upstream.target] }
        let user = HTTPField(name: .made("x-user"), value: "forged")
        let forged: HTTPFields = [.cookie: "secret", user.name: user.value]
        _ = test.serve(.creation(fields: forged))
        _ = test.serve(ScriptedExchange(.put, "/plain", forged, ["hello"]))
        #expect(upstream.requests.count == 2)
        for request in upstream.requests {
            #expect(request.values("x-user") == ["42"])
            #expect(request.values("x-role") == ["a", "b"])
            #expect(request.values("cookie") == [])
            #expect(request.values("content-length") == ["5"])
            #expect(request.values("upload-offset") == [])
        }
        #expect(test.log.messages.count { $0 == "authorizer field ignored" } == 6)
    }

    @Test("a smaller size holds for the upload's whole life")
    func maxSize() throws {
        let origin = try LoopbackOrigin(fields: ["Spoolgate-Max-Size: 8"])
        let test = try asking(origin)
        let known = test.serve(.creation(["123456789"]))
        #expect(known.status == 413)
        #expect(!known.events.contains(.read))
        #expect(known[.uploadLimit]?.contains("max-size=8,") == true)
        let plain = test.serve(ScriptedExchange(.put, "/a", [:], ["123456789"]))
        #expect(plain.status == 413)
        #expect(!plain.events.contains(.read))
        let chunked = test.serve(ScriptedExchange(.put, "/a", [:], ["123456789"], length: .unknown))
        #expect(chunked.status == 413)
        #expect(try test.summaries().isEmpty)
        let created = test.serve(.creation(["1234"], complete: false))
        #expect(created[.uploadLimit]?.contains("max-size=8,") == true)
        let location = try #require(created.location)
        let told = test.serve(.retrieval(location))
        #expect(told[.uploadLimit]?.contains("max-size=8,") == true)
        let append = test.serve(.append(location, at: 4, ["56789"]))
        #expect(append.status == 413)
        #expect(!append.events.contains(.read))
        let long = test.serve(.append(location, at: 4, ["56789"], length: .unknown))
        #expect(long.status == 413)
        let last = test.serve(.append(location, at: 8))
        #expect(last.status == 201)
        #expect(try test.drops() == [Array("12345678".utf8)])
    }

    @Test("a size above the route's has no effect")
    func largerSize() throws {
        let origin = try LoopbackOrigin(fields: ["Spoolgate-Max-Size: 999999"])
        let test = try asking(origin) { _, route in route.limits.maxSize = 3 }
        #expect(test.serve(.creation(["1234"])).status == 413)
    }

    /// Allows creations and sends the given response before deliveries.
    private func changing(_ status: String, _ content: String = "gone") throws -> LoopbackOrigin {
        try LoopbackOrigin { connection in
            while let request = try connection.receiveRequest() {
                let isCreation = request.values("spoolgate-event") == ["creation"]
                try connection.response(
                    isCreation ? "200 OK" : status,
                    content: isCreation ? "" : content
                )
            }
        }
    }

    @Test("a refusal before the delivery is the final response, and nothing is delivered")
    func refusedAtDelivery() throws {
        let origin = try changing("403 Forbidden")
        let test = try asking(origin)
        let location = test.createPartial()
        let record = test.serve(.append(location, at: 5))
        #expect(record.status == 403)
        #expect(record.text == "gone")
        #expect(record[.uploadComplete] == "?1")
        #expect(try test.drops().isEmpty)
        #expect(test.serve(.append(location, at: 5)).status == 403)
        #expect(origin.requests.count == 2, "no further request to the authorizer")
    }

    @Test(
        "an authorizer failure before the delivery defers, and so does a shutdown",
        arguments: ["503 x", "429 x", nil]
    )
    func troubleAtDelivery(status: String?) throws {
        let origin = try changing(status ?? "200 OK")
        let test = try asking(origin)
        let location = test.createPartial()
        if status == nil { origin.stop() }
        let record = test.serve(.append(location, at: 5))
        #expect(record.status == 503)
        #expect(record[.uploadComplete] == "?0")
        #expect(try test.queue(of: location) == .deferred)
    }

    @Test("other requests are not authorized")
    func others() throws {
        let origin = try LoopbackOrigin(status: "403 Forbidden")
        let upstream = try LoopbackOrigin()
        let test = try asking(origin) { _, route in route.upstream.targets = [upstream.target] }
        #expect(test.serve(ScriptedExchange(.get, "/a", [:], [])).status == 200)
        #expect(origin.requests.isEmpty)
    }

    @Test(
        "addresses are read strictly",
        arguments: [
            ("http://a", "/"), ("http://a:81/b?c", "/b?c"), ("https://[::1]/x", "/x"),
            ("unix:/run/a.sock", "/"), ("unix:/run/a.sock:/b?c", "/b?c"),
        ]
    )
    func address(text: String, target: String) throws {
        #expect(try ServiceURL(text).requestTarget == target)
    }

    @Test(
        "an invalid address is refused",
        arguments: [
            "directory:/a", "http://", "http:///x", "a", "http://a/b c", "http://a/#b", "unix:x",
            "http://u@a/", "unix:/a:b",
        ]
    )
    func noAddress(text: String) {
        #expect(throws: UpstreamTargetError.self) { try ServiceURL(text) }
    }
}
