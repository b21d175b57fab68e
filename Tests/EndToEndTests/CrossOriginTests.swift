// Browsers' requests from pages of other origins, sent by curl to a real nginx with a login.

import Foundation
import SpoolgateTestSupport
import Testing

@Suite(
    "Pages of other origins",
    .enabled(if: Command.find("nginx") != nil, "nginx is not installed"),
    .enabled(if: Command.find("curl") != nil, "curl is not installed")
)
struct CrossOriginTests {
    private static let app = "https://app.example"
    private static let evil = "https://evil.example"
    private static let settings = [
        "cors: {origins: '\(app)', credentials: true, expose: X-App}", "anonymous: refuse",
        "limits: {min-size: 0}",
    ]

    private func curl(_ arguments: [String]) throws -> WireClient.Answer {
        let run = try Command(
            Command.find("curl") ?? "curl",
            ["-sS", "-i", "--max-time", "60"] + arguments
        )
        guard run.status == 0, let end = run.output.range(of: "\r\n\r\n") else {
            throw WireClient.Broken(description: "curl \(arguments): \(run.errors)\(run.output)")
        }
        return try WireClient.Answer(head: String(run.output[..<end.lowerBound]))
    }

    private func preflight(_ url: String, from origin: String) throws -> WireClient.Answer {
        try curl([
            "-X", "OPTIONS", "-H", "Origin: \(origin)",
            "-H", "Access-Control-Request-Method: PATCH",
            "-H", "Access-Control-Request-Headers: authorization,upload-offset", url,
        ])
    }

    private func told(_ response: WireClient.Answer) -> [String] {
        response.fields.map { $0.name.lowercased() }.filter { $0.hasPrefix("access-control-") }
    }

    /// A page's upload in two steps with preflights; `login` are curl's options.
    private func upload(_ sandbox: Sandbox, _ login: [String]) throws {
        let url = "http://localhost:\(sandbox.port)/files/a"
        let file = try sandbox.randomFile(300_000)
        func send(_ method: String, _ url: String, _ fields: [String], _ range: Range<Int>) throws
            -> WireClient.Answer
        {
            let part = sandbox.directory.appending(path: "part")
            try file.bytes[range].write(to: part)
            let all = fields + ["Origin: \(Self.app)", "Expect:"]
            return try curl(
                ["-X", method, "-T", part.path(), url] + all.flatMap { ["-H", $0] } + login
            )
        }
        func expectAllowed(_ response: WireClient.Answer) {
            #expect(response["access-control-allow-origin"] == Self.app)
            #expect(response["access-control-allow-credentials"] == "true")
            let exposed = response["access-control-expose-headers"] ?? ""
            #expect(exposed.hasPrefix("Location, ") && exposed.hasSuffix(", X-App"))
            #expect(response["vary"] == "Origin")
        }
        let created = try send("POST", url, ["Upload-Complete: ?0"], 0..<100_000)
        #expect(created.status == 201)
        expectAllowed(created)
        let resource = try #require(created["location"])
        let asked = try preflight(resource, from: Self.app)
        #expect(asked.status == 200)
        #expect(asked["access-control-allow-origin"] == Self.app)
        let response = try send(
            "PATCH",
            resource,
            [
                "Upload-Offset: 100000", "Upload-Complete: ?1",
                "Content-Type: application/partial-upload",
            ],
            100_000..<300_000
        )
        #expect(response.status == 201)
        expectAllowed(response)
        #expect(try sandbox.delivered().map { try Data(contentsOf: $0) } == [file.bytes])
    }

    @Test("with auth_basic, a preflight needs no password and the upload does")
    func password() throws {
        let sandbox = try Sandbox(
            routeSettings: Self.settings,
            front: .nginxWithLogin(.password)
        )
        let url = "http://localhost:\(sandbox.port)/files/a"
        let allowed = try preflight(url, from: Self.app)
        #expect(allowed.status == 200)
        #expect(allowed["access-control-allow-origin"] == Self.app)
        #expect(allowed["access-control-allow-credentials"] == "true")
        #expect(allowed["access-control-allow-headers"]?.contains("Upload-Offset") == true)
        #expect(allowed["access-control-max-age"] == "7200")
        let stranger = try preflight(url, from: Self.evil)
        #expect(stranger.status == 200)
        #expect(told(stranger) == [])
        // Only preflights need no password.
        #expect(try curl(["-X", "OPTIONS", "-H", "Origin: \(Self.app)", url]).status == 401)
        let asking = "Access-Control-Request-Method: PATCH"
        #expect(try curl(["-X", "OPTIONS", "-H", asking, url]).status == 401)
        let post = ["-H", "Origin: \(Self.app)", "-H", asking, "-d", "x", url]
        #expect(try curl(post).status == 401)
        try upload(sandbox, ["-u", "alice:secret"])
        // Another origin is served, but its browser hides the response.
        let other = try curl([
            "-u", "alice:secret", "-H", "Origin: \(Self.evil)", "-d", "x", url,
        ])
        #expect(other.status == 201)
        #expect(told(other) == [])
        #expect(other["vary"] == "Origin")
    }

    @Test("with auth_request, a preflight is not authorized")
    func asking() throws {
        let origin = try LoopbackOrigin { connection in
            while let request = try connection.receiveRequest() {
                let isAlice = request.values("authorization") == ["Bearer a"]
                try connection.response(
                    isAlice ? "204 No Content" : "401 Unauthorized",
                    fields: isAlice ? ["X-User: alice"] : ["WWW-Authenticate: Bearer"],
                    content: "",
                    hasContent: !isAlice
                )
            }
        }
        let sandbox = try Sandbox(
            routeSettings: Self.settings,
            front: .nginxWithLogin(.asking(origin.port))
        )
        let url = "http://localhost:\(sandbox.port)/files/a"
        let allowed = try preflight(url, from: Self.app)
        #expect(allowed.status == 200)
        #expect(allowed["access-control-allow-origin"] == Self.app)
        #expect(told(try preflight(url, from: Self.evil)) == [])
        #expect(origin.requests.isEmpty)
        let refused = try curl(["-X", "OPTIONS", "-H", "Origin: \(Self.app)", url])
        #expect(refused.status == 401)
        #expect(origin.requests.count == 1)
        try upload(sandbox, ["-H", "Authorization: Bearer a"])
    }
}
