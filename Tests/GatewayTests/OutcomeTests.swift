// The table of outcomes in ARCHITECTURE.md, each row with a real upstream.

import Foundation
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

@Suite("outcomes")
struct OutcomeTests {
    // MARK: The table

    private static let page = URL(filePath: #filePath).deletingLastPathComponent()
        .deletingLastPathComponent().deletingLastPathComponent()
        .appending(path: "ARCHITECTURE.md")

    @Test("ARCHITECTURE.md shows the table of outcomes")
    func table() throws {
        let text = try String(contentsOf: Self.page, encoding: .utf8)
        let start = try #require(text.range(of: "<!-- made from AttemptDecision: begin -->\n"))
        let end = try #require(text.range(of: "<!-- made from AttemptDecision: end -->"))
        #expect(text[start.upperBound..<end.lowerBound] == Self.table)
    }

    /// Clients and decisions with the same outcomes share a column or a row.
    private static var table: String {
        func fates(_ client: ClientKnowledge) -> [AttemptDecision] {
            AttemptResult.allCases.flatMap { result in
                [true, false].map { AttemptDecision(after: result, isRepeatable: $0, client) }
            }
        }
        let columns = grouped(ClientKnowledge.allCases, by: fates)
        func outcomes(_ result: AttemptResult, _ isRepeatable: Bool) -> [String] {
            columns.map {
                AttemptDecision(after: result, isRepeatable: isRepeatable, $0[0]).rawValue
            }
        }
        var text = "| decision | repeating is |"
        text += columns.map { " the client \($0.map(\.rawValue).joined(separator: "; or "))" }
            .joined(separator: " |")
        text += " |\n|---|---|\(columns.map { _ in "---|" }.joined())\n"
        let rows = grouped(AttemptResult.allCases) { result in
            [true, false].map { outcomes(result, $0) }
        }
        for results in rows {
            let names = results.map { "\($0.decider): \($0.rawValue)" }.joined(separator: "; ")
            let cells = [true, false].map { outcomes(results[0], $0) }
            let words = cells[0] == cells[1] ? ["either"] : ["safe", "not safe"]
            for (row, word) in zip(cells, words) {
                text += "| \(([names, word] + row).joined(separator: " | ")) |\n"
            }
        }
        return text
    }

    private static func grouped<Item, Key: Equatable>(
        _ items: [Item],
        by key: (Item) -> Key
    ) -> [[Item]] {
        items.reduce(into: [[Item]]()) { groups, item in
            if let index = groups.firstIndex(where: { key($0[0]) == key(item) }) {
                groups[index].append(item)
            } else {
                groups.append([item])
            }
        }
    }

    private func cells(_ body: (AttemptResult, Bool, ClientKnowledge, AttemptDecision) -> Void) {
        for result in AttemptResult.allCases {
            for isRepeatable in [true, false] {
                for client in ClientKnowledge.allCases {
                    let fate = AttemptDecision(after: result, isRepeatable: isRepeatable, client)
                    body(result, isRepeatable, client, fate)
                }
            }
        }
    }

    @Test("content is removed only after success, or if a waiting client receives a final refusal")
    func nothingLost() {
        cells { result, isRepeatable, client, fate in
            let name: Comment = "\(result), \(isRepeatable), \(client)"
            #expect((fate == .delivered) == (result == .accepted), name)
            #expect(fate != .refused || client.waits, name)
            #expect(client != .accepted || fate != .deferredForClient, name)
            // A store or a service that is away has decided nothing.
            guard [.unsent, .unchecked, .notProcessed].contains(result) else { return }
            #expect(fate == .deferred, name)
        }
    }

    @Test("a request that may have been accepted is repeated only if that is safe")
    func nothingTwice() {
        cells { result, isRepeatable, client, fate in
            guard !isRepeatable, [.notNow, .noResponse, .elsewhere].contains(result) else { return }
            let name: Comment = "\(result), \(client)"
            #expect([.failed, .heldWithResponse, .held].contains(fate), name)
        }
    }

    @Test("a response that is not final is neither stored nor relayed")
    func nothingEarly() {
        cells { result, _, _, fate in
            let isOfAttempt = result != .unsent && result != .noResponse && result != .unchecked
            #expect(!fate.isFinal || isOfAttempt, "\(result), \(fate)")
        }
    }

    // MARK: Conditional requests

    private static let conditions: [HTTPFields] = [
        [.ifNoneMatch: "*"], [.ifMatch: "\"a\""],
        [.ifUnmodifiedSince: "Sun, 06 Nov 1994 08:49:37 GMT"],
        [HTTPField.Name.made("If"): "(<urn:uuid:1>)"],
    ]

    @Test(
        "a conditional PUT of unknown outcome is held, and never sent again",
        arguments: conditions
    )
    func conditional(fields: HTTPFields) throws {
        let origin = try QueueScene.origin([.breaksOff, .responses(412)])
        let test = try QueueScene.gateway(origin.target)
        let location = test.createPartial(method: .put, fields: fields)
        let record = test.serve(.append(location, at: 5))
        #expect(record.status == 502)
        #expect(record[.uploadComplete] == "?1")
        #expect(try test.summary(location).holdCause == .indeterminate)
        #expect(test.serve(.append(location, at: 5)).status == 502)
        #expect(origin.requests.count == 1)
    }

    @Test(
        "a conditional request is not repeated on a closed kept connection either",
        arguments: [true, false]
    )
    func conditionalOnKeptConnection(isUpload: Bool) throws {
        let origin = try LoopbackOrigin { connection in
            while let request = try connection.receiveRequest() {
                // Resets the connection on its second request.
                guard request.number != 1 else { return connection.reset() }
                try connection.response(request.number == 0 ? "204 No Content" : "412 x")
            }
        }
        let test = try GatewayUnderTest(origin.target)
        #expect(test.serve(ScriptedExchange(.get, "/first", [:], [])).status == 204)
        let fields: HTTPFields = [.ifNoneMatch: "*"]
        let record =
            isUpload
            ? test.serve(.creation(method: .put, fields: fields))
            : test.serve(ScriptedExchange(.delete, "/a", fields, []))
        #expect(record.status == 502)
        #expect(origin.requests.count == 2)
    }

    // MARK: Redirects

    @Test(
        "the gateway follows a redirect within the upstream with the whole content",
        arguments: [
            (307, "/in/b?x=1"), (308, "/in/b?x=1"), (307, "b?x=1"), (307, "//HOST/in/b?x=1"),
            (307, "http://HOST/in/./c/../b?x=1#y"), (308, "https://uploads.example/b?x=1"),
            (307, "HTTP://Uploads.Example:80/b?x=1"),
        ]
    )
    func followed(status: Int, place: String) throws {
        try follow(status, place, method: .post)
    }

    @Test(
        "301 and 302 are followed for PUT and PATCH",
        arguments: [301, 302],
        [HTTPRequest.Method.put, .patch]
    )
    func followedMoves(status: Int, method: HTTPRequest.Method) throws {
        try follow(status, "/in/b?x=1", method: method)
    }

    private func follow(_ status: Int, _ place: String, method: HTTPRequest.Method) throws {
        let origin = try LoopbackOrigin { connection in
            while let request = try connection.receiveRequest() {
                let host = request.values("X-Real").first ?? ""
                let place = place.replacing("HOST", with: host)
                if request.target.hasPrefix("/in/b") {
                    try connection.response("201 Created")
                } else {
                    try connection.response(
                        "\(status) x",
                        fields: ["Location: \(place)"],
                        content: "see there"
                    )
                }
            }
        }
        let test = try GatewayUnderTest(.http(base: origin.base + "/in")) { _, route in
            let host = HTTPField(name: .made("X-Real"), value: "127.0.0.1:\(origin.port)")
            route.fields.set = [host]
        }
        let context = ExchangeContext(origin: "https://uploads.example", interimStatuses: [104])
        let creation = test.serve(
            .creation(["he"], complete: false, method: method, target: "/a", context: context)
        )
        let location = try #require(creation.location)
        let resource = String(location.drop { $0 != "/" }.dropFirst(2).drop { $0 != "/" })
        let record = test.serve(.append(resource, at: 2, ["llo"], context: context))
        #expect(record.status == 201)
        #expect(record[.uploadComplete] == "?1")
        #expect(
            origin.requests.map(\.line)
                == ["/in/a", "/in/b?x=1"].map { "\(method) \($0) HTTP/1.1" }
        )
        #expect(origin.requests.map(\.content) == Array(repeating: Array("hello".utf8), count: 2))
        #expect(try test.summary(resource).attempts == 2)
    }

