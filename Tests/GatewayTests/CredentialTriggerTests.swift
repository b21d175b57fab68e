// Whose credentials an attempt has: every trigger of an attempt, with every kind of credentials.

import HTTPTypes
@testable import SpoolgateDelivery
import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Testing

@testable import SpoolgateExchange
@testable import SpoolgateRequests
@testable import SpoolgateSettings
@testable import SpoolgateSpool

@Suite("credentials of every trigger")
struct CredentialTriggerTests {
    enum Client: CaseIterable {
        case draft3, draft5, draft6, draft10, tus

        var version: Int? {
            switch self {
            case .draft3: 3
            case .draft5: 5
            case .draft6: 6
            case .draft10: 10
            case .tus: nil
            }
        }

        /// Whether HEAD and GET cause an attempt.
        var looksDeliver: Bool { [.draft5, .draft6, .tus].contains(self) }
    }

    /// Who refuses the old credentials.
    enum Decider: CaseIterable {
        case upstream, authorizer
    }

    enum Trigger: CaseIterable {
        case emptyAppend, head, get
    }

    enum Credentials: CaseIterable {
        case same, renewed, otherKind, none, refusedBefore

        var fields: HTTPFields {
            switch self {
            case .same: [.authorization: "Bearer old"]
            case .renewed: [.authorization: "Bearer new"]
            case .otherKind: [.authorization: "Basic new"]
            case .none: [:]
            case .refusedBefore: [.authorization: "Bearer bad"]
            }
        }
    }

    private struct World {
        let authorizer: LoopbackOrigin?
        let origin: LoopbackOrigin
        let test: GatewayUnderTest
        let decider: Decider

        /// The credentials that the decider has received for a delivery.
        var seen: [String] {
            (decider == .upstream ? origin : authorizer ?? origin).requests
                .filter { $0.values("spoolgate-event") != ["creation"] }
                .flatMap { $0.values("Authorization") }
        }
    }

    private static func isGood(_ request: LoopbackOrigin.Request) -> Bool {
        request.values("Authorization").contains { $0.hasSuffix(" new") }
            || request.values("spoolgate-event") == ["creation"]
    }

    private static func respondingTo() throws -> LoopbackOrigin {
        try LoopbackOrigin { connection in
            while let request = try connection.receiveRequest() {
                if isGood(request) {
                    try connection.response("201 Created")
                } else {
                    try connection.response(
                        "401 Unauthorized",
                        fields: ["WWW-Authenticate: Bearer realm=\"a\""]
                    )
                }
            }
        }
    }

    private func world(_ decider: Decider) throws -> World {
        let origin =
            try decider == .upstream ? Self.respondingTo() : LoopbackOrigin(status: "201 Created")
        let authorizer = try decider == .authorizer ? Self.respondingTo() : nil
        let test = try GatewayUnderTest(origin.target) { settings, route in
            settings.queueRunInterval = .milliseconds(20)
            if let authorizer { route.authorization.url = try? ServiceURL(authorizer.base) }
        }
        return World(authorizer: authorizer, origin: origin, test: test, decider: decider)
    }

    private func tus(
        _ method: HTTPRequest.Method,
        _ path: String,
        _ fields: HTTPFields,
        _ steps: ScriptedExchange.Steps = []
    )
        -> ScriptedExchange
    {
        var fields = fields
        fields[.tusResumable] = "1.0.0"
        return ScriptedExchange(method, path, fields, steps)
    }

    /// Creates an upload of five bytes that lacks nothing but its completion.
    private func create(_ client: Client, _ fields: HTTPFields, in world: World) throws -> String {
        guard client == .tus else {
            return world.test.createPartial(version: client.version, fields: fields)
        }
        var creation = fields
        creation[.uploadLength] = "5"
        return try #require(world.test.serve(tus(.post, "/files", creation))[.location])
    }

