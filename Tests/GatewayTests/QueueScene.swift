// The queue tests' scripted upstream, and their gateway with short waits.

import Foundation
import HTTPTypes
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Synchronization
import Testing

@testable import SpoolgateRequests
@testable import SpoolgateSettings
@testable import SpoolgateSpool

enum QueueScene {
    enum Deed: Sendable {
        case responses(Int, fields: String = "")
        case breaksOff
    }

    /// These reactions in order, then 201.
    static func origin(
        _ deeds: [Deed],
        socketPath: String? = nil,
        afterEach: @escaping @Sendable () -> Void = {}
    ) throws -> LoopbackOrigin {
        let left = Mutex(deeds)
        return try LoopbackOrigin(socketPath: socketPath) { connection in
            _ = try connection.receiveRequest()
            let deed = left.withLock { $0.isEmpty ? Deed.responses(201) : $0.removeFirst() }
            afterEach()
            var (status, fields) = (201, "")
            switch deed {
            case .responses(let code, let lines): (status, fields) = (code, lines)
            case .breaksOff: return
            }
            try connection.send("HTTP/1.1 \(status) Said\r\n\(fields)Content-Length: 2\r\n")
            try connection.send("Connection: close\r\n\r\nok")
        }
    }

    static func socketPath() -> String {
        "\(NSTemporaryDirectory())/queue-\(UInt64.random(in: 0...(.max))).sock"
    }

    /// Its queue waits a second between attempts.
    static func gateway(
        _ target: UpstreamTarget,
        _ change: @escaping (inout Settings, inout RouteSettings) -> Void = { _, _ in }
    ) throws -> GatewayUnderTest {
        try GatewayUnderTest(target) { settings, route in
            route.queue.minimumBackoff = .seconds(1)
            route.queue.maximumBackoff = .seconds(1)
            change(&settings, &route)
        }
    }
}

extension GatewayUnderTest {
    func waitUntil(_ location: String, isIn queue: Queue) throws {
        try eventually("\(location) in \(queue)") { try self.queue(of: location) == queue }
    }
}
