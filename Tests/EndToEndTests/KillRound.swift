// One round: several uploads at a time, the daemon killed at some of their moments, then the question
// whether every promise was kept.
//
// Everything that is drawn comes from the round's seed; only the machine's timing does not.

import Foundation
import TestSupport

/// How the daemon ends, and what comes after it.
enum KillManner: String, CaseIterable {
    /// The next daemon starts when it is dead.
    case plain
    /// The next ones are killed while they start and recover.
    case inRecovery = "in-recovery"
    /// The next one starts, and recovers, while it is still alive.
    case overlapping
    /// `spoolgate purge` is at work.
    case besidePurge = "beside-purge"
    /// `spoolgate purge` is at work and is killed too.
    case withPurge = "with-purge"
}

/// One death of the daemon.
struct Kill {
    var moment: Moments.Moment
    /// Which time it is passed.
    var ordinal: Int
    /// Whether whoever passes it waits until the daemon is dead.
    var holds: Bool
    /// Microseconds after the moment.
    var delay: UInt32
    var manner: KillManner
    /// Microseconds that the manner needs.
    var pauses: [UInt32]
}

/// What is to happen in a round.
struct KillPlan {
    let seed: UInt64
    var tasks: [ResumingClient.Task]
    var kills: [Kill]

    init(seed: UInt64) {
        var generator = SeededGenerator(seed: seed)
        self.seed = seed
        tasks = (0..<4).map { Self.task($0, seed, &generator) }
        kills = (0..<Int.random(in: 1...3, using: &generator)).map { _ in Self.kill(&generator) }
    }

    private static func task(
        _ number: Int,
        _ seed: UInt64,
        _ generator: inout SeededGenerator
    ) -> ResumingClient.Task {
        let isCareful = generator.oneIn(3)
        // A whole upload below min-size has no resource and cannot be resumed.
        let size = Int.random(in: isCareful ? 0...400_000 : 131_072...1_500_000, using: &generator)
        // Beyond 256 KiB it is not stored but streamed.
        let answer = generator.oneIn(3) ? Int.random(in: 0...400_000, using: &generator) : 0
        var pace = generator.oneIn(2) ? Int.random(in: 0...3_000, using: &generator) : 0
        // Long enough for heartbeats.
        if generator.oneIn(25) { pace = 90_000 }
        return ResumingClient.Task(
            number: number,
            method: generator.oneIn(2) ? "PUT" : "POST",
            target: "/files/\(seed)-\(number)-*?answer=\(answer)&pace=\(pace)",
            content: generator.content(size),
            isCareful: isCareful,
            version: [8, 9, 10].randomElement(using: &generator) ?? 10,
            partialAppends: [0, 0, 1, 3].randomElement(using: &generator) ?? 0,
            breaksAfter: generator.oneIn(5) ? Int.random(in: 1...20, using: &generator) : 0
        )
    }

    private static func kill(_ generator: inout SeededGenerator) -> Kill {
        let moment = Moments.Moment.allCases.randomElement(using: &generator) ?? .creating
        let isFrequent = moment == .appending || moment == .deliveringContent
        return Kill(
            moment: moment,
            ordinal: Int.random(in: 1...(isFrequent ? 20 : 2), using: &generator),
            holds: generator.oneIn(2),
            delay: generator.oneIn(2) ? 0 : UInt32.random(in: 0...4_000, using: &generator),
            manner: generator.oneIn(2)
                ? .plain : KillManner.allCases.randomElement(using: &generator) ?? .plain,
            pauses: (0..<3).map { _ in UInt32.random(in: 0...30_000, using: &generator) }
        )
    }
}

/// What many rounds did.
struct KillTally {
    var rounds = 0
    var kills: [String: Int] = [:]
    var moments: [String: Int] = [:]
    /// Kills after the last client's end, because their moment did not come.
    var idleKills = 0
    var uploads = 0
    var retrievals = 0
    var answered = 0
    var held = 0
    var purged = 0
    var repeated = 0
    var replays = 0