    /// Completes the upload, or asks for its delivery again.
    private func complete(
        _ client: Client,
        _ location: String,
        _ fields: HTTPFields,
        again: Bool = true
    ) -> ScriptedExchange {
        guard client == .tus else {
            return .append(location, at: 5, version: client.version, fields: fields)
        }
        var append = fields
        append[.uploadOffset] = again ? "5" : "0"
        append[.contentType] = Tus.mediaType
        return tus(.patch, location, append, again ? [] : ["hello"])
    }

    private func exchange(
        _ trigger: Trigger,
        _ client: Client,
        _ location: String,
        _ fields: HTTPFields
    ) -> ScriptedExchange {
        switch trigger {
        case .emptyAppend: return complete(client, location, fields)
        case .head, .get:
            let method: HTTPRequest.Method = trigger == .head ? .head : .get
            guard client != .tus else { return tus(method, location, fields) }
            return ScriptedExchange(
                method,
                location,
                fields.speaking(client.version),
                length: .unknown
            )
        }
    }

    private static let old = Credentials.same.fields

    @Test(
        "an attempt has its own request's credentials, and refused ones are never sent again",
        arguments: Client.allCases,
        Trigger.allCases
    )
    func cross(client: Client, trigger: Trigger) throws {
        for decider in Decider.allCases {
            for credentials in Credentials.allCases {
                let label: Comment = "\(client) \(trigger) \(decider) \(credentials)"
                let world = try world(decider)
                defer {
                    world.origin.stop()
                    world.authorizer?.stop()
                }
                let test = world.test
                let location = try create(client, Self.old, in: world)
                let first = test.serve(complete(client, location, Self.old, again: false))
                #expect(first.status == 401, label)
                #expect(first[.wwwAuthenticate] == "Bearer realm=\"a\"", label)
                var refused = ["Bearer old"]
                if credentials == .refusedBefore {
                    let bad = complete(client, location, credentials.fields)
                    #expect(test.serve(bad).status == 401, label)
                    refused.append("Bearer bad")
                }
                #expect(world.seen == refused, label)
                let isLook = trigger != .emptyAppend
                let record = test.serve(exchange(trigger, client, location, credentials.fields))
                let attempts = credentials == .renewed && (!isLook || client.looksDeliver)
                #expect(world.seen == refused + (attempts ? ["Bearer new"] : []), label)
                #expect(try test.queue(of: location) == (attempts ? .delivered : .deferred), label)
                if !isLook, !attempts {
                    #expect(record.status == 401, label)
                    #expect(record[.wwwAuthenticate] == "Bearer realm=\"a\"", label)
                } else if attempts {
                    #expect((200..<300).contains(record.status ?? 0), label)
                }
                guard !attempts else { continue }
                // The documented way out, at once.
                let done = test.serve(complete(client, location, Credentials.renewed.fields))
                #expect((200..<300).contains(done.status ?? 0), label)
                #expect(world.seen == refused + ["Bearer new"], label)
                #expect(try test.queue(of: location) == .delivered, label)
            }
        }
    }

    @Test(
        "many requests with refused credentials delay none with new ones",
        arguments: Client.allCases
    )
    func noDelay(client: Client) throws {
        let world = try world(.upstream)
        defer { world.origin.stop() }
        let location = try create(client, Self.old, in: world)
        _ = world.test.serve(complete(client, location, Self.old, again: false))
        for _ in 0..<6 {
            _ = world.test.serve(exchange(.head, client, location, Self.old))
            _ = world.test.serve(complete(client, location, Self.old))
        }
        #expect(world.seen == ["Bearer old"])
        let done = world.test.serve(complete(client, location, Credentials.renewed.fields))
        #expect((200..<300).contains(done.status ?? 0))
    }

