// nginx's responses above its limits (`limit_conn`, `limit_req`), with lower limits than shipped.

import Foundation
import SpoolgateTestSupport
import Testing

@Suite(
    "Limits per client in nginx",
    .enabled(if: Command.find("nginx") != nil, "nginx is not installed")
)
struct NginxBoundsTests {
    private static let other = "127.0.0.2"

    private func expectTooMuch(_ response: WireClient.Answer) throws {
        #expect(response.status == 429)
        #expect(response["retry-after"] == "5")
        #expect(response["cache-control"] == "no-store")
        #expect(response["content-type"] == "application/problem+json")
        let problem = try JSONSerialization.jsonObject(with: response.content) as? [String: Any]
        #expect(problem?["status"] as? Int == 429)
        #expect(problem?["title"] as? String == "Too Many Requests")
        #expect(problem?["code"] as? String == "client-too-many-requests")
    }

    private func isBrokenOff(_ client: WireClient) -> Bool {
        do {
            _ = try client.read()
            return false
        } catch let error as WireClient.Broken {
            // nginx resets a connection that it closes with part of the request unread.
            return error.description == "connection ended after: "
                || error.description.hasSuffix("Connection reset by peer, after: ")
        } catch { return false }
    }

    private func create(
        in sandbox: Sandbox,
        from source: String = "127.0.0.1"
    ) throws -> WireClient.Answer {
        try WireClient(port: sandbox.port, from: source).ask(
            "POST",
            "/files/x",
            ["Upload-Complete: ?0"],
            content: Data()
        )
    }

    private func sendAppend(_ client: WireClient, _ resource: String, offset: Int) {
        client.sendHead(
            "PATCH",
            resource,
            [
                "Upload-Offset: \(offset)", "Upload-Complete: ?0", "Content-Length: 1",
                "Content-Type: application/partial-upload",
            ]
        )
        client.send("x")
    }

    @Test("over the request limit, a creation gets 429 and an append gets no response")
    func senders() throws {
        let sandbox = try Sandbox(front: .nginxBounded(.senders(2)))
        let resource = try sandbox.create("/files/mine")
        let held = try (0..<2).map { number in
            let client = try sandbox.open(
                "POST",
                "/files/held\(number)",
                ["Upload-Complete: ?1"],
                length: 200_000
            )
            client.send("o")
            try eventually("it is received") { sandbox.log.contains("/files/held\(number)") }
            return client
        }
        try expectTooMuch(create(in: sandbox))
        let append = try WireClient(port: sandbox.port)
        sendAppend(append, resource, offset: 0)
        #expect(isBrokenOff(append))
        #expect(try sandbox.offset(of: resource) == 0)
        let ordinary = try sandbox.ask("POST", "/files/plain", content: Data("x".utf8))
        try expectTooMuch(ordinary)
        let elsewhere = try sandbox.ask("POST", "/elsewhere", content: Data("x".utf8))
        #expect(elsewhere.status == 404)
        #expect(elsewhere["retry-after"] == nil)
        #expect(elsewhere["content-type"]?.hasPrefix("text/html") == true)
        #expect(try create(in: sandbox, from: Self.other).status == 201)

        for client in held {
            client.send(Data(repeating: UInt8(ascii: "k"), count: 199_999))
            #expect(try client.read().status == 201)
        }
        let later = try WireClient(port: sandbox.port)
        sendAppend(later, resource, offset: 0)
        #expect(try later.read().status == 204)
        #expect(try sandbox.offset(of: resource) == 1)
        #expect(try sandbox.ask("DELETE", resource).status == 204)
    }

    @Test(
        "over the creation limit, creations get 429; appends and other clients' creations continue"
    )
    func creators() throws {
        let sandbox = try Sandbox(front: .nginxBounded(.creators(3)))
        let resources = try (0..<3).map { try sandbox.create("/files/\($0)") }
        try expectTooMuch(create(in: sandbox))
        for resource in resources {
            #expect(try sandbox.offset(of: resource) == 0)
            let response = try sandbox.append(resource, Data("x".utf8))
            #expect(response.status == 201)
        }
        let ordinary = try sandbox.ask("POST", "/files/plain", content: Data("x".utf8))
        #expect(ordinary.status == 201)
        let elsewhere = try sandbox.ask(
            "POST",
            "/elsewhere",
            ["Upload-Complete: ?0"],
            content: Data()
        )
        #expect(elsewhere.status == 404)
        #expect(try create(in: sandbox, from: Self.other).status == 201)
    }

    @Test(
        "tus creations count regardless of other fields; requests that override the method do not"
    )
    func tusCreators() throws {
        let sandbox = try Sandbox(front: .nginxBounded(.creators(3)))
        func ask(_ method: String, _ target: String, _ fields: [String]) throws -> WireClient.Answer
        {
            try sandbox.ask(method, target, ["Tus-Resumable: 1.0.0"] + fields, content: Data())
        }
        let length = "Upload-Length: 5"
        let first = try ask("POST", "/files/a", [length])
        #expect(first.status == 201)
        let resource = try #require(first["location"]).split(separator: "/").dropFirst(2)
        let path = "/" + resource.joined(separator: "/")
        for method in ["HEAD", "head", "HEAD", "HEAD"] {
            #expect(try ask("POST", path, ["X-HTTP-Method-Override: \(method)"]).status == 200)
        }
        #expect(try ask("POST", "/files/b", [length, "Upload-Offset: 0"]).status == 201)
        #expect(
            try ask("POST", "/files/c", [length, "X-HTTP-Method-Override: POST"]).status == 201
        )
        try expectTooMuch(ask("POST", "/files/d", [length]))
        // The draft's fields count first.
        for (method, more) in [("PUT", []), ("POST", ["X-HTTP-Method-Override: PATCH"])] {
            try expectTooMuch(ask(method, "/files/e", ["Upload-Complete: ?0"] + more))
        }
        try expectTooMuch(create(in: sandbox))
    }

    @Test("the path without its slash accepts content, and redirects other requests")
    func withoutSlash() throws {
        let sandbox = try Sandbox(front: .nginxBounded(.creators(100)))
        let created = try sandbox.ask(
            "POST",
            "/files?a=b",
            ["Upload-Complete: ?0"],
            content: Data()
        )
        #expect(created.status == 201)
        #expect(created["location"]?.contains("/files/upload-resource/") == true)
        let tus = try sandbox.ask(
            "POST",
            "/files",
            ["Tus-Resumable: 1.0.0", "Upload-Length: 5"],
            content: Data()
        )
        #expect(tus.status == 201)
        let seen = try sandbox.ask("GET", "/files?a=b")
        #expect(seen.status == 301)
        #expect(seen["location"]?.hasSuffix("/files/?a=b") == true)
    }

    @Test("header lines may have up to 64 KiB over HTTP/1.1")
    func longLines() throws {
        let sandbox = try Sandbox(front: .nginxBounded(.creators(100)))
        let metadata = "title " + Data(repeating: 0x78, count: 30_000).base64EncodedString()
        let response = try sandbox.ask(
            "POST",
            "/files/a",
            ["Tus-Resumable: 1.0.0", "Upload-Length: 5", "Upload-Metadata: \(metadata)"],
            content: Data()
        )
        #expect(response.status == 201)
    }
}
