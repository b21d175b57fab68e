// How much content one request may have, as uploads of one session have learned it from proxies.
//
// A proxy that limits content answers 413 and says no more. The invariant: it only gets smaller, and not below 64 KiB by
// itself.

import SpoolgatePosix

/// The most content of one request.
///
/// Any thread.
final class AppendLimit: Sendable {
    /// Below so many bytes a proxy is not believed, or of no use.
    static let least: Int64 = 64 << 10

    private let known = Monitor<Int64?>(nil)

    /// Bytes; nil: no limit is known.
    var bytes: Int64? { known.updateQuietly { $0 } }

    /// Takes a limit that a person knows.
    func begin(at bytes: Int64) {
        known.updateQuietly { $0 = min($0 ?? .max, max(bytes, Self.least)) }
    }

    /// Takes that so many bytes were too many; half of them, or what is known already.
    func lower(below bytes: Int64) -> Int64 {
        known.updateQuietly { known in
            let limit = min(known ?? .max, max(bytes / 2, Self.least))
            known = limit
            return limit
        }
    }
}
