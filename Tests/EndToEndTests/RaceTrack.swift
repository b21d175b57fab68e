// Where requests race: one daemon, or two on one spool, and an upstream that writes down what it got.
//
// It starts no race; it knows how the daemons looked before.

import Foundation
import SpoolgateTestSupport
import Testing

/// Where two clients of one upload send their requests.
enum Daemons: String, CaseIterable, CustomTestStringConvertible {
    case one
    /// Two daemons on one spool, each behind a web server of its own; kernel locks are all they share.
    case two

    var testDescription: String { "\(rawValue) daemon\(self == .one ? "" : "s")" }
}

/// The daemons of a race.
final class RaceTrack {
    let upstream: LoopbackOrigin
    let moments = Moments()
    private let sandboxes: [Sandbox]
    /// Seconds for which a request waits for the upload: longer than any race takes on a busy machine.
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
        // What a daemon opens once, for good, is open from here on.
        for sandbox in sandboxes {
            let warming = try sandbox.create("/files/warm")
            _ = try sandbox.append(warming, Data(count: 1_000))
            _ = try sandbox.ask("DELETE", warming)
        }
    }

    var first: Sandbox { sandboxes[0] }
    /// The same as the first where there is one daemon.
    var second: Sandbox { sandboxes[sandboxes.count - 1] }

    /// Notes what every daemon uses now; calling the result waits until it is that again.
    ///
    /// - Parameter deliveries: how many there will be at a time; each may leave a handle of libcurl
    ///   with its descriptors.
    /// - Returns: what waits.
    func base(deliveries: Int = 1) -> () throws -> Void {
        let sandboxes = sandboxes
        let before = sandboxes.map { $0.daemon.footprint() }
        return {
            for (sandbox, before) in zip(sandboxes, before) {
                var now = before
                do {
                    try eventually("descriptors and threads are as before") {
                        now = sandbox.daemon.footprint()
                        // The pool begins with 16 threads ready, and keeps 64.
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
