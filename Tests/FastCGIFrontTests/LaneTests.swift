// Content that the web server writes itself: its messages to the gateway.

import Foundation
import SpoolgateExchange
import SpoolgateFastCGIFront
import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import Testing

extension FrontTests {
    @Suite struct LaneTests {
        enum Cut: CaseIterable {
            case whole, singly
        }

        private static let large = 1 << 20

        private static func message(
            _ kind: UInt8,
            _ count: Int = 0,
            errno: UInt8 = 0,
            version: UInt8 = 1,
            size: Int = 24
        ) -> [UInt8] {
            var bytes: [UInt8] = [kind, version, 0, 0, 0, 0, 0, errno]
            for number in [count, 0] {
                withUnsafeBytes(of: UInt64(bitPattern: Int64(number)).bigEndian) {
                    bytes.append(contentsOf: $0)
                }
            }
            return Record.bytes(.data, Array(bytes.prefix(size)))
        }

        private static let offer = message(1)
        private static let contentEnd = Record.bytes(.stdin)

        private static func written(_ count: Int) -> [UInt8] { message(2, count) }
        private static func ended(_ count: Int, _ errno: UInt8 = 0) -> [UInt8] {
            message(3, count, errno: errno)
        }

        /// Accepts the offer and responds with the reports and the remaining content.
        private static func server() throws -> TestServer {
            try TestServer { exchange in
                var told: [String] = []
                do throws(ContentError) {
                    guard let lane = exchange.lane, try lane.isOffered() else {
                        return TestServer.reply(exchange, 200, "no offer \(rest(exchange))")
                    }
                    let file: MemoryFile
                    do throws(SystemError) { file = try MemoryFile(named: "content") } catch {
                        return TestServer.reply(exchange, 500, "\(error)")
                    }
                    try lane.grant(
                        Descriptor(owning: file.release()),
                        at: 0,
                        LaneLimit(count: 1 << 40, restFollows: true)
                    )
                    while true {
                        guard let report = try lane.receiveReport() else { continue }
                        told.append("\(report.count)")
                        guard case .ended(_, let errno) = report else { continue }
                        told.append("errno \(errno)")
                        break
                    }
                } catch {
                    exchange.lane?.stop()
                    return TestServer.reply(exchange, 200, "\(told) \(error.rawValue)")
                }
                TestServer.reply(exchange, 200, "\(told) \(rest(exchange))")
            }
        }

        private static func rest(_ exchange: any Exchange) -> String {
            let rest = Received(all: exchange)
            return "\(rest.count) \(rest.end)"
        }

        /// Sends the offer, waits for the grant, and sends `records`.
        private static func exchange(
            length: Int?,
            _ cut: Cut,
            _ records: [UInt8],
            closes: Bool = false
        ) throws -> String {
            let server = try server()
            defer { server.stop() }
            let client = try server.client()
            client.send(Record.head(parameters(length: length.map { "\($0)" })) + offer)
            guard client.waits(until: { $0.types.contains(8) }) else { return "no grant" }
            switch cut {
            case .whole: client.send(records)
            case .singly: client.sendSingly(records)
            }
            if closes { client.closeSending() }
            let response = client.response()
            #expect(response.endStatus == 0)
            return response.content
        }

        @Test(
            "content that nginx wrote counts as received, and its end is complete",
            arguments: Cut.allCases,
            [large, nil]
        )
        func counts(cut: Cut, length: Int?) throws {
            let records =
                Self.written(10) + Self.written(1000) + Self.ended(Self.large) + Self.contentEnd
            let told = try Self.exchange(length: length, cut, records)
            #expect(told == #"["10", "1000", "1048576", "errno 0"] 0 complete"#)
        }

        @Test("the rest arrives as usual", arguments: Cut.allCases, [large, nil])
        func rest(cut: Cut, length: Int?) throws {
            let records =
                Self.written(10) + Self.ended(Self.large - 3)
                + Record.stream(.stdin, [1, 2, 3], isEnded: true)
            let told = try Self.exchange(length: length, cut, records)
            #expect(told == #"["10", "1048573", "errno 0"] 3 complete"#)
        }

        @Test("the reason why nginx wrote no more is reported", arguments: Cut.allCases)
        func failed(cut: Cut) throws {
            let told = try Self.exchange(length: Self.large, cut, Self.ended(5, 28), closes: true)
            #expect(told == #"["5", "errno 28"] 0 truncated"#)
        }

        @Test("a web server that leaves keeps its reports valid", arguments: Cut.allCases)
        func left(cut: Cut) throws {
            let told = try Self.exchange(length: Self.large, cut, Self.written(5), closes: true)
            #expect(told == #"["5"] truncated"#)
        }

        @Test(
            "an unexpected message ends the content",
            arguments: [
                written(5) + written(4), written(large + 1), ended(large + 1), offer,
                Record.bytes(.stdin, [1]), contentEnd, message(7), message(2, 5, version: 2),
                message(2, 5, errno: 1), message(2, 5, size: 23), message(2, -1),
            ]
        )
        func malformed(_ records: [UInt8]) throws {
            let told = try Self.exchange(length: Self.large, .whole, records, closes: true)
            let isLater = records.starts(with: Self.written(5))
            #expect(told == #"\#(isLater ? #"["5"]"# : "[]") truncated"#)
        }

        @Test("the file is requested back if content ends too early")
        func stopped() throws {
            let server = try Self.server()
            defer { server.stop() }
            let client = try server.client()
            client.send(Record.head(parameters(length: "\(Self.large)")) + Self.offer)
            #expect(client.waits { $0.types == [8] })
            client.send(Self.written(5) + Self.contentEnd)
            let response = client.response()
            #expect(response.content == #"["5"] truncated"#)
            #expect(response.types.prefix(2) == [8, 8])
        }

        @Test("a message before the grant, or a second offer, ends the content")
        func early() throws {
            for records in [Self.written(5), Self.offer] {
                let server = try Self.server()
                defer { server.stop() }
                let response = try server.exchange(
                    Record.head(parameters(length: "\(Self.large)")) + Self.offer + records
                )
                #expect(response.content.hasSuffix("truncated"))
            }
        }

        @Test("content without an offer is passed on whole", arguments: Cut.allCases)
        func noOffer(cut: Cut) throws {
            let server = try Self.server()
            defer { server.stop() }
            let client = try server.client()
            let request =
                Record.head(parameters(length: "3")) + Record.stream(.stdin, [1, 2, 3])
            switch cut {
            case .whole: client.send(request)
            case .singly: client.sendSingly(request)
            }
            #expect(client.response().content == "no offer 3 complete")
        }

        @Test("reading content declines the offer", arguments: Cut.allCases)
        func declined(cut: Cut) throws {
            let server = try TestServer()
            defer { server.stop() }
            let client = try server.client()
            let head = Record.head(parameters(length: "3")) + Self.offer
            switch cut {
            case .whole: client.send(head)
            case .singly: client.sendSingly(head)
            }
            #expect(client.waits { $0.types == [8] })
            client.send(Record.stream(.stdin, [1, 2, 3]))
            #expect(client.response().content == Received.text([1, 2, 3]))
        }
    }
}
