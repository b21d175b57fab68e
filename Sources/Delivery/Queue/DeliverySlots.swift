// How many delivery attempts may run at once, in all and of each route: counted bounds that a reload
// can change.
//
// An attempt gives its slot back when the upstream's head is there: from then on a client that reads
// slowly keeps only itself waiting. Invariant: a slot is given back exactly once.

import Posix
import Settings

/// Most delivery attempts at a time, in all and of each route.
package struct DeliveryBounds: Sendable {
    let total: Int
    private let byRoute: [String: Int]

    init(_ settings: Settings) {
        total = settings.maximumDeliveries
        byRoute = settings.routes.compactMapValues(\.queue.maximumConcurrent)
    }

    /// Most attempts of one route.
    func ofRoute(_ name: String) -> Int { byRoute[name] ?? total }
}

/// A bound on concurrent delivery attempts.
package final class DeliverySlots: Sendable {
    private struct Count {
        var bounds: DeliveryBounds
        var taken = 0
        var takenByRoute: [String: Int] = [:]
    }

    private let count: Monitor<Count>

    init(_ bounds: DeliveryBounds) { count = Monitor(Count(bounds: bounds)) }

    /// Changes the bounds; attempts already running go on.
    func setBounds(_ bounds: DeliveryBounds) { count.update { $0.bounds = bounds } }

    /// Takes a slot, waiting for one; nil when `deadline` comes first.
    ///
    /// Whoever takes it gives it back.
    func take(of route: String, until deadline: Deadline) -> DeliverySlot? {
        count.wait(until: deadline) { count in
            let ofRoute = count.takenByRoute[route, default: 0]
            guard count.taken < count.bounds.total, ofRoute < count.bounds.ofRoute(route) else {
                return nil
            }
            count.taken += 1
            count.takenByRoute[route] = ofRoute + 1
            return DeliverySlot { [self] in giveBack(of: route) }
        }
    }

    private func giveBack(of route: String) {
        count.update { count in
            count.taken -= 1
            let left = count.takenByRoute[route, default: 1] - 1
            count.takenByRoute[route] = left > 0 ? left : nil
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
