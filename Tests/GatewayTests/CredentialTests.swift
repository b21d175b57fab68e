// Credentials that expire during an upload, at the upstream and the authorizer.

import HTTPTypes
@testable import SpoolgateDelivery
@testable import SpoolgateExchange
import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Testing

@testable import SpoolgateRequests
@testable import SpoolgateSettings
@testable import SpoolgateSpool

@Suite("credentials of a completing request")
struct CredentialTests {
    private let origin: LoopbackOrigin

    init() throws {
        origin = try LoopbackOrigin { connection in
            while let request = try connection.receiveRequest() {
                let isGood = request.values("Authorization").contains { $0.hasSuffix(" new") }
                if isGood {
                    try connection.response("201 Created")
                } else {
                    try connection.response(
                        "401 Unauthorized",
                        fields: [
                            "WWW-Authenticate: Bearer realm=\"a\"", "WWW-Authenticate: Basic",
                        ],
                        content: "login first"
                    )
                }
            }
        }
    }

    @Test(
        "replace all of the creation's if they are of the same kinds; none is added",
        arguments: [
            (["Authorization: Bearer old"], ["Authorization: bearer new"], true),
            (
                ["Authorization: Bearer old", "Cookie: a"],
                ["Cookie: b", "Authorization: Bearer new"],
                true
            ),
            (["Authorization: Bearer old"], ["Authorization: Basic new"], false),
            (["Authorization: Bearer old"], ["Cookie: new"], false),
            (["Authorization: Bearer old"], ["Authorization: Bearer new", "Cookie: b"], false),
            (["Authorization: Bearer old", "Cookie: a"], ["Authorization: Bearer new"], false),
            ([], ["Authorization: Bearer new"], false),
            (["Authorization: Bearer old"], [], false),
        ] as [([String], [String], Bool)]
    )
    func replaced(old: [String], new: [String], isReplaced: Bool) throws {
        let test = try GatewayUnderTest(origin.target)
        let location = test.createPartial(fields: Self.fields(old))
        _ = test.serve(.append(location, at: 5, fields: Self.fields(new)))
        let sent = try #require(origin.requests.first)
        let credentials =
            (sent.fieldLines.filter { line in
                ["authorization:", "cookie:"].contains { line.lowercased().hasPrefix($0) }
            })
        #expect(Set(credentials) == Set(isReplaced ? new : old))
    }

    private static func fields(_ lines: [String]) -> HTTPFields {
        HTTPFields(
            lines.map { line in
                let parts = line.split(separator: ": ", maxSplits: 1)
                return HTTPField(name: .made(String(parts[0])), value: String(parts[1]))
            }
        )
    }

    private static let old: HTTPFields = [.authorization: "Bearer old"]
    private static let new: HTTPFields = [.authorization: "Bearer new"]

    @Test("401 keeps the upload for its client, which completes it with new ones")
    func refused() throws {
        let test = try GatewayUnderTest(origin.target)
        let location = test.createPartial(fields: Self.old)
        let record = test.serve(.append(location, at: 5, fields: Self.old))
        #expect(record.status == 401)
        #expect(record[.uploadComplete] == "?0")
        #expect(record[.wwwAuthenticate] == "Bearer realm=\"a\", Basic")
        #expect(record.text.contains("credentials-refused") && !record.text.contains("login"))
        #expect(record.offset == 5)
        #expect(try test.queue(of: location) == .deferred)
        #expect(try test.withUpload(location) { upload in upload.nextAttempt } == nil)
        let done = test.serve(.append(location, at: 5, fields: Self.new))
        #expect(done.status == 201)
        #expect(origin.requests.map(\.content) == Array(repeating: Array("hello".utf8), count: 2))
    }