    @Test(
        "a redirect that may not be followed is no response for a client that has sent only the rest",
        arguments: [
            "http://other.example/b", "https://127.0.0.1/b", "/b", "/in/../b",
            "ftp://uploads.example/",
            "mailto:a", "//other.example/in/b", "/in/b c", "/inside",
        ]
    )
    func notFollowed(place: String) throws {
        let origin = try LoopbackOrigin(status: "307 x", fields: ["Location: \(place)"])
        let test = try GatewayUnderTest(.http(base: origin.base + "/in"))
        let location = test.createPartial()
        let record = test.serve(.append(location, at: 5))
        #expect(record.status == 502)
        #expect(record[.uploadComplete] == "?0")
        #expect(record[.location] == nil)
        #expect(record.text.contains("\"upstream-redirects\""))
        #expect(try test.queue(of: location) == .deferred)
        #expect(origin.requests.count == 1)
        // A client that has sent all content can follow the redirect itself.
        let whole = test.serve(.creation())
        #expect(whole.status == 307)
        #expect(whole[.uploadComplete] == "?1")
        // A client that missed it has nothing left to send, and would follow it without content.
        let resource = try #require(whole.interims.first?.fields[.location])
        let again = test.serve(.append(resource, at: 5))
        #expect(again.status == 424)
        #expect(again[.uploadComplete] == "?1")
        #expect(again[.proxyStatus]?.contains("received-status=307") == true)
    }

