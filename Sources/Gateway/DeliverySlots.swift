// How many delivery attempts may run at once: a counted bound that a reload can change.
//
// An attempt gives its slot back when the upstream's head is there: from then on a client that reads
// slowly keeps only itself waiting. Invariant: a slot is given back exactly once.

import Posix

/// A bound on concurrent delivery attempts.
final class DeliverySlots: Sendable {
    private struct Count {
        var maximum: Int
        var taken = 0
    }

    private let count: Monitor<Count>

    init(_ maximum: Int) { count = Monitor(Count(maximum: maximum)) }

    /// Changes the bound; attempts already running go on.
    func setMaximum(_ maximum: Int) { count.update { $0.maximum = maximum } }

    /// Runs `body` in a slot, waiting for one; nil when `deadline` comes first.
    ///
    /// The slot is given back by `body`, once it needs it no more, or when it ends.
    func withSlot<R>(until deadline: Deadline, _ body: (DeliverySlot) -> R) -> R? {
        guard let slot = take(until: deadline) else { return nil }
        defer { slot.giveBack() }
        return body(slot)
    }

    /// Takes a slot, waiting for one; nil when `deadline` comes first.
    ///
    /// Whoever takes it gives it back.
    func take(until deadline: Deadline) -> DeliverySlot? {
        count.wait(until: deadline) { count in
            guard count.taken < count.maximum else { return nil }
            count.taken += 1
            return DeliverySlot { [self] in self.count.update { $0.taken -= 1 } }
        }
    }
}

/// A slot that is held.
///
/// One thread.
final class DeliverySlot {
    private var release: (() -> Void)?

    fileprivate init(_ release: @escaping () -> Void) { self.release = release }

    /// Lets another delivery have it; harmless if that was done before.
    func giveBack() {
        release?()
        release = nil
    }
}
