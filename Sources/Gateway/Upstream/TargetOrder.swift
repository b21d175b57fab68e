// In which order an upstream's targets are tried: as they were written, but those that were not
// reached a moment ago last.
//
// It connects to nothing and knows no target, only their number. The invariant: every order names
// every target once, so that nothing that might be reached is left out.

import SpoolgatePosix

/// The order of one upstream's targets, learnt from what attempts met.
///
/// Any thread.
final class TargetOrder: Sendable {
    /// How long a target that was not reached is tried last.
    static let avoidance = Duration.seconds(10)

    /// For each target until when it is tried last; nil: it was reached, or never tried.
    ///
    /// A Monitor, though nobody waits on it, as in ConnectionPool.
    private let avoidedUntil: Monitor<[Deadline?]>
    private let avoidance: Duration
    private let count: Int

    /// Makes the order of `count` targets, none of them avoided.
    init(count: Int, avoidance: Duration = TargetOrder.avoidance) {
        avoidedUntil = Monitor(Array(repeating: nil, count: count))
        self.avoidance = avoidance
        self.count = count
    }

    /// The indices of all targets, in the order that one attempt tries them.
    ///
    /// A target whose time is over is tried in its old place by this attempt alone, so that one
    /// that is still dead costs one attempt its connect timeout and not all.
    func indices() -> [Int] {
        // A target that stands alone is never tried last.
        guard count > 1 else { return [0] }
        return avoidedUntil.update { avoided in
            guard avoided.contains(where: { $0 != nil }) else { return Array(avoided.indices) }
            let due = avoided.indices.first { avoided[$0]?.hasPassed ?? false }
            let last = avoided.indices.filter { avoided[$0] != nil && $0 != due }
            if let due { avoided[due] = .after(avoidance) }
            return avoided.indices.filter { !last.contains($0) } + last
        }
    }

    /// Notes that a target took a connection.
    func wasReached(_ index: Int) {
        guard count > 1 else { return }
        avoidedUntil.update { $0[index] = nil }
    }

    /// Notes that a target took none.
    func wasNotReached(_ index: Int) {
        avoidedUntil.update { $0[index] = .after(avoidance) }
    }
}
