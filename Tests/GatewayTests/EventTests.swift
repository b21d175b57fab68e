// The events in an upload's life, their destinations and correlation.

import Foundation
import HTTPTypes
@testable import SpoolgateDelivery
import SpoolgatePosix
import SpoolgateSpool
import SpoolgateTestSupport
import SpoolgateTextFormats
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Testing

@testable import SpoolgateExchange
@testable import SpoolgateJournal
@testable import SpoolgateRequests
@testable import SpoolgateSettings

@Suite struct EventTests {
    /// Writes events to a file, which `events` reads.
    private func telling(
        _ target: UpstreamTarget? = nil,
        _ change: @escaping (inout Settings, inout RouteSettings) -> Void = { _, _ in }
    ) throws -> GatewayUnderTest {
        try GatewayUnderTest(target, tellsEvents: true) { settings, route in
            settings.correlationField = .made("x-request-id")
            change(&settings, &route)
        }
    }

    /// Without time and identity.
    private func events(_ test: GatewayUnderTest) throws -> [[String: String]] {
        let text = try String(contentsOfFile: test.events, encoding: .utf8)
        return try text.split(separator: "\n").map { line in
            let object = try #require(
                try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any]
            )
            let time = try #require(object["time"] as? String)
            #expect(time.wholeMatch(of: /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ/) != nil)
            #expect((object["upload"] as? String)?.count == 26)
            return object.filter { $0.key != "time" && $0.key != "upload" }
                .mapValues { "\($0)" }
        }
    }

    @Test("the life of an upload, from its creation through a cut to its delivery")
    func life() throws {
        let test = try telling()
        let fields: HTTPFields = [.made("x-request-id"): "id-1", .authorization: "Bearer secret"]
        let context = ExchangeContext(owner: "alice", interimStatuses: [104])
        let cut = test.serve(
            .creation(
                ["hel", .fails(.truncated)],
                length: .known(5),
                target: "/files/a",
                fields: fields,
                context: context
            )
        )
        let location = try #require(cut.location)
        let other: HTTPFields = [.made("x-request-id"): "id-2"]
        _ = test.serve(.append(location, at: 3, ["lo"], fields: other, context: context))
        #expect(!(try String(contentsOfFile: test.events, encoding: .utf8)).contains("secret"))
        let common = [
            "route": "default", "owner": "alice", "method": "POST", "target": "/files/a",
            "correlation": "id-1", "length": "5",
        ]
        func event(_ kind: String, _ members: [String: String]) -> [String: String] {
            common.merging(members) { $1 }.merging(["event": kind]) { $1 }
        }
        #expect(
            try events(test) == [
                event("created", ["offset": "0", "attempts": "0"]),
                event(
                    "interrupted",
                    ["offset": "3", "attempts": "0", "reason": "the connection was closed"]
                ),
                event("completed", ["offset": "5", "attempts": "0"]),
                event("delivered", ["offset": "5", "attempts": "1", "status": "201"]),
            ]
        )
    }

    @Test("every event of an upload")
    func fates() throws {
        let gone = try LoopbackOrigin()
        gone.stop()
        let test = try telling(gone.target) { settings, route in
            settings.correlationField = nil
            route.limits.maxAge = 60
        }
        let cancelled = test.createPartial()
        _ = test.serve(.cancellation(cancelled))
        let expired = test.createPartial()
        try test.age(expired, by: 100)
        #expect(test.serve(.retrieval(expired)).status == 404)
        _ = test.serve(.creation(["x"]))
        let told = try events(test)
        #expect(
            told.map { $0["event"] } == [
                "created", "cancelled", "created", "expired", "created", "completed", "deferred",
            ]
        )
        #expect(told.allSatisfy { $0["correlation"] == nil && $0["owner"] == nil })
        #expect(told.last?["reason"]?.contains("connection failed") == true)
        #expect(told.last?["attempts"] == "1")
    }

    @Test("an unknown outcome holds an upload; the queue reports the time of the next attempt")
    func heldAndQueued() throws {
        let silent = try LoopbackOrigin { connection in _ = try connection.receiveRequest() }
        let test = try telling(silent.target)
        _ = test.serve(.creation(["x"]))
        #expect(try events(test).last?["event"] == "held")
        let queued = try telling(silent.target) { _, route in
            route.reply = .accepted
            route.honoursIdempotencyKey = true
        }
        try queued.gateway.deliveries.startQueue()
        _ = queued.serve(.creation(["x"]))
        try eventually("it is deferred") { queued.log.messages.contains("delivery deferred") }
        #expect(queued.gateway.deliveries.stopQueue(until: .after(.seconds(300))) == 0)
        let told = try events(queued)
        #expect(told.map { $0["event"] } == ["created", "completed", "deferred"])
        #expect(told.last?["next-attempt"] != nil)
    }

    @Test("an upload with a contradicted digest has failed")
    func contradicted() throws {
        let test = try telling()
        let empty = "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:"
        _ = test.serve(.creation(["x"], fields: [.reprDigest: empty]))
        #expect(try events(test).map { $0["event"] } == ["created", "completed", "failed"])
    }

    @Test("an ordinary upload is one event")
    func plain() throws {
        let test = try telling()
        _ = test.serve(ScriptedExchange(.put, "/a", [:], ["abc"]))
        let told = try events(test)
        #expect(told.map { $0["event"] } == ["delivered"])
        #expect(told.first?["length"] == "3")
        #expect(told.first?["status"] == "201")
    }

    @Test("the file is created again after it was moved and the settings were reloaded")
    func rotated() throws {
        let test = try telling()
        let path = test.events
        _ = test.createPartial()
        try FileManager.default.moveItem(atPath: path, toPath: path + ".1")
        _ = test.createPartial()
        test.gateway.events.reopen()
        _ = test.createPartial()
        let old = try String(contentsOfFile: path + ".1", encoding: .utf8)
        #expect(old.split(separator: "\n").count == 2)
        let mode = try FileManager.default.attributesOfItem(atPath: path)[.posixPermissions]
        #expect((mode as? Int).map { $0 & ~0o640 } == 0)
        #expect(try events(test).count == 1)
    }

    @Test("a failed write of events affects no request, and is logged once")
    func lost() throws {
        let test = try telling { settings, _ in
            settings.events.destination = .file("/proc/nowhere/events")
        }
        #expect(test.serve(.creation(["x"])).status == 201)
        #expect(test.log.messages.count { $0 == "events lost" } == 1)
        let full = try telling { settings, _ in settings.events.destination = .file("/dev/full") }
        #expect(full.serve(.creation(["x"])).status == 201)
        #expect(full.log.messages.contains("events lost"))
    }

    @Test("many threads write whole lines")
    func concurrent() throws {
        let test = try telling()
        let ended = Monitor(0)
        for _ in 0..<8 {
            try SpoolgatePosix.Thread.start(name: "writer", stackSize: 1 << 20) {
                for _ in 0..<50 {
                    test.gateway.events.note(Event(.created, of: nil, id: .random()))
                }
                ended.update { $0 += 1 }
            }
        }
        let all: Bool? = ended.wait(until: .after(.seconds(300))) { $0 == 8 ? true : nil }
        #expect(all == true)
        #expect(try events(test).count == 400)
    }

    // MARK: Correlation

    @Test(
        "a usable value is kept, any other is replaced",
        arguments: [
            ("abc-1", true), (String(repeating: "x", count: 128), true),
            (String(repeating: "x", count: 129), false), ("a b", false), ("a\u{e4}", false),
            ("", false), (nil, false),
        ]
    )
    func correlation(value: String?, isTaken: Bool) throws {
        let upstream = try LoopbackOrigin()
        let test = try telling(upstream.target)
        var fields = HTTPFields()
        if let value { fields.append(HTTPField(name: .made("x-request-id"), value: value)) }
        _ = test.serve(.creation(["x"], fields: fields))
        _ = test.serve(ScriptedExchange(.get, "/a", fields, []))
        #expect(upstream.requests.count == 2)
        for request in upstream.requests {
            let sent = request.values("x-request-id")
            #expect(sent.count == 1)
            #expect((sent.first == value) == isTaken)
            #expect(sent.first?.isEmpty == false)
        }
        let told = try events(test)
        #expect(
            told.allSatisfy { $0["correlation"] == upstream.requests[0].values("x-request-id")[0] }
        )
    }

    @Test("a field sent twice is replaced by one")
    func repeatedCorrelation() throws {
        let upstream = try LoopbackOrigin()
        let test = try telling(upstream.target)
        var fields = HTTPFields()
        fields.append(HTTPField(name: .made("x-request-id"), value: "a"))
        fields.append(HTTPField(name: .made("x-request-id"), value: "b"))
        _ = test.serve(.creation(["x"], fields: fields))
        let sent = try #require(upstream.requests.first).values("x-request-id")
        #expect(sent.count == 1 && sent != ["a"] && sent != ["b"])
    }

    @Test("an upload's log lines have its own value on every thread")
    func correlatedLines() throws {
        let test = try telling()
        let name = HTTPField.Name.made("x-request-id")
        let created = test.serve(.creation(["x"], complete: false, fields: [name: "first"]))
        let location = try #require(created.location)
        _ = test.serve(.append(location, at: 1, ["y"], fields: [name: "2"]))
        #expect(test.log.values(of: "correlation", in: "upload created") == ["first"])
        #expect(test.log.values(of: "correlation", in: "upload delivered") == ["first"])
        #expect(test.log.values(of: "correlation", in: "content received") == ["first", "first"])
    }
}
