// Ordinary uploads: streaming to the upstream, and slow requests that do not block others.

import Foundation
import SpoolgateTestSupport
import Testing

@Suite("Ordinary uploads", .enabled(if: Command.find("nginx") != nil, "nginx is not installed"))
struct OrdinaryTests {
    @Test("with `ordinary: pass` the upstream sees the first bytes before the client has finished")
    func liveStream() throws {
        let hasFirst = Gate()
        let origin = try LoopbackOrigin { connection in
            guard try connection.receiveHead() != nil else { return }
            var text = ""
            while !text.contains("last") {
                let part = connection.receive()
                guard !part.isEmpty else { return }
                text += String(decoding: part, as: UTF8.self)
                if text.contains("first") { hasFirst.open() }
            }
            try connection.response("200 OK", content: "heard")
        }
        let sandbox = try Sandbox(upstream: origin.base, routeSettings: ["ordinary: pass"])
        let client = try sandbox.open("POST", "/files/live", ["Transfer-Encoding: chunked"])
        client.sendChunk(Data("first".utf8))
        #expect(hasFirst.pass())
        #expect(!client.isReadable)
        client.sendChunk(Data("last".utf8))
        client.sendChunk(Data())
        let response = try client.read()
        #expect(response.status == 200)
        #expect(response.text == "heard")
    }

    @Test("forty slow JSON POSTs do not delay an unrelated POST")
    func slowPosts() throws {
        let gate = Gate()
        let origin = try LoopbackOrigin { connection in
            while let request = try connection.receiveRequest() {
                if request.line.contains("slow") { gate.pass() }
                try connection.response("200 OK", content: "{}")
            }
        }
        let sandbox = try Sandbox(upstream: origin.base)
        let slow = try (0..<40).map { _ in try WireClient(port: sandbox.port) }
        for client in slow {
            client.sendHead("POST", "/files/slow", ["Content-Length: 2"])
            client.send("{}")
        }
        try eventually("the upstream has all") { origin.requests.count == 40 }
        // The slow requests finish only after this one.
        let response = try sandbox.ask("POST", "/files/fast", content: Data("{}".utf8))
        #expect(response.status == 200)
        gate.open()
        for client in slow { #expect(try client.read().status == 200) }
    }
}
