// One daemon or two on one spool, and an upstream that records its requests.

import Foundation
import SpoolgateTestSupport
import Testing

enum Daemons: String, CaseIterable, CustomTestStringConvertible {
    case one
    /// Each behind its own web server; they share only kernel locks.
    case two

    var testDescription: String { "\(rawValue) daemon\(self == .one ? "" : "s")" }
}

final class RaceTrack {
    let upstream: LoopbackOrigin
    let moments = Moments()
    private let sandboxes: [Sandbox]
    /// Seconds that a request waits for an upload in use: longer than any race.
    static let inUse = 50.0

    init(_ daemons: Daemons) throws {
        upstream = try LoopbackOrigin(passing: moments)
        let timeouts = "{stall: 60s, drain: 20s, in-use: \(Int(Self.inUse))s}"
        var sandboxes = [
            try Sandbox(upstream: upstream.base, front: .nginxWithModule, timeouts: timeouts)
        ]
        if daemons == .two {
            sandboxes.append(
                try Sandbox(
                    upstream: upstream.base,
                    front: .nginxWithModule,
                    spool: sandboxes[0].directory.path() + "/spool",
                    timeouts: timeouts
                )
            )
        }
        self.sandboxes = sandboxes
        // Open the descriptors that a daemon keeps.
        for sandbox in sandboxes {
            let warming = try sandbox.create("/files/warm")
            _ = try sandbox.append(warming, Data(count: 1_000))
            _ = try sandbox.ask("DELETE", warming)
        }
    }

    var first: Sandbox { sandboxes[0] }
    var second: Sandbox { sandboxes[sandboxes.count - 1] }

    /// Returns a function that waits until each daemon's resources are back at this level.
    ///
    /// Each concurrent delivery may leave a handle of libcurl with its descriptors.
    func base(deliveries: Int = 1) -> () throws -> Void {
        let sandboxes = sandboxes
        let before = sandboxes.map { $0.daemon.footprint() }
        return {
            for (sandbox, before) in zip(sandboxes, before) {
                var now = before
                do {
                    try eventually("descriptors and threads are as before") {
                        now = sandbox.daemon.footprint()
                        // The pool starts with 16 ready threads and keeps 64.
                        return now.descriptors <= before.descriptors + 4 * deliveries
                            && now.threads <= before.threads + 64 - 16
                    }
                } catch {
                    throw NeverHappened(description: "\(error): \(before), then \(now)")
                }
            }
        }
    }
}
