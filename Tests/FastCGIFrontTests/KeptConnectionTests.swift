// Connections that the web server keeps.

import Foundation
import HTTPTypes
import SpoolgateExchange
import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import Testing

@testable import SpoolgateFastCGIFront

/// A complete request that keeps its connection.
private func request(_ content: [UInt8]? = nil, _ method: String = "PUT") -> [UInt8] {
    let length = content.map { "\($0.count)" } ?? ""
    return Record.begin(keepsConnection: true)
        + Record.stream(.params, Record.pairs(parameters(method, length: length)))
        + Record.stream(.stdin, content ?? [])
}

extension Answer {
    /// Whether the last record makes the web server close the connection.
    fileprivate var isLetGo: Bool { types.last == 7 }
    fileprivate func ends(_ count: Int) -> Bool {
        types.count { $0 == RecordType.endRequest.rawValue } == count
    }
}

extension FrontTests {
    @Suite struct KeptConnectionTests {
        private func expect(_ count: Int, _ client: FastCGIClient) {
            #expect(client.waits { $0.ends(count) }, "no response \(count)")
        }

        @Test("requests follow one another on one connection")
        func several() throws {
            let server = try TestServer()
            defer { server.stop() }
            let client = try server.client()
            let contents: [[UInt8]?] = [[1, 2], [], [3], nil, [4, 5, 6]]
            for (count, content) in contents.enumerated() {
                client.send(request(content))
                expect(count + 1, client)
                #expect(client.waits { $0.text.hasSuffix(Received.text(content ?? [])) })
            }
            client.closeSending()
            let response = client.response()
            #expect(response.isClosed && !response.isLetGo)
            #expect(server.events.isEmpty)
        }

        @Test("an unfinished or unrequested connection is not kept, and the web server is informed")
        func notKept() throws {
            let server = try TestServer { exchange in
                if (try? exchange.head.get().method) == .delete { return exchange.abort() }
                TestServer.reply(exchange, 200, "early")
            }
            defer { server.stop() }
            // The rest of the content is unread.
            let early = try server.exchange(
                Record.begin(keepsConnection: true)
                    + Record.stream(.params, Record.pairs(parameters(length: "9")))
            )
            #expect(early.endStatus == 0 && early.isLetGo && early.isClosed)
            let plain = try server.exchange(
                Record.head(parameters(length: "0")) + Record.bytes(.stdin)
            )
            #expect(plain.endStatus == 0 && !plain.isLetGo && plain.isClosed)
            let broken = try server.exchange(request([], "DELETE"))
            #expect(broken.endStatus == nil && broken.isClosed)
            // The second request arrived before the first response, so the connection is not kept.
            let both = try server.exchange(request([]) + request([]))
            #expect(both.ends(1) && both.isLetGo && both.isClosed)
        }

        @Test("an idle connection needs no thread, and the oldest above the limit are closed")
        func bound() throws {
            let server = try TestServer(changing: { $0.maximumKept = 20 })
            defer { server.stop() }
            let clients = try (1...30).map { count in
                let client = try server.client()
                client.send(request([1]))
                expect(1, client)
                // Waits, so that connections are kept in this order.
                #expect(eventually { server.server.load.kept == count })
                return client
            }
            #expect(eventually { server.server.load.active == 0 })
            #expect(eventually { server.server.load.threads <= 5 })
            for client in clients.prefix(10) { #expect(client.waits { $0.isLetGo }) }
            // A request sent before that record arrived is served, and its connection is kept again.
            clients[0].send(request([2]))
            expect(2, clients[0])
            #expect(clients[10].waits { $0.isLetGo })
            for client in clients.suffix(19) {
                client.send(request([2]))
                expect(2, client)
            }
            clients[0].send(request([3]))
            expect(3, clients[0])
        }

        @Test("a connection that the web server does not close is closed after a time")
        func patience() throws {
            let server = try TestServer(changing: {
                $0.maximumKept = 1
                $0.releaseTimeout = .milliseconds(50)
                $0.parametersTimeout = .milliseconds(400)
            })
            defer { server.stop() }
            let clients = try (1...2).map { count in
                let client = try server.client()
                client.send(request([1]))
                expect(1, client)
                // A connection is kept only after its response is sent.
                #expect(count > 1 || eventually { server.server.load.kept == 1 })
                return client
            }
            let response = clients[0].response()
            #expect(response.isLetGo && response.isClosed)
            clients[1].send(request([1]))
            expect(2, clients[1])
        }

        @Test("the next request on a kept connection must arrive whole in time")
        func slowParameters() throws {
            let server = try TestServer(changing: { $0.parametersTimeout = .milliseconds(300) })
            defer { server.stop() }
            let client = try server.client()
            client.send(request([1]))
            expect(1, client)
            client.send(Array(request([1]).prefix(20)))
            let response = client.response()
            #expect(response.isClosed && response.ends(1))
            #expect(eventually { server.events == [.noRequest] })
        }

        @Test("a drain closes kept connections, serves requests in flight, and has a time limit")
        func drain() throws {
            let server = try TestServer(changing: { $0.releaseTimeout = .seconds(5) })
            let clients = try (0..<3).map { _ in
                let client = try server.client()
                client.send(request([1]))
                expect(1, client)
                return client
            }
            #expect(eventually { server.server.load.active == 0 })
            let ended = Monitor<Bool?>(nil)
            try SpoolgatePosix.Thread.start(name: "drain") {
                let isDrained = server.stop()
                ended.update { $0 = isDrained }
            }
            for client in clients { #expect(client.waits { $0.isLetGo }) }
            // One closes as nginx does, one sends a request, one does nothing.
            clients[0].closeSending()
            #expect(clients[0].response().isClosed)
            clients[1].send(request([2]))
            expect(2, clients[1])
            for client in clients.dropFirst() {
                let response = client.response()
                #expect(response.isLetGo && response.isClosed)
            }
            #expect(ended.wait(until: .after(.seconds(300))) { $0 } == true)
            #expect(server.server.load.threads == 0)
        }

        @Test("a late release of one request does not reach the next one on its connection")
        func lateRelease() throws {
            let releases = Monitor<[@Sendable () -> Void]>([])
            let server = try TestServer { exchange in
                releases.update { $0.append(exchange.interrupt) }
                TestServer.tell(exchange)
            }
            defer { server.stop() }
            let client = try server.client()
            client.send(request([1]))
            expect(1, client)
            #expect(eventually { server.server.load.active == 0 })
            let next = request([2, 3])
            client.send(Array(next.dropLast(17)))
            #expect(eventually { server.server.load.active == 1 })
            for release in releases.update({ Array($0.prefix(1)) }) { release() }
            client.send(Array(next.suffix(17)))
            expect(2, client)
            #expect(client.waits { $0.text.hasSuffix(Received.text([2, 3])) })
        }
    }
}
