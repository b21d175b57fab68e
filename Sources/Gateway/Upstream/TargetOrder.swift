// The order in which an upstream's targets are tried: as configured, but recently unreachable targets last.
//
// Invariant: every order contains every target once.

import SpoolgatePosix

/// The order of one upstream's targets, derived from the results of attempts.
///
/// Thread-safe.
final class TargetOrder: Sendable {
    /// How long an unreachable target is tried last.
    static let avoidance = Duration.seconds(10)

    /// Until when each target is tried last, by index; nil if the target was reached or never tried.
    private let avoidedUntil: Monitor<[Deadline?]>
    private let avoidance: Duration
    private let count: Int

    init(count: Int, avoidance: Duration = TargetOrder.avoidance) {
        avoidedUntil = Monitor(Array(repeating: nil, count: count))
        self.avoidance = avoidance
        self.count = count
    }

    /// The indices of all targets, in the order in which one attempt tries them.
    ///
    /// An unreachable target whose time has expired returns to its place for this attempt only, so that the target
    /// delays one attempt instead of all.
    func indices() -> [Int] {
        guard count > 1 else { return [0] }
        return avoidedUntil.update { avoided in
            guard avoided.contains(where: { $0 != nil }) else { return Array(avoided.indices) }
            let due = avoided.indices.first { avoided[$0]?.hasPassed ?? false }
            let last = avoided.indices.filter { avoided[$0] != nil && $0 != due }
            if let due { avoided[due] = .after(avoidance) }
            return avoided.indices.filter { !last.contains($0) } + last
        }
    }

    func wasReached(_ index: Int) {
        guard count > 1 else { return }
        avoidedUntil.update { $0[index] = nil }
    }

    func wasNotReached(_ index: Int) {
        avoidedUntil.update { $0[index] = .after(avoidance) }
    }
}
