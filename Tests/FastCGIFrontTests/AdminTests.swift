// Requests on the admin socket.

import Foundation
import HTTPTypes
import SpoolgateExchange
import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import Testing

@testable import SpoolgateFastCGIFront

extension FrontTests {
    @Suite struct AdminTests {
        private let request = Record.head(parameters(length: "0")) + Record.bytes(.stdin)

        @Test("an admin request gets its whole response, however long")
        func question() throws {
            let long = String(repeating: "0123456789", count: 30_000)
            let server = try TestServer { exchange in
                TestServer.reply(exchange, 200, long)
            }
            defer { server.stop() }
            let response = try FastCGIFetch(path: server.path, timeout: .seconds(10)).get("/a")
            #expect(response.status == 200)
            #expect(String(decoding: response.content, as: UTF8.self) == long)
        }

        @Test("the target of the request and the status of the response arrive unchanged")
        func target() throws {
            let server = try TestServer { exchange in
                let head = try exchange.head.get()
                TestServer.reply(exchange, 404, "\(head.method) \(head.target)")
            }
            defer { server.stop() }
            let response = try FastCGIFetch(path: server.path, timeout: .seconds(10)).get("/b?c")
            #expect(response.status == 404)
            #expect(String(decoding: response.content, as: UTF8.self) == "GET /b?c")
        }

        @Test("an admin request without a listener or a complete response fails")
        func noResponse() throws {
            let path = "/tmp/fcgi-\(UUID().uuidString.prefix(13)).sock"
            let noListener = #expect(throws: SystemError.self) {
                try FastCGIFetch(path: path, timeout: .seconds(10)).get("/")
            }
            #expect(noListener?.errno == ENOENT)
            let server = try TestServer { $0.abort() }
            defer { server.stop() }
            let broken = #expect(throws: SystemError.self) {
                try FastCGIFetch(path: server.path, timeout: .seconds(10)).get("/")
            }
            #expect(broken?.errno == SystemError.lost)
        }

        @Test(
            "an idle server accepts connections, a full one too, and a stopped one does not"
        )
        func accepting() throws {
            let gate = Gate()
            let server = try TestServer({ $0.maximum = 4 }) { exchange in
                gate.pass()
                TestServer.reply(exchange, 200, "served")
            }
            #expect(server.server.isAccepting(within: .seconds(60)))
            let clients = try (0..<3).map { _ in try server.client() }
            for client in clients { client.send(request) }
            #expect(eventually { server.server.load.active == 3 })
            for _ in 0..<3 { #expect(server.server.isAccepting(within: .seconds(60))) }
            gate.open()
            for client in clients { #expect(client.response().content == "served") }
            server.stop()
            #expect(!server.server.isAccepting(within: .milliseconds(50)))
        }

        @Test("an admin request takes no connection from clients", .timeLimit(.minutes(5)))
        func undisturbed() throws {
            let server = try TestServer { TestServer.reply($0, 200, "served") }
            defer { server.stop() }
            let isEnded = Monitor(false)
            try Thread.start(name: "asker") {
                for _ in 0..<500 { _ = server.server.isAccepting(within: .seconds(60)) }
                isEnded.update { $0 = true }
            }
            for _ in 0..<200 { #expect(try server.exchange(request).content == "served") }
            let ended: Bool? = isEnded.wait(until: .after(.seconds(120))) { $0 ? true : nil }
            #expect(ended == true)
        }
    }
}