    @Test("two redirects are followed and no third; the loop is reported")
    func loop() throws {
        let origin = try LoopbackOrigin(status: "307 x", fields: ["Location: /again"])
        let test = try GatewayUnderTest(origin.target)
        let location = test.createPartial()
        #expect(test.serve(.append(location, at: 5)).status == 502)
        #expect(origin.requests.count == 3)
        #expect(try test.summary(location).attempts == 3)
    }

    @Test(
        "for a POST, 301, 302 and 303 are the application's response",
        arguments: [301, 302, 303]
    )
    func responses(status: Int) throws {
        let origin = try LoopbackOrigin(status: "\(status) x", fields: ["Location: /done"])
        let test = try GatewayUnderTest(origin.target)
        let location = test.createPartial()
        let record = test.serve(.append(location, at: 5))
        #expect(record.status == status)
        #expect(record[.uploadComplete] == "?1")
        #expect(origin.requests.count == 1)
    }

    // MARK: Responses of a proxy before the application

    @Test("a POST that gets 502, 503 or 504 is held with its content", arguments: [502, 503, 504])
    func gatewayErrors(status: Int) throws {
        let origin = try QueueScene.origin([.responses(status)])
        let test = try QueueScene.gateway(origin.target) { settings, _ in
            settings.queueRunInterval = .milliseconds(20)
        }
        let location = test.createPartial()
        let record = test.serve(.append(location, at: 5))
        #expect(record.status == status)
        #expect(record[.uploadComplete] == "?1")
        #expect(try test.summary(location).holdCause == .indeterminate)
        // The client receives it again, and no request is sent.
        #expect(test.serve(.append(location, at: 5)).status == status)
        #expect(origin.requests.count == 1)
        try test.withUpload(location) { try $0.requeue(at: .now) }
        try test.gateway.deliveries.startQueue()
        try test.waitUntil(location, isIn: .delivered)
        #expect(origin.requests.map(\.content) == Array(repeating: Array("hello".utf8), count: 2))
    }

