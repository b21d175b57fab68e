// An alarm from another thread ends the wait for content.

import HTTPTypes
import SpoolgateExchange
import SpoolgateFastCGIFront
import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import Testing

extension FrontTests {
    @Suite struct AlarmTests {
        /// Rings the alarm before each read but the first.
        ///
        /// Responds with the number of bytes and whether a read returned none.
        private static func server() throws -> TestServer {
            try TestServer { exchange in
                let alarm = try Alarm()
                exchange.setAlarm(alarm)
                let buffer = try ContentBuffer(capacity: 100)
                var reads: [Int] = []
                do throws(ContentError) {
                    while try exchange.receive(into: buffer) {
                        reads.append(buffer.count)
                        buffer.removeAll()
                        if reads.last != 0 { alarm.ring() }
                        // The client sends the rest when it receives this.
                        guard reads.last == 0 else { continue }
                        exchange.send(interim: ResponseHead(status: .continue))
                    }
                    TestServer.reply(exchange, 200, "\(reads.reduce(0, +)) \(reads.contains(0))")
                } catch {
                    TestServer.reply(exchange, 200, "\(reads) \(error.rawValue)")
                }
            }
        }

        @Test(
            "an alarm ends the wait for content, also inside a record, and no content is lost",
            arguments: 0...9
        )
        func ends(count: Int) throws {
            let server = try Self.server()
            defer { server.stop() }
            let client = try server.client()
            let second = Record.stream(.stdin, [4, 5, 6, 7])
            let head = Record.head(parameters(length: "7", [("SPOOLGATE_INTERIM", "100")]))
            client.send(
                head + Record.stream(.stdin, [1, 2, 3], isEnded: false) + second.prefix(count)
            )
            #expect(client.waits(until: { $0.interims == [100] }))
            client.send(Array(second.dropFirst(count)))
            #expect(client.response().final.content == "7 true")
        }
    }
}
