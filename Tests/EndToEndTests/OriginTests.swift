// The host for clients and the upstream is the server name that nginx matched.

import Foundation
import SpoolgateTestSupport
import Testing

@Suite(
    "The origin behind nginx",
    .enabled(if: Command.find("nginx") != nil, "nginx is not installed")
)
struct OriginTests {
    /// A target and a `Host`, and the expected host; empty if nginx refuses.
    struct Case: CustomTestStringConvertible, Sendable {
        var target: String
        var host: String?
        var expected: String
        var testDescription: String { "\(target) \(host ?? "-")" }
    }

    private static let cases = [
        Case(target: "/files/x", host: "localhost", expected: "localhost"),
        Case(target: "/files/x", host: "LOCALHOST:1", expected: "localhost"),
        Case(target: "/files/x", host: "127.0.0.1", expected: "127.0.0.1"),
        Case(target: "/files/x", host: "[::1]:80", expected: "[::1]"),
        Case(target: "/files/x", host: "localhost:99999", expected: "localhost"),
        Case(target: "/files/x", host: "localhost:80@evil.example", expected: "localhost"),
        Case(target: "http://localhost/files/x", host: "evil.example", expected: "localhost"),
        Case(target: "http://localhost:7/files/x", host: "evil.example:8", expected: "localhost"),
        Case(target: "http://127.0.0.1/files/x", host: "localhost", expected: "127.0.0.1"),
    ]

    @Test("the client's Host does not replace the name that nginx matched", arguments: cases)
    func origin(_ one: Case) throws {
        let origin = try LoopbackOrigin(status: "201 Created")
        let sandbox = try Sandbox(
            upstream: origin.base,
            routeSettings: ["forwarding: both", "limits: {min-size: 0}"]
        )
        let host = "\(one.expected):\(sandbox.port)"
        let client = try WireClient(port: sandbox.port)
        func ask(_ fields: String) throws -> WireClient.Answer {
            client.send(
                "POST \(one.target) HTTP/1.1\r\n\(one.host.map { "Host: \($0)\r\n" } ?? "")"
                    + "X-Forwarded-Host: evil.example\r\nForwarded: host=evil.example\r\n"
                    + "\(fields)Content-Length: 2\r\n\r\nok"
            )
            return try client.read()
        }
        let created = try ask("Upload-Complete: ?0\r\n")
        // A newer nginx refuses an invalid Host.
        if created.status == 400 {
            #expect(one.host?.contains("@") == true || one.host?.contains("99999") == true)
            return
        }
        #expect(created.status == 201)
        #expect(created["location"]?.hasPrefix("http://\(host)/files/x/") == true)
        #expect(try ask("").status == 201)
        #expect(try ask("Upload-Complete: ?1\r\n").status == 201)
        client.send("GET \(one.target) HTTP/1.1\r\nHost: \(one.host ?? "")\r\n\r\n")
        #expect(try client.read().status == 201)
        #expect(origin.requests.count == 3)
        for request in origin.requests {
            #expect(request.values("host") == [host])
            #expect(request.values("x-forwarded-host") == [host])
            #expect(request.values("forwarded").count == 1)
            #expect(request.values("forwarded").first?.contains("host=\"\(host)\"") == true)
            #expect(!request.fieldLines.contains { $0.contains("evil") })
        }
        #expect(!sandbox.log.contains("msg=\"SPOOLGATE_ORIGIN "), "\(sandbox.log)")
    }

    @Test("an origin with a malformed Host is omitted and logged, without a 500")
    func malformed() throws {
        let sandbox = try Sandbox(origin: "$scheme://$http_host")
        let client = try WireClient(port: sandbox.port)
        client.send(
            "POST http://localhost/files/x HTTP/1.1\r\nHost: localhost:80@evil\r\n"
                + "Upload-Complete: ?0\r\nContent-Length: 0\r\n\r\n"
        )
        let response = try client.read()
        if response.status == 400 { return }
        #expect(response.status == 201)
        #expect(response["location"]?.hasPrefix("/files/x/") == true)
        #expect(sandbox.log.contains("msg=\"SPOOLGATE_ORIGIN is invalid\""))
    }

    @Test("an upstream's header section of 200 KiB reaches the client, not a 502 of nginx")
    func largeHead() throws {
        let fields = (0..<50).map { "X-\($0): \(String(repeating: "a", count: 4_000))" }
        let origin = try LoopbackOrigin(status: "201 Created", fields: fields, content: "made")
        let sandbox = try Sandbox(upstream: origin.base, routeSettings: ["limits: {min-size: 0}"])
        for field in ["Upload-Complete: ?1", "X-Ordinary: 1"] {
            let response = try sandbox.ask(
                "POST",
                "/files/a?token=secret",
                [field],
                content: Data("x".utf8)
            )
            #expect(response.status == 201)
            #expect(response.text == "made")
        }
        #expect(sandbox.log.contains("msg=\"response fields dropped\""))
        #expect(!sandbox.log.contains("secret"))
    }

    @Test("the upstream receives the path that nginx matched: no dot segments pass")
    func dotSegments() throws {
        let origin = try LoopbackOrigin(status: "201 Created")
        let sandbox = try Sandbox(upstream: origin.base)
        for target in ["/admin/../files/u", "/admin/%2e%2e/files/u", "/files/./u"] {
            let client = try WireClient(port: sandbox.port)
            #expect(try client.ask("PUT", target, content: Data("x".utf8)).status == 400)
        }
        #expect(origin.requests.isEmpty)
    }
}
