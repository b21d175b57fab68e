// Large header sections from thousands of clients at once.

import Foundation
import SpoolgateExchange
import SpoolgatePosix
import SpoolgateTestSupport
import Testing

@testable import SpoolgateFastCGIFront

extension FrontTests {
    @Suite struct HeadFloodTests {
        // A sanitizer would need minutes for 2,000.
        private static let clients =
            ProcessInfo.processInfo.environment["SPOOLGATE_SANITIZER"] == nil ? 2_000 : 200

        // Long because 2,000 clients send 190 MB of header sections.
        @Test("heads of 96 KiB from 2,000 clients at once")
        func flood() throws {
            // Both ends of each connection, and the descriptors for parsing parameters.
            try #require(DescriptorLimit.raise() > 3 * Self.clients)
            let gate = Gate()
            let server = try TestServer({ settings in
                settings.maximum = Self.clients
                settings.parametersTimeout = .seconds(300)
                settings.stallTimeout = .seconds(300)
            }) { exchange in
                gate.pass()
                TestServer.tell(exchange)
            }
            defer { server.stop() }
            let field = String(repeating: "a", count: 1_000)
            // Below the limit, above it, and in parameters that are no fields.
            let heads = [("HTTP_X", 60), ("HTTP_X", 96), ("X", 96)].map { name, count in
                Record.head(
                    parameters(length: "0", (0..<count).map { ("\(name)_\($0)", field) })
                )
            }
            let clients = try (0..<Self.clients).map { index in
                let client = try server.client()
                // All responses are sent at the same time.
                client.setPatience(seconds: 300)
                #expect(client.send(heads[index % heads.count]))
                return client
            }
            try eventually("a thread for each") { server.server.load.active == Self.clients }
            gate.open()
            for (index, client) in clients.enumerated() {
                let response = client.response()
                #expect(response.status == (index % heads.count == 1 ? 431 : 200))
                #expect(response.endStatus == 0)
            }
            #expect(server.events.isEmpty)
        }
    }
}
