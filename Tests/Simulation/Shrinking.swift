// Reduces a failing plan to few steps, and tells its story.

/// The result of one world.
struct Outcome {
    var plan: Plan
    var complaints: [String]
    var story: [String]

    static func run(_ plan: Plan) throws -> Outcome {
        let before = Leftovers()
        let (ledger, root): (Ledger, String)
        do { (ledger, root) = try played(plan) } catch {
            let complaint = "law 5: a daemon or a command fails: \(error)"
            return Outcome(plan: plan, complaints: [complaint], story: [])
        }
        if !ledger.hasComplaints {
            for rest in before.left(of: root) { ledger.complain(6, "\(rest) is left") }
        }
        return Outcome(plan: plan, complaints: ledger.complaints, story: ledger.story)
    }

    /// The world itself has ended on return.
    private static func played(_ plan: Plan) throws -> (Ledger, root: String) {
        let world = try World(plan)
        _ = try world.run()
        return (world.ledger, world.machine.root)
    }

    /// The broken law, without the numbers of uploads.
    var kind: String? { complaints.first.map { String($0.prefix(5)) } }

    /// How to see it again.
    var replay: String {
        "make simulate \(WebServer.shared == nil ? "" : "SOCKETS=1 ")SEED=\(plan.seed) KEEP=\(plan.steps.map { "\($0.number)" }.joined(separator: ","))"
    }

    var text: String {
        ([replay] + complaints.prefix(3) + story.map { "    \($0)" }).joined(separator: "\n")
    }

    /// Leaves out whole actors, then steps, as long as the same law is broken.
    func shrunk() throws -> Outcome {
        var best = self
        func attempt(_ numbers: [Int]) throws -> Bool {
            // Threads may take turns in another order.
            for _ in 0..<2 {
                let outcome = try Outcome.run(plan.keeping(numbers))
                if outcome.kind == kind {
                    best = outcome
                    return true
                }
            }
            return false
        }
        for actor in Set(plan.steps.map(\.actor)) {
            let rest = best.plan.steps.filter { $0.actor != actor }
            if rest.count < best.plan.steps.count { _ = try attempt(rest.map(\.number)) }
        }
        var size = max(1, best.plan.steps.count / 2)
        while size >= 1 {
            var start = 0
            while start < best.plan.steps.count {
                var numbers = best.plan.steps.map(\.number)
                numbers.removeSubrange(start..<min(start + size, numbers.count))
                if try !attempt(numbers) { start += size }
            }
            size = size == 1 ? 0 : size / 2
        }
        return best
    }
}
