// Learns the content limit of proxies, for the uploads of a session.
//
// A proxy responds with 413 but does not name its limit. The invariant: the limit only decreases, never below 64 KiB.

import SpoolgatePosix

/// The maximum size of one request's content; usable from any thread.
final class AppendLimit: Sendable {
    /// The lowest possible limit in bytes; a proxy with a lower limit is not supported.
    static let least: Int64 = 64 << 10

    private let known = Monitor<Int64?>(nil)

    /// The current limit in bytes; nil if no limit is known.
    var bytes: Int64? { known.updateQuietly { $0 } }

    /// Applies the user's limit.
    func begin(at bytes: Int64) {
        known.updateQuietly { $0 = min($0 ?? .max, max(bytes, Self.least)) }
    }

    /// Lowers the limit to half of `bytes`, the size of a refused request, unless the limit is already lower.
    ///
    /// Returns the limit.
    func lower(below bytes: Int64) -> Int64 {
        known.updateQuietly { known in
            let limit = min(known ?? .max, max(bytes / 2, Self.least))
            known = limit
            return limit
        }
    }
}
