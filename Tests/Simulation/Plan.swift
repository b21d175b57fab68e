// What a seed decides: the world and its steps.
//
// Each step has its own random number, so that leaving others out does not change it.

import SpoolgateTestSupport

struct ClientPlan: Sendable {
    var speech: Speech
    var isRepeatable: Bool
    /// It sends fields that it may not set.
    var isRude: Bool
    /// Its PUT has a precondition, so that it may not be repeated.
    var isConditional = false
    /// It sends `Repr-Digest`; that of each third upload is wrong.
    var sendsDigests = false
    /// It follows its protocol until its upload has ended, as our own client does.
    var isFaithful = false
    /// The route of its uploads, which has an upstream of its own.
    var route = 0
}

struct Step: Sendable {
    enum Actor: Hashable, Sendable {
        case client(Int)
        case upstream(Int)
        case authorizer, inspection, operator_, machine, time
    }

    var number: Int
    var actor: Actor
    var draw: UInt64
}

struct Plan: Sendable {
    var seed: UInt64
    var acceptsAtOnce: Bool
    var hasAuthorizer: Bool
    var hasInspection: Bool
    var checksTokens: Bool
    var hasHeartbeat: Bool
    var hasProgress: Bool
    var routes: Int
    /// The number of daemons that use the spool at the same time.
    var daemons = 1
    /// Whether two processes start at once on an empty directory.
    var hasTwinStart = false
    /// Whether the daemons are nodes that share the spool, as on CephFS.
    var sharesSpool = false
    /// Whether services have host names, which can be unknown.
    var namesServices = false
    /// Whether the web server names the owner of each request.
    var namesOwners = false
    /// Whether what is kept survives a power failure.
    var survivesPowerFailure = true
    /// Whether the application processes no second request with the same `Idempotency-Key`.
    var honoursKeys = false
    /// The route whose upstream is a directory, from which a program takes files.
    var directory: Int?
    var clients: [ClientPlan]
    var steps: [Step]

    init(seed: UInt64) {
        self.seed = seed
        var random = SplitMix(seed: seed)
        acceptsAtOnce = random.once(in: 3)
        hasAuthorizer = random.once(in: 2)
        hasInspection = random.once(in: 5)
        checksTokens = random.once(in: 2)
        hasHeartbeat = random.once(in: 3)
        hasProgress = random.once(in: 3)
        routes = random.once(in: 3) ? 2 : 1
        let count = 1 + Int(random.next() % 3)
        clients = (0..<count).map { _ in
            ClientPlan(
                speech: random.one(from: Speech.allCases),
                isRepeatable: random.once(in: 2),
                isRude: random.once(in: 3)
            )
        }
        var actors: [Step.Actor] = [.time, .machine, .operator_]
        for route in 0..<routes { actors += [.upstream(route), .upstream(route)] }
        for index in 0..<count { actors += [.client(index), .client(index), .client(index)] }
        if hasAuthorizer { actors += [.authorizer, .authorizer] }
        if hasInspection { actors.append(.inspection) }
        steps = (0..<(8 + Int(random.next() % 17))).map { number in
            Step(number: number, actor: random.one(from: actors), draw: random.next())
        }
        for index in clients.indices {
            clients[index].isConditional = random.once(in: 3)
            clients[index].route = random.next(routes)
            clients[index].sendsDigests = clients[index].speech != .tus && random.once(in: 3)
        }
        daemons = random.once(in: 4) ? 2 : 1
        namesOwners = random.once(in: 3)
        for index in clients.indices {
            clients[index].isFaithful = clients[index].speech != .ordinary && random.once(in: 4)
        }
        // What is accepted must survive it.
        survivesPowerFailure = acceptsAtOnce || !random.once(in: 4)
        honoursKeys = random.once(in: 4)
        hasTwinStart = daemons > 1 && random.once(in: 4)
        sharesSpool = daemons > 1 && survivesPowerFailure && random.once(in: 2)
        namesServices = random.once(in: 4)
        directory = random.once(in: 3) ? random.next(routes) : nil
    }

    /// The same world with these steps only.
    func keeping(_ numbers: [Int]) -> Plan {
        var plan = self
        plan.steps = steps.filter { numbers.contains($0.number) }
        return plan
    }
}
