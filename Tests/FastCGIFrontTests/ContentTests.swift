// Content over real sockets.

import Foundation
import SpoolgateExchange
import SpoolgateFastCGIFront
import SpoolgatePosix
import SpoolgateRequests
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import Testing

extension FrontTests {
    @Suite struct ContentTests {
        private let content = (0..<100_000).map { UInt8(truncatingIfNeeded: $0 &* 7 &+ $0 >> 8) }

        @Test(
            "content arrives whole however its records are cut",
            arguments: [(1, 0), (1, 255), (7, 3), (8192, 0), (8184, 8), (32768, 255), (65535, 1)]
        )
        func records(_ size: Int, _ padding: Int) throws {
            let server = try TestServer()
            defer { server.stop() }
            let content = Array(content.prefix(size == 1 ? 3000 : 100_000))
            let stdin = Record.stream(.stdin, content, size: size, padding: UInt8(padding))
            for length in ["\(content.count)", "", nil] as [String?] {
                let response = try server.exchange(Record.head(parameters(length: length)) + stdin)
                #expect(response.content == Received.text(content), "length \(length ?? "absent")")
                #expect(response.endStatus == 0)
            }
        }

        @Test("a request sent byte by byte is the same request")
        func bytewise() throws {
            let server = try TestServer()
            defer { server.stop() }
            let client = try server.client()
            let content = Array("hello".utf8)
            client.sendSingly(
                Record.begin()
                    + Record.stream(.params, Record.pairs(parameters()), size: 3, padding: 5)
                    + Record.stream(.stdin, content, size: 2, padding: 1)
            )
            #expect(client.response().content == Received.text(content))
        }

        @Test("content with a cut record header is waited for", arguments: 1...9)
        func cutHeader(_ count: Int) throws {
            let gate = Gate()
            let server = try TestServer { exchange in
                gate.open()
                TestServer.tell(exchange)
            }
            defer { server.stop() }
            let client = try server.client()
            let content = Record.stream(.stdin, [1, 2, 3])
            client.send(Record.head(parameters()) + content.prefix(count))
            gate.pass()
            client.send(Array(content.dropFirst(count)))
            #expect(client.response().content == Received.text([1, 2, 3]))
        }

        @Test("with a known length the record that ends the content is not waited for")
        func noEndRecord() throws {
            let server = try TestServer()
            defer { server.stop() }
            let stdin = Record.stream(.stdin, content, isEnded: false)
            let response = try server.exchange(Record.head(parameters(length: "100000")) + stdin)
            #expect(response.content == Received.text(content))
        }

        @Test("received bytes are passed on while more are awaited")
        func fragments() throws {
            let gate = Gate()
            let server = try TestServer { exchange in
                let buffer = try ContentBuffer(capacity: 4096)
                let isThere = try? exchange.receive(into: buffer)
                if isThere == true, buffer.count == 3 { gate.open() }
                TestServer.reply(exchange, 200, Received(all: exchange).end)
            }
            defer { server.stop() }
            let client = try server.client()
            client.send(Record.head(parameters()) + Record.bytes(.stdin, [1, 2, 3], padding: 4))
            gate.pass()
            client.send(Record.stream(.stdin, [4]))
            #expect(client.response().content == "complete")
        }

        @Test("available content is passed on in large pieces")
        func coalescing() throws {
            let received = Monitor((0, 0))
            let gate = Gate()
            let server = try TestServer { exchange in
                gate.pass()
                let buffer = try ContentBuffer(capacity: 256 * 1024)
                var calls = 0
                var count = 0
                while (try? exchange.receive(into: buffer)) == true {
                    calls += 1
                    count += buffer.count
                    buffer.removeAll()
                }
                received.update { $0 = (calls, count) }
                TestServer.reply(exchange, 200, "")
            }
            defer { server.stop() }
            let client = try server.client()
            client.send(
                Record.head(parameters(length: "100000"))
                    + Record.stream(.stdin, content, size: 8192)
            )
            gate.open()
            _ = client.response()
            let (calls, count) = received.update { $0 }
            #expect(count == 100_000)
            #expect(calls <= 4)
        }

        @Test("the buffer of a burst is released while the rest is awaited")
        func burst() throws {
            let taken = Monitor((maximum: 0, now: 0))
            let gate = Gate()
            let server = try TestServer { exchange in
                gate.pass()
                let buffer = try ContentBuffer(capacity: 1 << 20)
                while (try? exchange.receive(into: buffer)) == true {
                    taken.update { $0 = (max($0.maximum, buffer.touched), buffer.touched) }
                    buffer.removeAll()
                }
                TestServer.reply(exchange, 200, "")
            }
            defer { server.stop() }
            let client = try server.client()
            client.send(
                Record.head(parameters())
                    + Record.stream(.stdin, content, size: 8192, isEnded: false)
            )
            gate.open()
            // Bytes arrive ever more slowly.
            var pause: UInt32 = 10_000
            try eventually("the buffer of the burst is released") {
                client.send(Record.bytes(.stdin, [1]))
                let (maximum, now) = taken.update { $0 }
                usleep(pause)
                pause = min(2 * pause, 1_000_000)
                return maximum > 32 << 10 && now < 4096
            }
            client.send(Record.bytes(.stdin))
            #expect(client.response().status == 200)
        }

