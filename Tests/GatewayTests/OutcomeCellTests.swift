// Who may end an upload's life: each decider with each kind of answer, in each protocol, with real services.
//
// Invariant: content is removed only after the upstream's success, or after a final refusal that a waiting client
// received.

import Foundation
import HTTPTypes
@testable import SpoolgateExchange
import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateTextFormats
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Synchronization
import Testing

@testable import SpoolgateAdmin
@testable import SpoolgateDelivery
@testable import SpoolgateRequests
@testable import SpoolgateSettings
@testable import SpoolgateSpool

@Suite("deciders")
struct OutcomeCellTests {
    /// What an upstream or an authorizer says until it becomes good.
    struct Reply: Sendable, CustomTestStringConvertible {
        let status: Int
        var location: String?
        var retryAfter: Int?
        var testDescription: String { "\(status) \(location ?? "")" }

        init(_ status: Int, _ location: String? = nil, retryAfter: Int? = nil) {
            (self.status, self.location, self.retryAfter) = (status, location, retryAfter)
        }

        var fields: [String] {
            (location.map { ["Location: \($0)"] } ?? [])
                + (retryAfter.map { ["Retry-After: \($0)"] } ?? [])
        }
    }

    enum Decider: String, CaseIterable {
        case authorizer, upstream, inspection
    }

    enum Speaker: Sendable, Equatable, CaseIterable {
        case draft3, draft6, draft10, tus

        var version: Int? {
            switch self {
            case .draft3: 3
            case .draft6: 6
            case .draft10: 10
            case .tus: nil
            }
        }
    }

    static let login = "https://login.example/start"

    /// A gateway whose authorizer and upstream say "yes" until `turn`, and after `relent`.
    private final class Scene {
        let authorizer: LoopbackOrigin
        let upstream: LoopbackOrigin
        let test: GatewayUnderTest

        init(
            _ change: @escaping (inout Settings, inout RouteSettings) -> Void = { _, _ in }
        ) throws {
            let replies = SharedReplies()
            shared = replies
            func origin(_ decider: Decider, _ yes: String) throws -> LoopbackOrigin {
                try LoopbackOrigin { connection in
                    while try connection.receiveRequest() != nil {
                        let reply = replies.value.withLock { $0[decider] }
                        try connection.response(
                            reply.map { "\($0.status) Said" } ?? yes,
                            fields: reply?.fields ?? [],
                            content: reply.map { $0.status == 304 ? "" : "said" } ?? ""
                        )
                    }
                }
            }
            authorizer = try origin(.authorizer, "204 No Content")
            upstream = try origin(.upstream, "201 Created")
            let base = authorizer.base
            test = try QueueScene.gateway(.http(base: upstream.base)) { settings, route in
                route.authorization.url = try? ServiceURL(base)
                route.inspection.command = ["/bin/sh", "-c", "[ ! -e ROOT/no ]", "inspect"]
                settings.queueRunInterval = .milliseconds(20)
                change(&settings, &route)
            }
        }

        deinit {
            authorizer.stop()
            upstream.stop()
        }

        private let shared: SharedReplies

        final class SharedReplies: Sendable {
            let value = Mutex<[Decider: Reply]>([:])
        }

        func turn(_ decider: Decider, to reply: Reply) {
            if decider == .inspection {
                _ = FileManager.default.createFile(atPath: test.root + "/no", contents: nil)
            }
            shared.value.withLock { $0[decider] = reply }
        }

        func relent() {
            try? FileManager.default.removeItem(atPath: test.root + "/no")
            shared.value.withLock { $0 = [:] }
        }

        func create(
            _ speaker: Speaker,
            method: HTTPRequest.Method = .post,
            fields: HTTPFields = [:]
        ) throws -> String {
            var fields = fields
            guard speaker == .tus else {
                return test.createPartial(method: method, version: speaker.version, fields: fields)
            }
            fields[.tusResumable] = Tus.version
            fields[.uploadLength] = "6"
            fields[.contentType] = Tus.mediaType
            return try #require(
                test.serve(ScriptedExchange(.post, "/files", fields, ["hello"])).location
            )
        }

