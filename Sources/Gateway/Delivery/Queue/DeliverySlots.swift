// How many delivery attempts may run at once, in all and of each route, shared among targets and clients
// (SlotShares); a reload can change the bounds.
//
// An attempt gives its slot back when the upstream's head is there: from then on a client that reads
// slowly keeps only itself waiting. Invariant: a slot is given back exactly once.

import SpoolgatePosix
import SpoolgateSettings
import SpoolgateUploadProtocol
import SpoolgateUpstream

/// Most delivery attempts at a time, in all and of each route, and who shares with whom.
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

    /// Bounds in numbers; `targets` by route.
    init(total: Int, byRoute: [String: Int] = [:], targets: [String: String] = [:]) {
        self.total = total
        self.byRoute = byRoute
        self.targets = targets
    }

    /// Most attempts of one route.
    func ofRoute(_ name: String) -> Int { byRoute[name] ?? total }

    /// The target that deliveries of a route are counted on: the first of its upstream.
    func target(ofRoute name: String) -> String { targets[name] ?? "" }

    /// What a delivery of a route is counted on.
    func user(ofRoute name: String, for client: ClientName) -> SlotUser {
        SlotUser(target: target(ofRoute: name), route: name, client: client)
    }
}

/// The slots of all delivery attempts of one process.
///
/// Any thread.
package final class DeliverySlots: Sendable {
    private struct State {
        var line: SlotLine
        /// Those that wait, by their numbers in the line.
        var signals: [Int: Monitor<Bool>] = [:]

        mutating func removeSignals(_ numbers: [Int]) -> [Monitor<Bool>] {
            numbers.compactMap { signals.removeValue(forKey: $0) }
        }
    }

    private let state: Monitor<State>

    init(_ bounds: DeliveryBounds) { state = Monitor(State(line: SlotLine(bounds))) }

    /// Changes the bounds; attempts already running go on.
    func setBounds(_ bounds: DeliveryBounds) {
        let signals = state.updateQuietly { $0.removeSignals($0.line.setBounds(bounds)) }
        for signal in signals { signal.update { $0 = true } }
    }

    /// Lines up for a slot for a delivery of a route; it may have one at once.
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

    /// How many wait for a slot.
    var waiting: Int { state.updateQuietly { $0.line.waiting } }

    fileprivate func leave(_ number: Int) -> Bool {
        state.updateQuietly { state in
            state.signals[number] = nil
            return state.line.leave(number)
        }
    }

    fileprivate func giveBack(_ user: SlotUser) {
        // Each of them is woken by itself: thousands may wait.
        let signals = state.updateQuietly { $0.removeSignals($0.line.giveBack(user)) }
        for signal in signals { signal.update { $0 = true } }
    }
}

/// A place in the line for a slot.
///
/// One thread.
final class SlotPlace {
    fileprivate struct Wait: Sendable {
        let number: Int
        let signal: Monitor<Bool>
    }

    private let slots: DeliverySlots
    private let user: SlotUser
    /// nil: it is let in.
    private var wait: Wait?
    /// Whether it has left, with its slot or without one.
    private var isOver = false

    fileprivate init(_ user: SlotUser, _ wait: Wait?, in slots: DeliverySlots) {
        self.slots = slots
        self.user = user
        self.wait = wait
    }

    deinit { leave() }

    /// Waits for the slot, once or several times, and keeps its place in the line; nil when `deadline` comes first.
    func take(until deadline: Deadline) -> DeliverySlot? {
        guard !isOver else { return nil }
        if let wait {
            guard wait.signal.wait(until: deadline, { $0 ? true : nil }) != nil else { return nil }
            self.wait = nil
        }
        isOver = true
        return DeliverySlot(slots, user)
    }

    /// Leaves the line; harmless if the slot was taken.
    func leave() {
        guard !isOver else { return }
        isOver = true
        // One that was let in meanwhile has a slot that nobody took.
        if wait.map({ !slots.leave($0.number) }) ?? true { slots.giveBack(user) }
    }
}

/// A slot that is held.
///
/// One thread.
final class DeliverySlot {
    private var slots: DeliverySlots?
    private let user: SlotUser

    fileprivate init(_ slots: DeliverySlots, _ user: SlotUser) {
        self.slots = slots
        self.user = user
    }

    deinit { giveBack() }

    /// Lets another delivery have it; harmless if that was done before.
    func giveBack() {
        slots?.giveBack(user)
        slots = nil
    }
}