        /// Bytes after the parameters, and the expected end of the content.
        struct Ending: CustomTestStringConvertible {
            var testDescription: String
            var length: String?
            var bytes: [UInt8]
            var closes = false
            var count: Int
            var end = "truncated"

            init(
                _ description: String,
                _ length: String?,
                _ bytes: [UInt8],
                closes: Bool = false,
                _ count: Int,
                _ end: String = "truncated"
            ) {
                (testDescription, self.length, self.bytes) = (description, length, bytes)
                (self.closes, self.count, self.end) = (closes, count, end)
            }
        }

        private static func stdin(_ bytes: UInt8...) -> [UInt8] { Record.bytes(.stdin, bytes) }

        /// Includes the record that ends the content.
        private static func whole(_ bytes: UInt8...) -> [UInt8] { Record.stream(.stdin, bytes) }

        static let endings = [
            Ending(
                "closed in a record",
                "10",
                Array(stdin(1, 2, 3, 4).prefix(10)),
                closes: true,
                2
            ),
            Ending("closed between records, length unknown", "", stdin(1, 2, 3), closes: true, 3),
            Ending("closed before any record", nil, [], closes: true, 0),
            Ending("abort record", "", stdin(1, 2) + Record.bytes(.abortRequest), 2),
            Ending("ended before its length", "5", whole(1, 2), 2),
            Ending("longer than its length", "2", whole(1, 2, 3), 2),
            Ending("a record of another version", "", stdin(1) + [9, 5, 0, 1, 0, 1, 0, 0, 7], 1),
            Ending(
                "a record of another request is passed over",
                "",
                Record.bytes(.stdin, [9, 9], id: 2) + whole(1),
                1,
                "complete"
            ),
            Ending(
                "a management record in between",
                "",
                Record.bytes(.getValues, [], id: 0) + whole(1),
                1,
                "complete"
            ),
            Ending("length zero, without the record that ends it", "0", [], 0, "complete"),
            Ending("length -1", "-1", whole(1, 2), 2, "complete"),
        ]

        @Test("content ends properly or is truncated", arguments: endings)
        func ending(_ ending: Ending) throws {
            let result = Monitor<(Int, String)?>(nil)
            let server = try TestServer { exchange in
                let received = Received(all: exchange)
                result.update { $0 = (received.count, received.end) }
                TestServer.reply(exchange, 200, "")
            }
            defer { server.stop() }
            let client = try server.client()
            client.send(Record.head(parameters(length: ending.length)) + ending.bytes)
            if ending.closes { client.closeSending() }
            let found = result.wait(until: .after(.seconds(300))) { $0 }
            #expect(found?.0 == ending.count)
            #expect(found?.1 == ending.end)
        }

        @Test("stalled content is reported, and the content before it is kept")
        func stalled() throws {
            let server = try TestServer(changing: { $0.stallTimeout = .milliseconds(100) })
            defer { server.stop() }
            let response = try server.exchange(
                Record.head(parameters(length: "9")) + Record.bytes(.stdin, [1, 2])
            )
            #expect(response.content == Received.text([1, 2], "stalled"))
            #expect(response.endStatus == 0)
        }

        @Test("another thread makes a waiting request release, and its response still arrives")
        func released() throws {
            let release = Monitor<(@Sendable () -> Void)?>(nil)
            let server = try TestServer { exchange in
                let buffer = try ContentBuffer(capacity: 4096)
                _ = try? exchange.receive(into: buffer)
                release.update { $0 = exchange.interrupt }
                let end = Received(all: exchange).end
                TestServer.reply(exchange, 409, "\(buffer.count) \(end)")
            }
            defer { server.stop() }
            let client = try server.client()
            client.send(Record.head(parameters(length: "9")) + Record.bytes(.stdin, [1, 2]))
            release.wait(until: .after(.seconds(300))) { $0 }?()
            let response = client.response()
            #expect(response.status == 409)
            #expect(response.content == "2 released")
            // The request has ended, so this has no effect.
            release.update { $0 }?()
        }

        @Test("a request whose peer keeps sending releases too, and no write of the peer fails")
        func releasedWhileSending() throws {
            let release = Monitor<(@Sendable () -> Void)?>(nil)
            let server = try TestServer({ $0.lingerIdle = .seconds(5) }) { exchange in
                release.update { $0 = exchange.interrupt }
                TestServer.reply(exchange, 409, Received(all: exchange).end)
            }
            defer { server.stop() }
            let client = try server.client()
            client.send(Record.head(parameters()))
            let letGo = release.wait(until: .after(.seconds(300))) { $0 }
            let record = Record.bytes(.stdin, [UInt8](repeating: 1, count: 100))
            for round in 0..<100 {
                if round == 50 { letGo?() }
                #expect(client.send(record))
                usleep(1000)
            }
            client.closeSending()
            let response = client.response()
            #expect(response.content == "released")
            #expect(response.endStatus == 0)
        }
    }
}