    @Test("guessing is slowed down and ends when the upload expires, without filling the hold")
    func guessing() throws {
        let test = try GatewayUnderTest(origin.target) { settings, route in
            route.queue.lifetime = .seconds(600)
            // No pause of the queue puts an upload into `hold` that waits for its client.
            route.queue.minimumBackoff = .seconds(3_600)
            settings.queueRunInterval = .milliseconds(20)
        }
        let location = test.createPartial(fields: Self.old)
        for number in 1...9 {
            let guess: HTTPFields = [.authorization: "Bearer guess \(number)"]
            #expect(
                [401, 503].contains(test.serve(.append(location, at: 5, fields: guess)).status)
            )
        }
        #expect(origin.requests.count < 5)
        // The upload has expired, so no client can complete it.
        try test.withUpload(location) { upload in
            try upload.postpone(
                reason: "401",
                .client(WallTime(seconds: WallTime.now.seconds - 1), lacksCredentials: true)
            )
        }
        test.reload { $0.routes["default"]?.queue.lifetime = .seconds(-1) }
        try test.gateway.deliveries.startQueue()
        try eventually("it is gone") { test.log.messages.contains("upload expired") }
        #expect(try test.queue(of: location) == nil)
    }

    @Test("a client without an upload resource gets the upstream's 401, and nothing is kept")
    func unknownResource() throws {
        let test = try GatewayUnderTest(origin.target)
        let record = test.serve(
            .creation(fields: Self.old, context: ExchangeContext(interimStatuses: []))
        )
        #expect(record.status == 401)
        #expect(record.text == "login first")
        #expect(record[.uploadComplete] == "?1" || record[.uploadComplete] == nil)
    }

    @Test("they are kept for the queue after their client has left")
    func keptForQueue() throws {
        let test = try GatewayUnderTest(origin.target) { settings, route in
            route.reply = .accepted
            settings.queueRunInterval = .milliseconds(20)
        }
        let location = test.createPartial(fields: Self.old)
        #expect(test.serve(.append(location, at: 5, fields: Self.new)).status == 202)
        try test.gateway.deliveries.startQueue()
        try test.waitUntil(location, isIn: .delivered)
        #expect(origin.requests.map { $0.values("Authorization") } == [["Bearer new"]])
    }

    // MARK: With an authorizer

    private func asking(
        _ authorizer: LoopbackOrigin,
        _ change: (inout Settings, inout RouteSettings) -> Void = { _, _ in }
    ) throws -> GatewayUnderTest {
        try GatewayUnderTest(origin.target) { settings, route in
            route.authorization.url = try? ServiceURL(authorizer.base)
            change(&settings, &route)
        }
    }

    /// Names the token as the owner, and responds with 401 to tokens that begin with "bad".
    private func authorizer(setting: Bool = false) throws -> LoopbackOrigin {
        try LoopbackOrigin { connection in
            while let request = try connection.receiveRequest() {
                let token =
                    (request.values("Authorization").first ?? "").split(separator: " ").last ?? ""
                if token.hasPrefix("bad") {
                    try connection.response("401 x", fields: ["WWW-Authenticate: Bearer"])
                    continue
                }
                let owner = token == "mallory" ? "mallory" : "alice"
                var fields = ["Spoolgate-Owner: \(owner)"]
                if setting, request.values("Spoolgate-Event") == ["creation"] {
                    fields.append("Spoolgate-Set-Authorization: Bearer inner new")
                }
                try connection.response("200 OK", fields: fields)
            }
        }
    }

    @Test("the authorizer receives the new ones, and must name the same owner")
    func sameOwner() throws {
        let authorizer = try authorizer()
        let test = try asking(authorizer)
        let location = test.createPartial(fields: Self.old)
        let other: HTTPFields = [.authorization: "Bearer mallory"]
        let refused = test.serve(.append(location, at: 5, fields: other))
        #expect(refused.status == 403)
        #expect(refused[.uploadComplete] == "?0")
        #expect(refused.text.contains("other-owner"))
        #expect(try test.queue(of: location) == .deferred)
        #expect(origin.requests.isEmpty)
        #expect(test.serve(.append(location, at: 5, fields: Self.new)).status == 201)
        #expect(authorizer.requests.last?.values("Authorization") == ["Bearer new"])
    }

    @Test("its 401 keeps the upload, too")
    func authorizerRefuses() throws {
        let authorizer = try authorizer()
        defer { authorizer.stop() }
        let test = try asking(authorizer)
        let location = test.createPartial(fields: Self.old)
        let bad: HTTPFields = [.authorization: "Bearer bad"]
        let refused = test.serve(.append(location, at: 5, fields: bad))
        #expect(refused.status == 401)
        #expect(refused[.uploadComplete] == "?0")
        #expect(refused[.wwwAuthenticate] == "Bearer")
        #expect(test.serve(.append(location, at: 5, fields: Self.new)).status == 201)
    }

    @Test("the client's do not replace those that the authorizer has set for the upstream")
    func setByAuthorizer() throws {
        let authorizer = try authorizer(setting: true)
        defer { authorizer.stop() }
        let test = try asking(authorizer)
        let location = test.createPartial(fields: Self.old)
        let evil: HTTPFields = [.authorization: "Bearer evil"]
        #expect(test.serve(.append(location, at: 5, fields: evil)).status == 201)
        let sent = try #require(origin.requests.first)
        #expect(sent.values("Authorization") == ["Bearer inner new"])
        #expect(sent.values("Spoolgate-Set").isEmpty)
    }

    /// The authorizer has exchanged the client's token for one that expires.
    @Test(
        "a client renews what the authorizer sets: it receives the new token, and its new value is sent",
        arguments: [false, true]
    )
    func renewedByAuthorizer(withCookie: Bool) throws {
        let authorizer = try LoopbackOrigin { connection in
            while let request = try connection.receiveRequest() {
                let token = request.values("Authorization").first ?? ""
                guard token != "Bearer expired" else {
                    try connection.response("401 x", fields: ["WWW-Authenticate: Bearer"])
                    continue
                }
                let set = "Spoolgate-Set-Authorization: Inner \(token.dropFirst(7))"
                try connection.response("200 OK", fields: [set, "Spoolgate-Set-X-Other: a"])
            }
        }
        defer { authorizer.stop() }
        let test = try asking(authorizer)
        func fields(_ token: String) -> HTTPFields {
            var fields: HTTPFields = [.authorization: "Bearer \(token)"]
            if withCookie { fields[.cookie] = "a=b" }
            return fields
        }
        let location = test.createPartial(fields: fields("old"))
        let expired = fields("expired")
        #expect(test.serve(.append(location, at: 5, fields: expired)).status == 401)
        let asked = authorizer.requests.count
        // The same token is not tried again.
        #expect(test.serve(.append(location, at: 5, fields: expired)).status == 401)
        #expect(authorizer.requests.count == asked)
        #expect(origin.requests.isEmpty)
        let last = test.serve(.append(location, at: 5, fields: fields("new")))
        #expect(last.status == 201)
        #expect(authorizer.requests.last?.values("Authorization") == ["Bearer new"])
        #expect(origin.requests.map { $0.values("Authorization") } == [["Inner new"]])
    }

    /// The token with which the authorizer was asked for each delivery, by a client that logs in by `login`.
    @Test(
        "an authorizer that sets a credential is asked with the client's own",
        arguments: ["one request", "append", "accepted"],
        [HTTPField.Name.authorization, .cookie]
    )
    func askedWithOwn(way: String, login: HTTPField.Name) throws {
        let authorizer = try LoopbackOrigin { connection in
            while let request = try connection.receiveRequest() {
                // It names the owner only at the creation.
                let isCreation = request.values("Spoolgate-Event") == ["creation"]
                try connection.response(
                    "200 OK",
                    fields: ["Spoolgate-Set-Authorization: Inner new"]
                        + (isCreation ? ["Spoolgate-Owner: alice"] : [])
                )
            }
        }
        defer { authorizer.stop() }
        let test = try asking(authorizer) { settings, route in
            settings.queueRunInterval = .milliseconds(20)
            if way == "accepted" { route.reply = .accepted }
        }
        let fields: HTTPFields = [login: "Bearer own"]
        switch way {
        case "append":
            let location = test.createPartial(fields: fields)
            #expect(test.serve(.append(location, at: 5, fields: fields)).status == 201)
        case "accepted":
            let record = test.serve(ScriptedExchange(.put, "/plain", fields, ["hello"]))
            #expect(record.status == 202)
            try test.gateway.deliveries.startQueue()
        default: #expect(test.serve(.creation(["hello"], fields: fields)).status == 201)
        }
        try eventually("it is delivered") { origin.requests.count == 1 }
        #expect(origin.requests.first?.values("Authorization") == ["Inner new"])
        let asked = try #require(authorizer.requests.last)
        #expect(asked.values("Spoolgate-Event") == ["delivery"])
        #expect(asked.values(login.rawName) == ["Bearer own"])
        #expect(asked.values("Authorization").count == (login == .authorization ? 1 : 0))
    }

    @Test("the gateway's own field is never sent, with a streamed upload neither")
    func setAndStreamed() throws {
        let authorizer = try authorizer(setting: true)
        defer { authorizer.stop() }
        let test = try asking(authorizer) { _, route in route.ordinary = .pass }
        let record = test.serve(ScriptedExchange(.put, "/plain", Self.old, ["hello"]))
        #expect(record.status == 201)
        let sent = try #require(origin.requests.first)
        #expect(sent.values("Authorization") == ["Bearer inner new"])
        #expect(sent.values("Spoolgate-Set").isEmpty)
    }
}