    @Test("without room in hold it is the final response, as for an ordinary upload")
    func holdIsFull() throws {
        let origin = try LoopbackOrigin(status: "503 x")
        let test = try QueueScene.gateway(origin.target) { _, route in
            route.queue.maximumHoldSize = 5
        }
        let first = test.createPartial()
        #expect(test.serve(.append(first, at: 5)).status == 503)
        #expect(try test.queue(of: first) == .hold)
        let second = test.createPartial()
        #expect(test.serve(.append(second, at: 5)).status == 503)
        #expect(try test.queue(of: second) == .delivered)
    }

    @Test("a status that means unprocessed is tried again with any method")
    func notProcessed() throws {
        let origin = try QueueScene.origin([.responses(502), .responses(503)])
        let test = try QueueScene.gateway(origin.target) { _, route in route.notProcessed = [502] }
        let location = test.createPartial()
        let record = test.serve(.append(location, at: 5))
        #expect(record.status == 503)
        #expect(record[.uploadComplete] == "?0")
        #expect(try test.queue(of: location) == .deferred)
        // 503 is not in the setting.
        #expect(test.serve(.append(location, at: 5))[.uploadComplete] == "?1")
        #expect(try test.queue(of: location) == .hold)
    }

    @Test("407 is not sent to the client", arguments: [true, false])
    func proxyAuthentication(isUpload: Bool) throws {
        let origin = try LoopbackOrigin(status: "407 x", fields: ["Proxy-Authenticate: Basic"])
        let test = try GatewayUnderTest(origin.target)
        guard isUpload else {
            for exchange in [
                ScriptedExchange(.get, "/a", [:], []), ScriptedExchange(.post, "/a", [:], ["x"]),
            ] { #expect(test.serve(exchange).status == 502) }
            return
        }
        let location = test.createPartial()
        let record = test.serve(.append(location, at: 5))
        #expect(record.status == 502)
        #expect(record[.uploadComplete] == "?0")
        #expect(try test.queue(of: location) == .deferred)
    }

    // MARK: Pauses

    @Test("a client has one more attempt at once, and then growing pauses")
    func pauses() throws {
        let origin = try LoopbackOrigin(status: "503 x")
        let test = try GatewayUnderTest(origin.target)
        var records: [ScriptedExchange.Record] = []
        var sent = 0
        let end = Deadline.after(.seconds(60))
        var start: WallTime
        // The pauses are whole seconds, so all of it must happen within one.
        repeat {
            start = .now
            let location = test.createPartial(method: .put)
            let before = origin.requests.count
            func serve() -> ScriptedExchange.Record { test.serve(.append(location, at: 5)) }
            records = [serve(), serve(), serve()]
            try test.age(location, by: 2)
            records.append(serve())
            try test.age(location, by: 1)
            records.append(serve())
            sent = origin.requests.count - before
        } while start.seconds != WallTime.now.seconds && !end.hasPassed
        let isPause = records.map { $0.text.contains("delivery-pauses") }
        #expect(isPause == [false, false, true, false, true])
        #expect(records.map { $0.text.contains("upstream-busy") } == isPause.map { !$0 })
        #expect(sent == 3)
        #expect(records[2].status == 503)
        #expect(records[2][.uploadComplete] == "?0")
        #expect(records[2][.retryAfter] == "1")
    }
}

extension AttemptResult {
    /// The party that decided.
    fileprivate var decider: String {
        switch self {
        case .accepted, .refused, .unauthorized, .elsewhere, .redirect, .busy, .notNow,
            .notProcessed, .unsent, .noResponse:
            "upstream"
        case .notAuthorized, .notPermitted: "authorizer"
        case .notPassed: "inspection"
        case .contradicted: "digest"
        case .unchecked: "authorizer, inspection"
        }
    }
}
