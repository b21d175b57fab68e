// The division of the delivery slots, by a dynamic threshold, because a slot in use cannot be revoked.
//
// Pure. A target gets another slot only while it holds fewer than twice as many slots as are free. The same rule
// applies to a client within its target's share. An application that does not respond therefore leaves a third of the
// slots to others, and a single client a third of its target's share. Invariant: no delivery waits that could have a
// slot; freed slots are assigned in the order of arrival.

import SpoolgateUploadProtocol

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
        let most = bounds.ofRoute(route)
        let ofRoute = most < bounds.total ? routes[route] : nil
        // The target takes its n-th further slot if held + n - 1 < 2 * (free - n + 1).
        let margin = 2 * (bounds.total - taken) - (share?.taken ?? 0)
        let left = most - (ofRoute?.taken ?? 0)
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
