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
    var byRoute: [String: Int] = [:]
    var targets: [String: String] = [:]

    func ofRoute(_ name: String) -> Int { byRoute[name] ?? total }

    /// The first target of the route's upstream.
    ///
    /// All deliveries of the route count for this target.
    func target(ofRoute name: String) -> String { targets[name] ?? "" }

    func user(ofRoute name: String, for client: ClientName) -> SlotUser {
        SlotUser(target: target(ofRoute: name), route: name, client: client)
    }
}

extension DeliveryBounds {
    init(_ settings: Settings) {
        self.init(
            total: settings.maximumDeliveries,
            byRoute: settings.routes.compactMapValues(\.queue.maximumConcurrent),
            targets: settings.routes.compactMapValues(\.upstream.targets.first?.place)
        )
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
    private var isEnded = false

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
        guard !isEnded else { return nil }
        if let wait {
            guard wait.signal.wait(until: deadline, { $0 ? true : nil }) != nil else { return nil }
            self.wait = nil
        }
        isEnded = true
        return DeliverySlot(slots, user)
    }

    /// Leaves the line.
    ///
    /// Has no effect if `take` has returned the slot.
    func leave() {
        guard !isEnded else { return }
        isEnded = true
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

// MARK: Shares

// The division of the delivery slots, by a dynamic threshold, because a slot in use cannot be revoked.
//
// Pure. A target gets another slot only while it holds fewer than twice as many slots as are free. The same rule
// applies to a client within its target's share. An application that does not respond therefore leaves a third of the
// slots to others, and a single client a third of its target's share. Invariant: no delivery waits that could have a
// slot; freed slots are assigned in the order of arrival.

struct SlotUser: Hashable, Sendable {
    /// The application, as identified by `UpstreamTarget.place`.
    let target: String
    let route: String
    let client: ClientName
}

/// The slots in use, and the rule for taking another.
struct SlotShares {
    fileprivate struct Share {
        var taken = 0
        var clients: [ClientName: Int] = [:]

        mutating func add(_ client: ClientName) {
            taken += 1
            clients[client, default: 0] += 1
        }

        mutating func remove(_ client: ClientName) {
            taken -= 1
            // Clients without slots are removed.
            guard let index = clients.index(forKey: client) else { return }
            if clients.values[index] > 1 {
                clients.values[index] -= 1
            } else {
                clients.remove(at: index)
            }
        }
    }

    private(set) var taken = 0
    // Empty shares are kept because the settings limit their number.
    private var targets: [String: Share] = [:]
    private var routes: [String: Share] = [:]

    func taken(ofRoute route: String) -> Int { routes[route]?.taken ?? 0 }

    /// The numbers of slots that a target and a route may still take, each at least 1.
    struct Room {
        fileprivate let target: Share?
        fileprivate let ofTarget: Int
        fileprivate let route: Share?
        fileprivate let ofRoute: Int

        /// Returns true while the client uses fewer than twice as many slots as are left.
        func admits(_ client: ClientName) -> Bool {
            (target?.clients[client] ?? 0) < 2 * ofTarget
                && (route?.clients[client] ?? 0) < 2 * ofRoute
        }
    }

    /// Returns nil if deliveries of the route to the target may take no slot.
    func room(for target: String, route: String, _ bounds: DeliveryBounds) -> Room? {
        let share = targets[target]
        // A route without its own limit is bound only by its target's share.
        let maximum = bounds.ofRoute(route)
        let ofRoute = maximum < bounds.total ? routes[route] : nil
        // The target takes its n-th further slot if held + n - 1 < 2 * (free - n + 1).
        let margin = 2 * (bounds.total - taken) - (share?.taken ?? 0)
        let left = maximum - (ofRoute?.taken ?? 0)
        guard margin > 0, left > 0 else { return nil }
        return Room(target: share, ofTarget: (margin + 2) / 3, route: ofRoute, ofRoute: left)
    }

    mutating func take(_ user: SlotUser, _ bounds: DeliveryBounds) -> Bool {
        guard room(for: user.target, route: user.route, bounds)?.admits(user.client) ?? false else {
            return false
        }
        hold(user)
        return true
    }

    /// Takes a slot without checking the threshold.
    mutating func hold(_ user: SlotUser) {
        taken += 1
        targets[user.target, default: Share()].add(user.client)
        routes[user.route, default: Share()].add(user.client)
    }

    mutating func giveBack(_ user: SlotUser) {
        taken -= 1
        targets[user.target]?.remove(user.client)
        routes[user.route]?.remove(user.client)
    }
}

/// The slots, and the line of deliveries waiting for one.
struct SlotLine {
    private(set) var bounds: DeliveryBounds
    private var shares = SlotShares()
    private var line: [(number: Int, user: SlotUser)] = []
    private var next = 0

    init(_ bounds: DeliveryBounds) { self.bounds = bounds }

    var waiting: Int { line.count }

    /// Takes a slot if the limits allow it.
    ///
    /// Otherwise returns false, and the caller may call `lineUp`.
    mutating func take(_ user: SlotUser) -> Bool { shares.take(user, bounds) }

    /// Joins the line.
    ///
    /// Returns a number, which `giveBack` or `setBounds` returns when a slot is assigned to it.
    mutating func lineUp(_ user: SlotUser) -> Int {
        next += 1
        line.append((next, user))
        return next
    }

    /// Leaves the line.
    ///
    /// Returns false if a slot was already assigned. The caller must then return the slot.
    mutating func leave(_ number: Int) -> Bool {
        guard let index = line.firstIndex(where: { $0.number == number }) else { return false }
        line.remove(at: index)
        return true
    }

    /// Takes back a slot.
    ///
    /// Returns the numbers in the line to which slots were then assigned.
    mutating func giveBack(_ user: SlotUser) -> [Int] {
        shares.giveBack(user)
        return letIn()
    }

    /// Changes the limits.
    ///
    /// Slots in use stay in use. Returns the numbers in the line to which slots were then assigned.
    mutating func setBounds(_ bounds: DeliveryBounds) -> [Int] {
        self.bounds = bounds
        return letIn()
    }

    private mutating func letIn() -> [Int] {
        // One pass is enough because each assigned slot leaves less room for deliveries earlier in the line.
        var indices: [Int] = []
        for index in line.indices {
            guard shares.taken < bounds.total else { break }
            if shares.take(line[index].user, bounds) { indices.append(index) }
        }
        let numbers = indices.map { line[$0].number }
        for index in indices.reversed() { line.remove(at: index) }
        return numbers
    }
}
