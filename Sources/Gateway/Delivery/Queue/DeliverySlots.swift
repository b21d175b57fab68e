// The limits on concurrent delivery attempts, in total and per route.
//
// An attempt returns its slot when the upstream's response head arrives, so that slow clients delay no other delivery.
// Invariant: a slot is returned exactly once.

import SpoolgatePosix
import SpoolgateSettings
import SpoolgateUploadProtocol
import SpoolgateUpstream

/// The maximum number of concurrent attempts, and the target of each route.
package struct DeliveryBounds: Sendable {
    let total: Int
    private let byRoute: [String: Int]
    private let targets: [String: String]

    init(_ settings: Settings) {
        self.init(
            total: settings.maximumDeliveries,
            byRoute: settings.routes.compactMapValues(\.queue.maximumConcurrent),
            targets: settings.routes.compactMapValues(\.upstream.targets.first?.place)
        )
    }

    init(total: Int, byRoute: [String: Int] = [:], targets: [String: String] = [:]) {
        self.total = total
        self.byRoute = byRoute
        self.targets = targets
    }

    func ofRoute(_ name: String) -> Int { byRoute[name] ?? total }

    /// The first target of the route's upstream.
    ///
    /// All deliveries of the route count for this target.
    func target(ofRoute name: String) -> String { targets[name] ?? "" }

    func user(ofRoute name: String, for client: ClientName) -> SlotUser {
        SlotUser(target: target(ofRoute: name), route: name, client: client)
    }
}

/// The slots of all delivery attempts of one process.
///
/// Thread-safe.
package final class DeliverySlots: Sendable {
    private struct State {
        var line: SlotLine
        /// The signals that wake waiting deliveries, keyed by their number in the line.
        var signals: [Int: Monitor<Bool>] = [:]

        mutating func removeSignals(_ numbers: [Int]) -> [Monitor<Bool>] {
            numbers.compactMap { signals.removeValue(forKey: $0) }
        }
    }

    private let state: Monitor<State>

    init(_ bounds: DeliveryBounds) { state = Monitor(State(line: SlotLine(bounds))) }

    /// Changes the limits.
    ///
    /// Attempts under way continue.
    func setBounds(_ bounds: DeliveryBounds) {
        let signals = state.updateQuietly { $0.removeSignals($0.line.setBounds(bounds)) }
        for signal in signals { signal.update { $0 = true } }
    }

    /// Joins the line for a slot, which may be available at once.
    func lineUp(ofRoute route: String, for client: ClientName) -> SlotPlace {
        let (user, wait) = state.updateQuietly { state in
            let user = state.line.bounds.user(ofRoute: route, for: client)
            guard !state.line.take(user) else { return (user, SlotPlace.Wait?.none) }
            let wait = SlotPlace.Wait(number: state.line.lineUp(user), signal: Monitor(false))
            state.signals[wait.number] = wait.signal
            return (user, wait)
        }
        return SlotPlace(user, wait, in: self)
    }

    var waiting: Int { state.updateQuietly { $0.line.waiting } }

    fileprivate func leave(_ number: Int) -> Bool {
        state.updateQuietly { state in
            state.signals[number] = nil
            return state.line.leave(number)
        }
    }

    fileprivate func giveBack(_ user: SlotUser) {
        // Each waiter has its own signal, because thousands may wait.
        let signals = state.updateQuietly { $0.removeSignals($0.line.giveBack(user)) }
        for signal in signals { signal.update { $0 = true } }
    }
}

/// A delivery's place in the line for a slot.
///
/// Not thread-safe.
final class SlotPlace {
    fileprivate struct Wait: Sendable {
        let number: Int
        let signal: Monitor<Bool>
    }

    private let slots: DeliverySlots
    private let user: SlotUser
    /// The wait for a slot; nil if a slot is assigned.
    private var wait: Wait?
    /// Whether the delivery has left the line, with or without a slot.
    private var isOver = false

    fileprivate init(_ user: SlotUser, _ wait: Wait?, in slots: DeliverySlots) {
        self.slots = slots
        self.user = user
        self.wait = wait
    }

    deinit { leave() }

    /// Waits for the slot.
    ///
    /// Returns nil at `deadline`; the delivery then keeps its place in the line.
    func take(until deadline: Deadline) -> DeliverySlot? {
        guard !isOver else { return nil }
        if let wait {
            guard wait.signal.wait(until: deadline, { $0 ? true : nil }) != nil else { return nil }
            self.wait = nil
        }
        isOver = true
        return DeliverySlot(slots, user)
    }

    /// Leaves the line.
    ///
    /// Has no effect if `take` has returned the slot.
    func leave() {
        guard !isOver else { return }
        isOver = true
        // The slot may have been assigned but not taken.
        if wait.map({ !slots.leave($0.number) }) ?? true { slots.giveBack(user) }
    }
}

/// A slot in use by one delivery.
///
/// Not thread-safe.
final class DeliverySlot {
    private var slots: DeliverySlots?
    private let user: SlotUser

    fileprivate init(_ slots: DeliverySlots, _ user: SlotUser) {
        self.slots = slots
        self.user = user
    }

    deinit { giveBack() }

    /// Returns the slot.
    ///
    /// Has no effect if the slot was returned earlier.
    func giveBack() {
        slots?.giveBack(user)
        slots = nil
    }
}