    @Test(
        "neither a restart nor the queue sends refused credentials again",
        arguments: Decider.allCases
    )
    func restart(decider: Decider) throws {
        let world = try world(decider)
        defer {
            world.origin.stop()
            world.authorizer?.stop()
        }
        let test = world.test
        let location = try create(.draft10, Self.old, in: world)
        #expect(test.serve(complete(.draft10, location, Self.old)).status == 401)
        let other = try test.another()
        let again = complete(.draft10, location, Self.old)
        other.serve(again)
        #expect(again.record.status == 401)
        // As after a crash during an attempt with other credentials.
        try test.enqueue(location)
        try other.deliveries.startQueue()
        defer { _ = other.deliveries.stopQueue(until: .after(.seconds(10))) }
        try eventually("it waits for its client") {
            try test.withUpload(location) { $0.nextAttempt == nil && $0.lacksCredentials }
        }
        #expect(world.seen == ["Bearer old"])
        let done = complete(.draft10, location, Credentials.renewed.fields)
        other.serve(done)
        #expect(done.record.status == 201)
        #expect(world.seen == ["Bearer old", "Bearer new"])
    }

    @Test("an operator's requeue sends them once more", arguments: Decider.allCases)
    func requeue(decider: Decider) throws {
        let world = try world(decider)
        defer {
            world.origin.stop()
            world.authorizer?.stop()
        }
        let test = world.test
        let location = try create(.tus, Self.old, in: world)
        #expect(test.serve(complete(.tus, location, Self.old, again: false)).status == 401)
        try test.withUpload(location) { try $0.requeue(at: .now) }
        try test.gateway.deliveries.startQueue()
        try eventually("it was sent, and waits for its client") {
            try world.seen.count == 2 && test.withUpload(location) { $0.lacksCredentials }
        }
        #expect(world.seen == ["Bearer old", "Bearer old"])
        #expect(test.serve(complete(.tus, location, Self.old)).status == 401)
        #expect(world.seen.count == 2)
    }

    @Test(
        "the credentials of the last request are kept for the queue, and those of a later one replace them"
    )
    func queued() throws {
        let world = try world(.upstream)
        defer { world.origin.stop() }
        let test = world.test
        test.reload { $0.routes["default"]?.reply = .accepted }
        let location = try create(.draft10, Self.old, in: world)
        let bad: HTTPFields = [.authorization: "Bearer bad"]
        #expect(test.serve(complete(.draft10, location, bad)).status == 202)
        #expect(test.serve(complete(.draft10, location, [:])).status == 202)
        #expect(try test.withUpload(location) { try $0.completion() } == bad)
        #expect(test.serve(complete(.draft10, location, Credentials.renewed.fields)).status == 202)
        try test.gateway.deliveries.startQueue()
        try test.waitUntil(location, isIn: .delivered)
        #expect(world.seen == ["Bearer new"])
    }

    @Test(
        "an operator's requeue sends those of the last request, with and without a response",
        arguments: ["", "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n"]
    )
    func held(response: String) throws {
        let origin = try LoopbackOrigin { connection in
            guard let request = try connection.receiveRequest() else { return }
            if request.values("Authorization") != ["Bearer new"] { Issue.record("\(request)") }
            try connection.send(response)
        }
        defer { origin.stop() }
        let test = try GatewayUnderTest(origin.target)
        let location = test.createPartial(fields: Self.old)
        #expect(
            test.serve(.append(location, at: 5, fields: Credentials.renewed.fields)).status == 502
        )
        #expect(try test.withUpload(location) { $0.queue } == .hold)
        try test.withUpload(location) { try $0.requeue(at: .now) }
        try test.gateway.deliveries.startQueue()
        try test.waitUntil(location, isIn: .hold)
        try eventually("it was sent twice") { origin.requests.count == 2 }
    }

    @Test("the record keeps no secret of a refused request")
    func noSecret() throws {
        let world = try world(.upstream)
        defer { world.origin.stop() }
        let location = try create(.draft10, Self.old, in: world)
        let bad: HTTPFields = [.authorization: "Bearer bad"]
        #expect(world.test.serve(complete(.draft10, location, bad)).status == 401)
        let stored = try #require(try world.test.withUpload(location) { try $0.completion() })
        #expect(!stored.contains(.authorization))
        #expect(stored[.refusedCredentials]?.utf8.count == 32)
    }
}