    var text: String {
        func list(_ counts: [String: Int]) -> String {
            counts.sorted { $0.key < $1.key }.map { "\($0.key) \($0.value)" }.joined(
                separator: ", "
            )
        }
        return """
            \(rounds) rounds, \(uploads) uploads: \(answered) answered, \(held) held and told so, \
            \(purged) purged and begun again; \(retrievals) offsets retrieved, \(replays) responses \
            replayed, \(repeated) safe deliveries repeated
            kills: \(list(kills)); \(idleKills) with nothing under way
            at: \(list(moments))
            """
    }
}

/// Where the rounds take place: one web server and one backend for all of them.
final class KillWorld {
    let moments = Moments()
    let backend: RecordingBackend
    let sandbox: Sandbox
    var tally = KillTally()

    init() throws {
        backend = try RecordingBackend(moments)
        sandbox = try Sandbox(
            upstream: backend.url,
            // So that slow deliveries and slow content are told of, too.
            extra: ["interim: {progress-interval: 1s, progress-size: 64KiB, heartbeat: 1s}"],
            front: .nginxWithModule
        )
    }

    /// Runs a round; everything that went wrong.
    func run(_ plan: KillPlan) throws -> [String] {
        let logStart = sandbox.log.count
        let deadline = Date(timeIntervalSinceNow: 60)
        let clients = plan.tasks.map { ResumingClient($0, port: sandbox.port, moments) }
        moments.begin(clients: clients.count)
        for client in clients {
            let moments = moments
            Thread.detachNewThread {
                client.run(until: deadline)
                moments.clientEnded()
            }
        }
        var purges: [Command] = []
        // Whatever happens here, the clients must be let go on before it is told.
        let killing = Result {
            for kill in plan.kills { purges += try carryOut(kill) }
        }
        moments.goOn()
        moments.waitForClients()
        try killing.get()
        count(plan, clients)
        let oracle = KillOracle(world: self, clients: clients, purges: purges)
        return try oracle.faults(kills: plan.kills, log: String(sandbox.log.dropFirst(logStart)))
    }

    private func carryOut(_ kill: Kill) throws -> [Command] {
        if moments.wait(for: kill.moment, ordinal: kill.ordinal, holds: kill.holds) {
            tally.moments[kill.moment.rawValue, default: 0] += 1
        } else {
            tally.idleKills += 1
        }
        defer { moments.goOn() }
        tally.kills[kill.manner.rawValue, default: 0] += 1
        usleep(kill.delay)
        switch kill.manner {
        case .plain:
            try sandbox.crash()
        case .inRecovery:
            for pause in kill.pauses {
                sandbox.kill()
                try sandbox.launch()
                usleep(pause)
            }
            try sandbox.crash()
        case .overlapping:
            try sandbox.replace(livingOnFor: kill.pauses[0])
        case .besidePurge, .withPurge:
            let purge = try BackgroundPurge(sandbox)
            usleep(kill.pauses[0] / 4)
            sandbox.kill()
            if kill.manner == .withPurge { purge.kill() }
            try sandbox.startAgain()
            return [try purge.finish()]
        }
        return []
    }

    private func count(_ plan: KillPlan, _ clients: [ResumingClient]) {
        tally.rounds += 1
        tally.uploads += clients.count
        for client in clients {
            tally.retrievals += client.retrievals
            switch client.creations.last?.end {
            case .answered: tally.answered += 1
            case .unknown: tally.held += 1
            default: break
            }
            tally.purged += client.creations.count { $0.end == .gone }
        }
    }
}

/// `spoolgate purge` of everything that may be purged by itself, in the background.
private struct BackgroundPurge {
    private let daemon: Daemon
    private let log: URL

    init(_ sandbox: Sandbox) throws {
        log = sandbox.directory.appending(path: "purge-\(UUID().uuidString).log")
        daemon = try Daemon(
            Sandbox.program,
            [
                "purge", "--older-than", "0s", "--json", "--config",
                sandbox.directory.path() + "/spoolgate.yaml",
            ],
            log: log
        )
    }

    func kill() { daemon.signal(SIGKILL) }

    /// Its status and what it said.
    func finish() throws -> Command {
        let status = daemon.wait()
        defer { try? FileManager.default.removeItem(at: log) }
        return Command(
            status: status,
            output: try String(contentsOf: log, encoding: .utf8),
            errors: ""
        )
    }
}
