// How the delivery slots are shared: a dynamic threshold, since a slot that is taken cannot be taken back.
//
// Pure. A target takes one more slot only while it holds fewer than twice as many as are free, and so does a client
// within its target's share: an application that does not answer leaves a third to the others, and one client of it a
// third of its share. Invariant: no waiting delivery could be let in; each change lets in, in the order of arrival,
// every one that it makes room for.

import SpoolgateUploadProtocol

/// What one delivery's slot is counted on.
struct SlotUser: Hashable, Sendable {
    /// The application, as `UpstreamTarget.place` names it.
    let target: String
    /// The route.
    let route: String
    /// Whose upload it is.
    let client: ClientName
}

/// The slots that are taken, and the rule for one more.
struct SlotShares {
    /// Slots of one target, or of one route.
    fileprivate struct Share {
        var taken = 0
        var clients: [ClientName: Int] = [:]

        mutating func add(_ client: ClientName) {
            taken += 1
            clients[client, default: 0] += 1
        }

        mutating func remove(_ client: ClientName) {
            taken -= 1
            // Only clients that have one are kept.
            guard let index = clients.index(forKey: client) else { return }
            if clients.values[index] > 1 {
                clients.values[index] -= 1
            } else {
                clients.remove(at: index)
            }
        }
    }

    /// Slots that are taken.
    private(set) var taken = 0
    // Those without a slot stay: there are as many as the settings name.
    private var targets: [String: Share] = [:]
    private var routes: [String: Share] = [:]

    /// Slots of a route that are taken.
    func taken(ofRoute route: String) -> Int { routes[route]?.taken ?? 0 }

    /// What a target and a route may still take, at least one each.
    struct Room {
        fileprivate let target: Share?
        fileprivate let ofTarget: Int
        fileprivate let route: Share?
        fileprivate let ofRoute: Int

        /// Whether a client may take one of them: it must hold fewer than twice as many as are left.
        func admits(_ client: ClientName) -> Bool {
            (target?.clients[client] ?? 0) < 2 * ofTarget
                && (route?.clients[client] ?? 0) < 2 * ofRoute
        }
    }

    /// The room for deliveries of a route to a target; nil: there is none, whatever client they are of.
    func room(for target: String, route: String, _ bounds: DeliveryBounds) -> Room? {
        let share = targets[target]
        // Without a bound of its own a route is held to its target's.
        let most = bounds.ofRoute(route)
        let ofRoute = most < bounds.total ? routes[route] : nil
        // It takes the n-th further slot while held + n - 1 < 2 * (free - n + 1).
        let margin = 2 * (bounds.total - taken) - (share?.taken ?? 0)
        let left = most - (ofRoute?.taken ?? 0)
        guard margin > 0, left > 0 else { return nil }
        return Room(target: share, ofTarget: (margin + 2) / 3, route: ofRoute, ofRoute: left)
    }

    /// Takes a slot, if the threshold lets it.
    mutating func take(_ user: SlotUser, _ bounds: DeliveryBounds) -> Bool {
        guard room(for: user.target, route: user.route, bounds)?.admits(user.client) ?? false else {
            return false
        }
        hold(user)
        return true
    }

    /// Counts a slot that is taken, without asking for room.
    mutating func hold(_ user: SlotUser) {
        taken += 1
        targets[user.target, default: Share()].add(user.client)
        routes[user.route, default: Share()].add(user.client)
    }

    /// Gives back a slot that was taken.
    mutating func giveBack(_ user: SlotUser) {
        taken -= 1
        targets[user.target]?.remove(user.client)
        routes[user.route]?.remove(user.client)
    }
}

/// The slots with the line of those that wait for one.
struct SlotLine {
    private(set) var bounds: DeliveryBounds
    private var shares = SlotShares()
    private var line: [(number: Int, user: SlotUser)] = []
    private var next = 0

    /// Begins with all slots free.
    init(_ bounds: DeliveryBounds) { self.bounds = bounds }

    /// How many wait.
    var waiting: Int { line.count }

    /// Takes a slot at once; false: the threshold does not let it, and it may `lineUp`.
    mutating func take(_ user: SlotUser) -> Bool { shares.take(user, bounds) }

    /// Takes a place in the line; it gets the number that comes back when it is let in.
    mutating func lineUp(_ user: SlotUser) -> Int {
        next += 1
        line.append((next, user))
        return next
    }

    /// Leaves the line.
    ///
    /// - Returns: false where it has been let in, and has a slot to give back.
    mutating func leave(_ number: Int) -> Bool {
        guard let index = line.firstIndex(where: { $0.number == number }) else { return false }
        line.remove(at: index)
        return true
    }

    /// Gives a slot back.
    ///
    /// - Returns: the numbers of those that are let in by that; each has a slot now.
    mutating func giveBack(_ user: SlotUser) -> [Int] {
        shares.giveBack(user)
        return letIn()
    }

    /// Changes the bounds; taken slots stay taken.
    ///
    /// - Returns: the numbers of those that are let in by that.
    mutating func setBounds(_ bounds: DeliveryBounds) -> [Int] {
        self.bounds = bounds
        return letIn()
    }

    private mutating func letIn() -> [Int] {
        // One pass is enough: each that is let in leaves less to those before it.
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
