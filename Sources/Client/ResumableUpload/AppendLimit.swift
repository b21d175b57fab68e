// The limit of one request's content that the uploads of a session have learned from proxies.
//
// A proxy with such a limit responds with 413 and does not name the limit. The invariant: the limit only decreases, and
// never below 64 KiB.

import SpoolgatePosix

/// The maximum content of one request.
///
/// Safe to use from any thread.
final class AppendLimit: Sendable {
    /// The smallest limit, in bytes: a proxy that allows less is not believed, or is of no use.
    static let least: Int64 = 64 << 10

    private let known = Monitor<Int64?>(nil)

    /// The limit in bytes; nil if none is known.
    var bytes: Int64? { known.updateQuietly { $0 } }

    /// Applies a limit that the user has set.
    func begin(at bytes: Int64) {
        known.updateQuietly { $0 = min($0 ?? .max, max(bytes, Self.least)) }
    }

    /// Lowers the limit after `bytes` were refused, to half of them or to the known limit if that is lower.
    func lower(below bytes: Int64) -> Int64 {
        known.updateQuietly { known in
            let limit = min(known ?? .max, max(bytes / 2, Self.least))
            known = limit
            return limit
        }
    }
}
