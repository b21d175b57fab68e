// nginx's `auth_request` and the gateway's authorizer.

import Foundation
import SpoolgateTestSupport
import Synchronization
import Testing

@Suite("Authorization")
struct AuthRequestTests {
    /// An application that knows two users by their tokens.
    private func application(_ fields: @escaping @Sendable (String) -> [String]) throws
        -> LoopbackOrigin
    {
        try LoopbackOrigin { connection in
            while let request = try connection.receiveRequest() {
                let user = ["Bearer a": "alice", "Bearer b": "bob"][
                    request.values("authorization").first ?? ""
                ]
                try connection.response(
                    user == nil ? "401 Unauthorized" : "204 No Content",
                    fields: user.map(fields) ?? ["WWW-Authenticate: Bearer", "X-App: 1"],
                    content: user == nil ? "who are you?" : "",
                    hasContent: user == nil
                )
            }
        }
    }

    @Test("nginx authorizes before it reads content, and its user becomes the upload's owner")
    func authRequest() throws {
        let origin = try application { ["X-User: \($0)"] }
        let sandbox = try Sandbox(front: .nginxAsking(origin.port))
        // Refused before any content is sent.
        let stranger = try sandbox.open(
            "POST",
            "/files/a",
            ["Upload-Complete: ?1", "Expect: 100-continue"],
            length: 1_000_000
        )
        let refused = try stranger.read()
        #expect(refused.status == 401)
        #expect(refused["www-authenticate"] == "Bearer")
        #expect(try sandbox.spoolgate("list", "--json").output.isEmpty)
        let chunked = try sandbox.open(
            "POST",
            "/files/a",
            ["Upload-Complete: ?1", "Transfer-Encoding: chunked"]
        )
        #expect(try chunked.read().status == 401)
        let resource = try sandbox.create("/files/a?b=c", ["Authorization: Bearer a"])
        let asked = try #require(origin.requests.last)
        #expect(asked.line.hasPrefix("GET /may-upload "))
        #expect(asked.values("x-forwarded-method") == ["POST"])
        #expect(asked.values("x-forwarded-uri") == ["/files/a?b=c"])
        #expect(asked.values("content-length") == [])
        let list = try sandbox.spoolgate("list", "--json").output
        #expect(list.contains("\"owner\":\"alice\""))
        // Each request is authorized, not only the creation.
        let content = Data(repeating: 7, count: 3 << 20)
        func append(_ token: String) throws -> Int {
            try sandbox.append(resource, content, fields: ["Authorization: Bearer \(token)"]).status
        }
        #expect(try append("b") == 404, "another user can see the upload")
        #expect(try append("x") == 401)
        #expect(try append("a") == 201)
        #expect(try sandbox.delivered().map { try Data(contentsOf: $0) } == [content])
    }

    @Test("if no authorizer can be reached, the connection breaks and the upload continues later")
    func nobodyThere() throws {
        let origin = try application { ["X-User: \($0)"] }
        let sandbox = try Sandbox(front: .nginxAsking(origin.port))
        let resource = try sandbox.create("/files/a", ["Authorization: Bearer a"])
        origin.stop()
        #expect(throws: (any Error).self) {
            try sandbox.append(resource, Data("x".utf8), fields: ["Authorization: Bearer a"])
        }
    }

    @Test("the gateway's authorizer refuses with its own response before content is read")
    func authorizer() throws {
        let origin = try application { ["Spoolgate-Owner: \($0)", "Spoolgate-Max-Size: 1000"] }
        let sandbox = try Sandbox(
            routeSettings: ["authorize: {url: '\(origin.base)/may'}", "limits: {min-size: 0}"]
        )
        let stranger = try sandbox.open(
            "POST",
            "/files/a",
            ["Upload-Complete: ?1"],
            length: 1_000_000
        )
        let refused = try stranger.read()
        #expect(refused.status == 401)
        #expect(refused.text == "who are you?")
        #expect(refused["x-app"] == "1")
        let large = try sandbox.open("PUT", "/files/a", ["Authorization: Bearer a"], length: 1001)
        #expect(try large.read().status == 413)
        let resource = try sandbox.create("/files/a", ["Authorization: Bearer a"])
        let list = try sandbox.spoolgate("list", "--json").output
        #expect(list.contains("\"owner\":\"alice\""))
        // The authorization survives a restart.
        try sandbox.crash()
        let over = try sandbox.append(resource, Data(repeating: 7, count: 1001))
        #expect(over.status == 413)
        let content = Data(repeating: 7, count: 1000)
        #expect(try sandbox.append(resource, content).status == 201)
        #expect(try sandbox.delivered().map { try Data(contentsOf: $0) } == [content])
    }

    @Test(
        "a scanner refuses uploads, events report them, also those of purge, across a crash of the daemon"
    )
    func inspectedAndTold() throws {
        // The webhook fails until the daemon has crashed.
        let isTaking = Mutex(false)
        let taken = Mutex<[String]>([])
        let origin = try LoopbackOrigin { connection in
            while let request = try connection.receiveRequest() {
                let takes = isTaking.withLock { $0 }
                if takes {
                    taken.withLock { $0.append(String(decoding: request.content, as: UTF8.self)) }
                }
                try connection.response(takes ? "200 OK" : "503 Service Unavailable")
            }
        }
        let file = FileManager.default.temporaryDirectory.appending(path: UUID().uuidString).path()
        defer { try? FileManager.default.removeItem(atPath: file) }
        let sandbox = try Sandbox(
            routeSettings: [
                "inspect:", "  command: [/usr/bin/grep, -qv, virus]", "limits: {min-size: 0}",
            ],
            extra: ["events: {to: '\(file)', webhook: {url: '\(origin.base)/hook'}}"]
        )
        func post(_ text: String) throws -> WireClient.Answer {
            try sandbox.append(try sandbox.create("/files/a"), Data(text.utf8))
        }
        #expect(try post("clean\n").status == 201)
        #expect(try post("virus\n").status == 422)
        _ = try sandbox.create("/files/b")
        try eventually("the webhook was called") { !origin.requests.isEmpty }
        sandbox.kill()
        isTaking.withLock { $0 = true }
        try sandbox.startAgain()
        #expect(try sandbox.spoolgate("purge", "--force", "--older-than", "0s").status == 0)
        func events(_ texts: [String]) throws -> [String] {
            try texts.map { text in
                let object = try JSONSerialization.jsonObject(with: Data(text.utf8))
                return try #require((object as? [String: Any])?["event"] as? String)
            }
        }
        let told = [
            "created", "completed", "delivered", "created", "completed", "failed", "created",
        ]
        let lines = try String(contentsOfFile: file, encoding: .utf8).split(separator: "\n")
        #expect(try events(lines.map(String.init)) == told + ["purged", "purged", "purged"])
        try eventually("the webhook has received all events") {
            taken.withLock { $0.count } == told.count + 3
        }
        #expect(try events(taken.withLock { $0 }) == told + ["purged", "purged", "purged"])
        #expect(try sandbox.delivered().count == 1)
    }
}
