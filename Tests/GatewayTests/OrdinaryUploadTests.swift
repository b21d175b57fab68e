// Ordinary uploads beside others, and those that pass as they come.

import Exchange
import Gateway
import HTTPTypes
import Posix
import Settings
import Synchronization
import TestSupport
import Testing
import UploadProtocol
import Upstream

@Suite struct OrdinaryUploadTests {
    @Test("ordinary uploads wait for no place among the deliveries, however slow their upstream is")
    func noPlaces() throws {
        let gate = Gate()
        let origin = try LoopbackOrigin { connection in
            while let request = try connection.receiveRequest() {
                if request.line.contains("/slow") { gate.pass() }
                try connection.answer("201 Created")
            }
        }
        let test = try GatewayUnderTest(.http(base: origin.base)) { settings, _ in
            settings.inUseTimeout = .milliseconds(50)
            settings.maximumDeliveries = 2
        }
        let slow = try (0..<40).map { _ in
            try test.start(
                ScriptedExchange(.post, "/slow", [.contentType: "application/json"], [.text("{}")])
            )
        }
        try eventually("the upstream has all") { origin.requests.count == 40 }
        let fast = test.serve(ScriptedExchange(.post, "/fast", [:], [.text("{}")]))
        #expect(fast.status == 201)
        // Nor do they take the places of uploads that wait for one.
        #expect(test.serve(.creation([.text("whole")], complete: true)).status == 201)
        gate.open()
        for running in slow { #expect(try running.finish().status == 201) }
    }

    // MARK: ordinary: pass

    private func passing(_ base: String, maxSize: Int64 = 1 << 20) throws -> GatewayUnderTest {
        try GatewayUnderTest(.http(base: base)) { _, route in
            route.ordinary = .pass
            route.limits.maxSize = maxSize
            route.limits.minSize = 100
        }
    }

    @Test("with `pass` the upstream has the first bytes before the client has sent the last")
    func passes() throws {
        let seen = Mutex("")
        let origin = try LoopbackOrigin { connection in
            guard try connection.receiveHead() != nil else { return }
            var text = ""
            while !text.contains("last") {
                let part = connection.receive()
                guard !part.isEmpty else { return }
                text += String(decoding: part, as: UTF8.self)
                seen.withLock { [text] in $0 = text }
            }
            try connection.answer("200 OK", content: "heard")
        }
        let test = try passing(origin.base)
        let wait = ScriptedExchange.Step.happens {
            try? eventually("the upstream has it") { seen.withLock { $0.contains("first") } }
        }
        let record = test.serve(
            ScriptedExchange(
                .post,
                "/live",
                [:],
                [.text("first"), wait, .text("last")],
                length: .unknown
            )
        )
        #expect(record.status == 200)
        #expect(record.text == "heard")
        #expect(test.disk.count(.create) == 0)
        #expect(seen.withLock { $0.contains("last") })
    }

    @Test("what is marked as an upload is received whole all the same")
    func markedIsSpooled() throws {
        let origin = try LoopbackOrigin(status: "201 Created")
        let test = try passing(origin.base)
        let record = test.serve(
            .creation([.text("small")], complete: true, fields: [.reprDigest: "sha-256=:AAAA:"])
        )
        #expect(record.status == 400)
        #expect(test.serve(.creation([.text("small")], complete: true)).status == 201)
        let request = try #require(origin.requests.first)
        #expect(request.values("Content-Length") == ["5"])
    }

    @Test("`pass` keeps the limit of the size, told or not", arguments: [true, false])
    func limited(isLengthKnown: Bool) throws {
        let origin = try LoopbackOrigin(status: "201 Created")
        let test = try passing(origin.base, maxSize: 10)
        let steps = [ScriptedExchange.Step.text("123456"), .text("7890"), .text("1")]
        let record = test.serve(
            ScriptedExchange(.post, "/live", [:], steps, length: isLengthKnown ? nil : .unknown)
        )
        #expect(record.status == 413)
        #expect(origin.requests.isEmpty)
        let whole = test.serve(
            ScriptedExchange(
                .post,
                "/live",
                [:],
                Array(steps.dropLast()),
                length: isLengthKnown ? nil : .unknown
            )
        )
        #expect(whole.status == 201)
        #expect(origin.requests.map { $0.contentLength } == [10])
    }

    @Test("`pass` asks who may come in, as `spool` does")
    func guarded() throws {
        let origin = try LoopbackOrigin(status: "201 Created")
        let asked = try LoopbackOrigin(status: "403 Forbidden", content: "not you")
        let test = try GatewayUnderTest(.http(base: origin.base)) { _, route in
            route.ordinary = .pass
            route.anonymous = .refuse
            route.authorization.url = try? ServiceURL(asked.base + "/ask")
        }
        let exchange = { ScriptedExchange(.put, "/f", [:], [.text("x")], context: $0) }
        let anonymous = exchange(ExchangeContext())
        #expect(test.serve(anonymous).status == 403)
        #expect(asked.requests.isEmpty)
        let named = test.serve(exchange(ExchangeContext(owner: "alice")))
        #expect(named.text == "not you")
        #expect(asked.requests.count == 1)
        #expect(origin.requests.isEmpty)
    }
}