        /// An append of the last byte, or an empty one at the end of the content.
        func complete(
            _ speaker: Speaker,
            _ location: String,
            at offset: Int64 = 5,
            fields: HTTPFields = [:]
        ) -> ScriptedExchange.Record {
            let steps: [ScriptedExchange.Step] = offset == 5 ? ["!"] : []
            guard speaker == .tus else {
                var fields = fields
                if speaker == .draft3 { fields[.uploadIncomplete] = "?0" }
                return test.serve(
                    .append(
                        location,
                        at: offset,
                        steps,
                        version: speaker.version,
                        fields: fields
                    )
                )
            }
            var fields = fields
            fields[.tusResumable] = Tus.version
            fields[.contentType] = Tus.mediaType
            fields[.uploadOffset] = "\(offset)"
            return test.serve(ScriptedExchange(.patch, location, fields, steps))
        }

        /// The upload's content as the spool has it; nil if it was removed.
        func content(_ location: String) throws -> String? {
            try test.withUpload(location) { upload in
                guard upload.queue != .delivered else { return nil }
                var bytes = [UInt8](repeating: 0, count: 16)
                let count = try bytes.withUnsafeMutableBytes { try upload.read(into: $0, at: 0) }
                return String(decoding: bytes[..<count], as: UTF8.self)
            }
        }

