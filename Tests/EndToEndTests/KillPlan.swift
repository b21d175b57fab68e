// What is to happen in one round: several uploads at a time, and the daemon killed at some of their
// moments.
//
// Everything that is drawn comes from the round's seed; only the machine's timing does not.

import Foundation
import SpoolgateTestSupport

/// What is killed, and what comes after it.
enum KillManner: String {
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
    /// The daemon lives: nginx's worker dies, with what it has on its way.
    case worker

    /// How the daemon ends.
    static let ofDaemon: [KillManner] = [
        .plain, .inRecovery, .overlapping, .besidePurge, .withPurge,
    ]
}

/// The process that a run kills.
enum KillVictim: String, CaseIterable {
    case gateway, worker

    /// The victims to test: all, unless the environment names one (`make crash-test VICTIM=worker`).
    static let asked: [KillVictim] = {
        let name = ProcessInfo.processInfo.environment["SPOOLGATE_CRASH_VICTIM"] ?? ""
        return name.isEmpty ? allCases : allCases.filter { $0.rawValue == name }
    }()

    /// Whether to test the victim.
    var isAsked: Bool { Self.asked.contains(self) }
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
    /// The activity of nginx that the kill waits for.
    var aim = Aim.none

    /// nginx's activity at the kill.
    enum Aim {
        /// Anything.
        case none
        /// A worker has the file of an upload.
        case file
        /// A thread of a worker writes.
        case write
    }

    /// Daemons that are started after it, each of which serves from its start on.
    var starts: Int {
        switch manner {
        case .inRecovery: 1 + pauses.count
        case .worker: 0
        case .plain, .overlapping, .besidePurge, .withPurge: 1
        }
    }
}

/// What is to happen in a round.
struct KillPlan {
    let seed: UInt64
    var tasks: [ResumingClient.Task]
    var kills: [Kill]

    /// The rounds to run: the usual number of them, always the same, unless the environment asks for
    /// others; those are random where it names no seed.
    static func seeds(usually count: Int) -> Range<UInt64> {
        let environment = ProcessInfo.processInfo.environment
        let asked = environment["SPOOLGATE_CRASH_ROUNDS"].flatMap { UInt64($0) }
        let first =
            environment["SPOOLGATE_CRASH_SEED"].flatMap { UInt64($0) }
            ?? (asked == nil ? 1 : UInt64.random(in: 0...999_999))
        return first..<first + (asked ?? UInt64(count))
    }

    /// Draws a round; `manner` is that of each of its kills in place of the ones drawn.
    init(seed: UInt64, manner: KillManner? = nil) {
        var generator = SplitMix(seed: seed)
        self.seed = seed
        tasks = (0..<4).map { Self.task($0, seed, &generator) }
        kills = (0..<Int.random(in: 1...3, using: &generator)).map { _ in Self.kill(&generator) }
        if let manner { for index in kills.indices { kills[index].manner = manner } }
    }

    /// Draws a round of larger uploads, in which each kill waits until nginx writes into the spool.
    init(seed: UInt64, during victim: KillVictim) {
        self.init(seed: seed, manner: victim == .worker ? .worker : nil)
        var generator = SplitMix(seed: ~seed)
        // The first report of an offset takes a second.
        let isSlow = generator.once(in: 2)
        for index in tasks.indices {
            tasks[index].content = generator.content(
                Int.random(in: (isSlow ? 8_000_000 : 2_000_000)...12_000_000, using: &generator)
            )
            tasks[index].pace = UInt32.random(
                in: isSlow ? 9_000...13_000 : 0...300,
                using: &generator
            )
            tasks[index].breaksAfter = 0
            if isSlow { tasks[index].partialAppends = 0 }
        }
        for index in kills.indices {
            kills[index].moment = isSlow && index == 0 ? .reported : .appending
            kills[index].ordinal = Int.random(
                in: 1...(kills[index].moment == .reported ? 4 : 100),
                using: &generator
            )
            kills[index].holds = false
            kills[index].aim = generator.once(in: 2) ? .write : .file
        }
    }

    private static func task(
        _ number: Int,
        _ seed: UInt64,
        _ generator: inout SplitMix
    ) -> ResumingClient.Task {
        let isCareful = generator.once(in: 3)
        // A whole upload below min-size has no resource and cannot be resumed.
        let size = Int.random(in: isCareful ? 0...400_000 : 131_072...1_500_000, using: &generator)
        // Beyond 256 KiB it is not stored but streamed.
        let answer = generator.once(in: 3) ? Int.random(in: 0...400_000, using: &generator) : 0
        var pace = generator.once(in: 2) ? Int.random(in: 0...3_000, using: &generator) : 0
        // Long enough for heartbeats.
        if generator.once(in: 25) { pace = 90_000 }
        return ResumingClient.Task(
            number: number,
            method: generator.once(in: 2) ? "PUT" : "POST",
            target: "/files/\(seed)-\(number)-*?answer=\(answer)&pace=\(pace)",
            content: generator.content(size),
            isCareful: isCareful,
            version: [8, 9, 10].randomElement(using: &generator) ?? 10,
            partialAppends: [0, 0, 1, 3].randomElement(using: &generator) ?? 0,
            breaksAfter: generator.once(in: 5) ? Int.random(in: 1...20, using: &generator) : 0
        )
    }

    private static func kill(_ generator: inout SplitMix) -> Kill {
        let moment = Moments.Moment.drawn.randomElement(using: &generator) ?? .creating
        let isFrequent = moment == .appending || moment == .deliveringContent
        return Kill(
            moment: moment,
            ordinal: Int.random(in: 1...(isFrequent ? 20 : 2), using: &generator),
            holds: generator.once(in: 2),
            delay: generator.once(in: 2) ? 0 : UInt32.random(in: 0...4_000, using: &generator),
            manner: generator.once(in: 2)
                ? .plain : KillManner.ofDaemon.randomElement(using: &generator) ?? .plain,
            pauses: (0..<3).map { _ in UInt32.random(in: 0...30_000, using: &generator) }
        )
    }
}
