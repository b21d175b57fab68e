// A round's environment: one web server, one upstream, and clients with a thread each.
//
// Invariant: all clients have ended at the end of a round.

import Foundation
import SpoolgateTestSupport
import Testing

struct KillTally {
    var rounds = 0
    var kills: [String: Int] = [:]
    var moments: [String: Int] = [:]
    /// Kills after the last client, because their moment did not occur.
    var idleKills = 0
    /// Kills while a worker had an upload's file open, and while one of its threads wrote.
    var killsWithFile = 0
    var killsInWrite = 0
    var roundsWithFile = 0
    var uploads = 0
    var retrievals = 0
    var reports = 0
    var responded = 0
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
            \(rounds) rounds, \(uploads) uploads: \(responded) answered, \(held) held and told so, \
            \(purged) purged and begun again; \(retrievals) offsets retrieved, \(reports) reported \
            meanwhile, \(replays) responses replayed, \(repeated) safe deliveries repeated
            kills: \(list(kills)); \(idleKills) with nothing under way; \(killsWithFile) while nginx had an \
            upload's file, \(killsInWrite) of them during a write (\(roundsWithFile) rounds)
            at: \(list(moments))
            """
    }
}

final class KillWorld {
    let moments = Moments()
    let upstream: LoopbackOrigin
    let sandbox: Sandbox
    var tally: KillTally
    /// The build of every second daemon; nil: the one under test.
    private var other: String?

    /// The number of rounds that one world may run.
    ///
    /// A killed worker of nginx leaves its connections counted in the zone of `limit_conn`, which allows a client 2048,
    /// until nginx restarts.
    private static let rounds = 50

    init(
        _ routeSettings: [String] = [],
        and other: String? = nil,
        after tally: KillTally = KillTally()
    ) throws {
        self.tally = tally
        self.other = other
        upstream = try LoopbackOrigin(passing: moments)
        sandbox = try Sandbox(
            upstream: upstream.base,
            routeSettings: routeSettings,
            // The gateway also reports offsets during slow deliveries and slow content.
            extra: ["interim: {heartbeat: 1s}"],
            front: .nginxWithModule
        )
    }

    /// Runs rounds until the first fault; `command` and the seed repeat a round.
    static func play(
        _ seeds: Range<UInt64>,
        _ routeSettings: [String],
        again command: String,
        and other: String? = nil,
        _ plan: (UInt64) -> KillPlan
    ) throws -> KillTally {
        var world = try KillWorld(routeSettings, and: other)
        for seed in seeds {
            if world.tally.rounds > 0, world.tally.rounds.isMultiple(of: rounds) {
                world = try KillWorld(routeSettings, and: other, after: world.tally)
            }
            let plan = plan(seed)
            let faults: [String]
            do { faults = try world.run(plan) } catch { faults = ["\(error)"] }
            guard !faults.isEmpty else { continue }
            Issue.record(
                """
                round \(seed): \(faults.joined(separator: "\n  "))
                kills: \(plan.kills)
                again: \(command) ROUNDS=1 SEED=\(seed)
                \(world.sandbox.log.suffix(4_000))
                """
            )
            // A fault in the spool would appear in all later rounds.
            break
        }
        return world.tally
    }

    func run(_ plan: KillPlan) throws -> [String] {
        let logStart = sandbox.log.count
        let killsWithFile = tally.killsWithFile
        var purges: [Command] = []
        let clients = try carry(plan.tasks) {
            for kill in plan.kills { purges += try carryOut(kill) }
        }
        count(plan, clients)
        if tally.killsWithFile > killsWithFile { tally.roundsWithFile += 1 }
        return try KillOracle(
            world: self,
            clients: clients,
            purges: purges,
            attempts: 1 + plan.kills.reduce(0) { $0 + $1.starts }
        ).faults(log: String(sandbox.log.dropFirst(logStart)))
    }

    /// Runs uploads to their end during `trouble`, and returns the clients.
    func carry(
        _ tasks: [ResumingClient.Task],
        _ trouble: () throws -> Void
    ) throws -> [ResumingClient] {
        let deadline = Date(timeIntervalSinceNow: 60)
        let clients = tasks.map { ResumingClient($0, port: sandbox.port, moments) }
        moments.begin(clients: clients.count)
        for client in clients {
            let moments = moments
            Thread.detachNewThread {
                client.run(until: deadline)
                moments.clientEnded()
            }
        }
        // Clients must be released before an error is thrown.
        let outcome = Result { try trouble() }
        moments.goOn()
        moments.waitForClients()
        try outcome.get()
        return clients
    }

    private func carryOut(_ kill: Kill) throws -> [Command] {
        moments.lookOut(for: kill.moment, ordinal: kill.ordinal, holds: kill.holds)
        if moments.waitForIt() {
            tally.moments[kill.moment.rawValue, default: 0] += 1
        } else {
            tally.idleKills += 1
        }
        defer { moments.goOn() }
        tally.kills[kill.manner.rawValue, default: 0] += 1
        usleep(kill.delay)
        if kill.aim != .none { take(kill.aim) }
        if let next = other, kill.starts > 0 { (sandbox.build, other) = (next, sandbox.build) }
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
        case .worker:
            sandbox.killWorkers()
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

    /// Waits up to a second for this activity of nginx, and counts it.
    private func take(_ aim: Kill.Aim) {
        let deadline = Date(timeIntervalSinceNow: 1)
        var writing: SpoolWriting
        repeat {
            writing = SpoolWriting(of: sandbox)
            if aim == .write ? writing.isInWrite : writing.hasFile { break }
        } while Date() < deadline
        if writing.hasFile { tally.killsWithFile += 1 }
        if writing.hasFile, writing.isInWrite { tally.killsInWrite += 1 }
    }

    private func count(_ plan: KillPlan, _ clients: [ResumingClient]) {
        tally.rounds += 1
        tally.uploads += clients.count
        for client in clients {
            tally.retrievals += client.retrievals
            tally.reports += client.reports
            switch client.creations.last?.end {
            case .responded: tally.responded += 1
            case .unknown: tally.held += 1
            default: break
            }
            tally.purged += client.creations.count { $0.end == .gone }
        }
    }
}

/// `spoolgate purge` without `--force`, in the background.
private struct BackgroundPurge {
    private let daemon: Daemon
    private let log: URL

    init(_ sandbox: Sandbox) throws {
        log = sandbox.directory.appending(path: "purge-\(UUID().uuidString).log")
        daemon = try Daemon(
            Sandbox.program,
            [
                "purge", "--force", "--older-than", "0s", "--json", "--config",
                sandbox.settingsFile,
            ],
            log: log
        )
    }

    func kill() { daemon.signal(SIGKILL) }

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