        func requeue(_ location: String) throws {
            try test.withUpload(location) { try $0.requeue(at: .now) }
            test.gateway.deliveries.queue.requestRun()
        }
    }

    private static func cells(
        _ decider: Decider,
        _ statuses: [Int],
        _ location: String? = nil
    ) -> [(Decider, Reply)] {
        statuses.map { (decider, Reply($0, location)) }
    }

    static let refusals: [(Decider, Reply)] = [
        cells(.authorizer, [400, 401, 403, 404, 413]),
        cells(.authorizer, [302, 303, 307], login),
        cells(.upstream, [400, 401, 403, 404, 413, 422, 500, 304, 300, 303]),
        cells(.upstream, [301, 302, 303], login),
        cells(.upstream, [302, 303], "/accounts/login/?next=/files"),
        [(.upstream, Reply(429, retryAfter: 86_400)), (.inspection, Reply(1))],
    ].flatMap { $0 }

    @Test(
        "after 202 every refusal is kept in hold with its reason, and requeue runs every check again",
        arguments: refusals,
        [HTTPRequest.Method.post, .put]
    )
    func afterAccepted(refusal: (Decider, Reply), method: HTTPRequest.Method) throws {
        let scene = try Scene { _, route in
            route.reply = .accepted
            route.upstream.redirects.login = [try! #require(RedirectPlace("/accounts/login"))]
        }
        let location = try scene.create(.draft10, method: method)
        scene.turn(refusal.0, to: refusal.1)
        #expect(scene.complete(.draft10, location).status == 202)
        try scene.test.gateway.deliveries.startQueue()
        try scene.test.waitUntil(location, isIn: .hold)
        let summary = try scene.test.summary(location)
        #expect(summary.holdCause == .failed)
        #expect(summary.stateWord == "failed")
        let reason = try #require(summary.reason)
        #expect(reason.contains(refusal.0.rawValue), "\(reason)")
        #expect(try scene.content(location) == "hello!")
        // Still refused: the check that fails is named again.
        try scene.requeue(location)
        try scene.test.waitUntil(location, isIn: .hold)
        #expect(try scene.content(location) == "hello!")
        scene.relent()
        try scene.requeue(location)
        try scene.test.waitUntil(location, isIn: .delivered)
        #expect(scene.upstream.requests.last?.content == Array("hello!".utf8))
    }

    @Test(
        "a client that returns after 202 hears 401 for a redirect to a login, not the redirect",
        arguments: [
            (HTTPRequest.Method.put, "https://login.example/"),
            (.put, "/accounts/login/?next=/files"),
            (.post, "/accounts/login/?next=/files"),
        ]
    )
    func loginAfterAccepted(method: HTTPRequest.Method, place: String) throws {
        let scene = try Scene { _, route in
            route.reply = .accepted
            route.upstream.redirects.login = [try! #require(RedirectPlace("/accounts/login"))]
        }
        let location = try scene.create(.draft10, method: method)
        scene.turn(.upstream, to: Reply(302, place))
        #expect(scene.complete(.draft10, location).status == 202)
        try scene.test.gateway.deliveries.startQueue()
        try scene.test.waitUntil(location, isIn: .hold)
        let again = scene.complete(.draft10, location, at: 6)
        #expect(again.status == 401)
        #expect(again[.location] == nil)
        #expect(again.text.contains("credentials-refused") && !again.text.contains("said"))
        // The operator learns of the redirect.
        let reason = try #require(try scene.test.summary(location).reason)
        #expect(reason.contains("responded with 302, a redirect to"), "\(reason)")
        #expect(try scene.content(location) == "hello!")
    }

    @Test(
        "a reply that changes after the 202 does not make the client wait",
        arguments: [
            (Decider.authorizer, 401), (.authorizer, 403), (.upstream, 401), (.upstream, 422),
        ]
    )
    func replyChanges(decider: Decider, status: Int) throws {
        let scene = try Scene { _, route in route.reply = .accepted }
        let location = try scene.create(.draft10)
        scene.turn(decider, to: Reply(status))
        #expect(scene.complete(.draft10, location).status == 202)
        scene.test.reload { $0.routes["default"]?.reply = .upstream }
        try scene.test.gateway.deliveries.startQueue()
        try scene.test.waitUntil(location, isIn: .hold)
        #expect(try scene.content(location) == "hello!")
    }

    @Test(
        "a refusal that no client receives is kept",
        arguments: refusals.filter { ![401, 302].contains($0.1.status) && $0.1.location == nil }
    )
    func withoutClient(refusal: (Decider, Reply)) throws {
        let scene = try Scene()
        let location = try scene.create(.draft10)
        scene.turn(.upstream, to: Reply(425))
        let exchange = ScriptedExchange.append(location, at: 5, ["!"])
        exchange.leave(after: -1)
        scene.test.serve(exchange)
        #expect(try scene.test.queue(of: location) == .deferred)
        scene.relent()
        scene.turn(refusal.0, to: refusal.1)
        try scene.test.enqueue(location)
        try scene.test.gateway.deliveries.startQueue()
        try scene.test.waitUntil(location, isIn: .hold)
        #expect(try scene.content(location) == "hello!")
        scene.relent()
        try scene.requeue(location)
        try scene.test.waitUntil(location, isIn: .delivered)
    }

    static let logins: [(Decider, Reply, HTTPRequest.Method)] = [
        (.authorizer, Reply(302, login), .post), (.authorizer, Reply(303, "/login"), .put),
        (.authorizer, Reply(307, login), .post), (.authorizer, Reply(401), .post),
        (.upstream, Reply(401), .post), (.upstream, Reply(303, login), .put),
        (.upstream, Reply(302, login), .put), (.upstream, Reply(301, login), .put),
        (.upstream, Reply(302, "/accounts/login/?next=/files"), .post),
        (.upstream, Reply(302, "/accounts/login/?next=/files"), .put),
        (.upstream, Reply(303, "http://127.0.0.1/accounts/login"), .put),
    ]

    @Test(
        "a login is a 401: the upload waits for its client, in every protocol",
        arguments: logins,
        Speaker.allCases
    )
    func login(cell: (Decider, Reply, HTTPRequest.Method), speaker: Speaker) throws {
        // tus uploads are always POSTs.
        let method = speaker == .tus ? .post : cell.2
        if speaker == .tus, cell.0 == .upstream, cell.2 == .put { return }
        let scene = try Scene { _, route in
            route.upstream.redirects.login = [try! #require(RedirectPlace("/accounts/login"))]
        }
        let location = try scene.create(speaker, method: method)
        scene.turn(cell.0, to: cell.1)
        let record = scene.complete(speaker, location)
        #expect(record.status == 401)
        #expect(record[.location] == nil)
        if speaker == .draft6 || speaker == .draft10 { #expect(record[.uploadComplete] == "?0") }
        #expect(try scene.test.queue(of: location) == .deferred)
        #expect(try scene.content(location) == "hello!")
        #expect(cell.0 != .authorizer || scene.upstream.requests.isEmpty)
        scene.relent()
        let done = scene.complete(speaker, location, at: 6)
        #expect(done.status == (speaker == .tus ? 204 : 201))
        #expect(scene.upstream.requests.last?.content == Array("hello!".utf8))
    }

    @Test(
        "a POST that is redirected to another host may have been processed: it is held",
        arguments: [301, 302, 303],
        Speaker.allCases
    )
    func elsewhere(status: Int, speaker: Speaker) throws {
        let scene = try Scene()
        let location = try scene.create(speaker)
        scene.turn(.upstream, to: Reply(status, Self.login))
        let record = scene.complete(speaker, location)
        let again = scene.complete(speaker, location, at: 6)
        for record in [record, again] {
            // Clients that follow, or take 2xx for success, receive 424.
            let misled = speaker == .tus || speaker == .draft6
            #expect(record.status == (misled ? 424 : status))
            if misled {
                #expect(record[.proxyStatus] == "spoolgate; received-status=\(status)")
            }
        }
        #expect(try scene.test.summary(location).holdCause == .indeterminate)
        #expect(try scene.content(location) == "hello!")
        #expect(scene.upstream.requests.count == 1)
        #expect(scene.test.log.messages.contains("redirect not listed"))
        let concerns = Status(of: .of(scene.test.gateway)).concerns
        #expect(
            concerns.contains { $0.contains("login.example") && $0.contains("redirects.login") }
        )
        scene.relent()
        try scene.requeue(location)
        try scene.test.gateway.deliveries.startQueue()
        try scene.test.waitUntil(location, isIn: .delivered)
    }

    @Test(
        "a client without an upload resource hears 401 for a login, and nothing claims a delivery",
        arguments: [
            (HTTPRequest.Method.post, "/login"), (.put, "/login"),
            (.put, "https://login.example/"),
        ]
    )
    func loginOfMessage(method: HTTPRequest.Method, place: String) throws {
        let scene = try Scene { _, route in
            route.upstream.redirects.login = ["/login"].compactMap { RedirectPlace($0) }
        }
        scene.turn(.upstream, to: Reply(302, place))
        let record = scene.test.serve(
            .creation(
                [.bytes(tooLargeToBePlain)],
                method: method,
                context: ExchangeContext(interimStatuses: [])
            )
        )
        #expect(record.status == 401)
        #expect(record.text.contains("credentials-refused"))
        #expect(try scene.test.summaries().allSatisfy { $0.stateWord == "refused" })
    }

    @Test(
        "a POST redirected elsewhere is kept although hold is full",
        arguments: Speaker.allCases
    )
    func elsewhereAndFull(speaker: Speaker) throws {
        let scene = try Scene { _, route in route.queue.maximumHoldSize = 1 }
        for status in [500, 303] {
            let location = try scene.create(speaker)
            scene.turn(.upstream, to: Reply(status == 500 ? 502 : 303, Self.login))
            _ = scene.complete(speaker, location)
            #expect(try scene.content(location) == "hello!")
        }
    }

    @Test("a success elsewhere is success for PUT as well", arguments: [301, 302, 303])
    func listedForPut(status: Int) throws {
        let scene = try Scene { _, route in
            route.upstream.redirects.success = ["/done", "www.example"].compactMap {
                RedirectPlace($0)
            }
        }
        for place in ["/done/7", "https://www.example/7"] {
            let location = try scene.create(.draft10, method: .put)
            scene.turn(.upstream, to: Reply(status, place))
            #expect(scene.complete(.draft10, location).status == status)
            #expect(try scene.test.queue(of: location) == .delivered)
        }
        #expect(!scene.test.log.messages.contains("redirect not listed"))
    }

    @Test(
        "the application's own redirect is success",
        arguments: [
            "/files/7", "7", "?done", "http://127.0.0.1/files/7", "https://127.0.0.1:8443/x",
            "//uploads.example/7", "http://UPLOADS.example:81/", "https://www.example/done/7",
        ],
        [HTTPRequest.Method.post, .put]
    )
    func own(place: String, method: HTTPRequest.Method) throws {
        let scene = try Scene { _, route in
            route.upstream.redirects.success = [try! #require(RedirectPlace("www.example/done"))]
        }
        let location = try scene.create(
            .draft10,
            method: method,
            fields: [.host: "uploads.example:8443"]
        )
        scene.turn(.upstream, to: Reply(303, place))
        let record = scene.complete(.draft10, location)
        #expect(record.status == 303)
        #expect(record[.uploadComplete] == "?1")
        #expect(try scene.test.queue(of: location) == .delivered)
    }

    @Test(
        "a redirect that names the application only in part leads elsewhere",
        arguments: [
            "https://uploads.example@login.example/", "https://login.example/uploads.example",
            "https://xuploads.example/", "https://uploads.example.evil/", "app://uploads.example/",
            "https://login.example\\@uploads.example/", "https://www.example/donee", "a b", "",
        ]
    )
    func almostOwn(place: String) throws {
        let scene = try Scene { _, route in
            route.upstream.redirects.success = [try! #require(RedirectPlace("www.example/done"))]
        }
        let location = try scene.create(.draft10, fields: [.host: "uploads.example"])
        scene.turn(.upstream, to: Reply(303, place))
        #expect(scene.complete(.draft10, location).status == 303)
        #expect(try scene.test.summary(location).holdCause == .indeterminate)
    }

    static let later: [(status: Int, isSafe: Bool)] = [
        408, 421, 423, 425, 429, 502, 503, 504, 507, 511,
    ].flatMap { status in [true, false].map { (status, $0) } }

    @Test(
        "an answer that only means \"not now\" ends no upload",
        arguments: later,
        Speaker.allCases
    )
    func notNow(cell: (status: Int, isSafe: Bool), speaker: Speaker) throws {
        let scene = try Scene { _, route in
            route.honoursIdempotencyKey = cell.isSafe
        }
        let location = try scene.create(speaker)
        scene.turn(.upstream, to: Reply(cell.status))
        let record = scene.complete(speaker, location)
        let isFinal = cell.status == 421
        let isUnprocessed = [425, 429].contains(cell.status)
        #expect(scene.upstream.requests.count == (isFinal ? 2 : 1))
        if isFinal {
            #expect(record.status == 421)
            #expect(try scene.test.queue(of: location) == .delivered)
        } else if cell.isSafe || isUnprocessed {
            #expect(record.status == 503)
            #expect(try scene.test.queue(of: location) == .deferred)
            #expect(try scene.content(location) == "hello!")
        } else {
            let misled = speaker == .tus || speaker == .draft6
            let isRepeated = [423].contains(cell.status) || cell.status >= 500
            #expect(record.status == (misled && isRepeated ? 424 : cell.status))
            #expect(try scene.test.summary(location).holdCause == .indeterminate)
            #expect(try scene.content(location) == "hello!")
        }
        guard try scene.test.queue(of: location) != .delivered else { return }
        scene.relent()
        try scene.requeue(location)
        try scene.test.gateway.deliveries.startQueue()
        try scene.test.waitUntil(location, isIn: .delivered)
    }

    @Test(
        "421 is repeated once over a new connection, of ordinary uploads too",
        arguments: [true, false]
    )
    func misdirected(isOrdinary: Bool) throws {
        let upstream = try LoopbackOrigin { connection in
            var isFirst = true
            while let request = try connection.receiveRequest() {
                let isKept = !isFirst && !request.target.hasPrefix("/warm")
                try connection.response(isKept || request.number == 1 ? "421 x" : "201 Created")
                isFirst = false
            }
        }
        let test = try GatewayUnderTest(upstream.target)
        #expect(test.serve(ScriptedExchange(.get, "/warm", [:], [])).status == 201)
        let record = test.serve(
            isOrdinary
                ? ScriptedExchange(.put, "/files", [:], ["hello"]) : .creation(method: .put)
        )
        #expect(record.status == 201)
        #expect(
            upstream.requests.suffix(2).map(\.content) == [
                Array("hello".utf8), Array("hello".utf8),
            ]
        )
        #expect(upstream.requests.count == 3)
        #expect(upstream.connectionCount >= 2)
    }

    @Test("Retry-After may be a date")
    func busyUntil() throws {
        let scene = try Scene()
        let location = try scene.create(.draft10)
        let date = HTTPDate.text(WallTime.now.seconds + 86_400)
        let upstream = try LoopbackOrigin(status: "429 x", fields: ["Retry-After: \(date)"])
        scene.test.reload { $0.routes["default"]?.upstream.targets = [upstream.target] }
        #expect(scene.complete(.draft10, location).status == 429)
    }

    @Test("429 is final if its Retry-After exceeds every pause, and for ordinary uploads")
    func busyForLong() throws {
        let scene = try Scene()
        scene.turn(.upstream, to: Reply(429, retryAfter: 3_600))
        let location = try scene.create(.draft10)
        let record = scene.complete(.draft10, location)
        #expect(record.status == 429)
        #expect(record[.uploadComplete] == "?1")
        #expect(scene.test.serve(ScriptedExchange(.post, "/files", [:], ["x"])).status == 429)
        scene.turn(.upstream, to: Reply(425))
        #expect(scene.test.serve(ScriptedExchange(.post, "/files", [:], ["x"])).status == 425)
    }

    @Test(
        "an unsafe request in early data is refused, and no delivery carries the field",
        arguments: [HTTPRequest.Method.post, .put, .patch, .delete, .get, .head]
    )
    func earlyData(method: HTTPRequest.Method) throws {
        let origin = try LoopbackOrigin()
        let test = try GatewayUnderTest(origin.target)
        let early: HTTPFields = [.init("Early-Data")!: "1"]
        let steps: [ScriptedExchange.Step] = method.isSafe ? [] : ["x"]
        let record = test.serve(ScriptedExchange(method, "/files", early, steps))
        #expect(record.status == (method.isSafe ? 200 : 425))
        #expect(origin.requests.count == (method.isSafe ? 1 : 0))
        #expect(origin.requests.allSatisfy { $0.values("Early-Data") == ["1"] })
        if method == .post {
            #expect(test.serve(.creation(fields: early)).status == 425)
            // An invalid value counts as 1 (RFC 8470 §5.1).
            #expect(test.serve(.creation(fields: [.init("Early-Data")!: "0"])).status == 425)
        }
    }

    @Test("an authorizer's redirect at a creation is a 401, but a browser's form follows it")
    func loginAtCreation() throws {
        let scene = try Scene()
        scene.turn(.authorizer, to: Reply(302, Self.login))
        let record = scene.test.serve(.creation())
        #expect(record.status == 401)
        #expect(record.text.contains("credentials-refused"))
        #expect(record[.location] == nil)
        let form = scene.test.serve(ScriptedExchange(.post, "/files", [:], ["x"]))
        #expect(form.status == 302)
        #expect(form[.location] == Self.login)
        #expect(scene.upstream.requests.isEmpty)
    }

    @Test("content that no longer agrees with the client's digest is kept after 202")
    func contradicted() throws {
        let scene = try Scene { _, route in route.reply = .accepted }
        let location = try scene.create(.draft10)
        #expect(scene.complete(.draft10, location).status == 202)
        try scene.test.withUpload(location) { upload in
            try upload.keepCompletion([
                .reprDigest: "sha-256=:\(Base64.encode([UInt8](repeating: 1, count: 32))):"
            ])
        }
        try scene.test.gateway.deliveries.startQueue()
        try scene.test.waitUntil(location, isIn: .hold)
        #expect(try scene.content(location) == "hello!")
    }
}
