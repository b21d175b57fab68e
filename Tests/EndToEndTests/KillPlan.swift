// A round's plan: several uploads at a time, and the daemon killed at some of their moments.
//
// All random choices come from the round's seed.

import Foundation
import SpoolgateTestSupport

enum KillManner: String {
    /// The next daemon starts after the crash.
    case plain
    /// The next daemons are killed while they recover.
    case inRecovery = "in-recovery"
    /// The next daemon recovers while the old one is still alive.
    case overlapping
    /// The daemon is killed during `spoolgate purge`.
    case besidePurge = "beside-purge"
    /// `spoolgate purge` runs and is killed as well.
    case withPurge = "with-purge"
    /// An nginx worker is killed with its requests; the daemon lives.
    case worker

    static let ofDaemon: [KillManner] = [
        .plain, .inRecovery, .overlapping, .besidePurge, .withPurge,
    ]
}

enum KillVictim: String, CaseIterable {
    case gateway, worker

    /// All victims, unless the environment names one (`make crash-test VICTIM=worker`).
    static let asked: [KillVictim] = {
        let name = ProcessInfo.processInfo.environment["SPOOLGATE_CRASH_VICTIM"] ?? ""
        return name.isEmpty ? allCases : allCases.filter { $0.rawValue == name }
    }()

    var isRequested: Bool { Self.asked.contains(self) }
}

struct Kill {
    var moment: Moments.Moment
    /// The occurrence of the moment.
    var ordinal: Int
    /// Whether the moment's thread waits until the daemon is dead.
    var holds: Bool
    /// Microseconds after the moment.
    var delay: UInt32
    var manner: KillManner
    var pauses: [UInt32]
    var aim = Aim.none

    enum Aim {
        case none
        /// A worker has an upload's file open.
        case file
        /// A worker's thread writes.
        case write
    }

    /// The number of daemons started after it.
    var starts: Int {
        switch manner {
        case .inRecovery: 1 + pauses.count
        case .worker: 0
        case .plain, .overlapping, .besidePurge, .withPurge: 1
        }
    }
}

struct KillPlan {
    let seed: UInt64
    var tasks: [ResumingClient.Task]
    var kills: [Kill]

    /// By default `count` fixed rounds; a number in the environment means random seeds, unless it also sets the first.
    static func seeds(usually count: Int) -> Range<UInt64> {
        let environment = ProcessInfo.processInfo.environment
        let asked = environment["SPOOLGATE_CRASH_ROUNDS"].flatMap { UInt64($0) }
        let first =
            environment["SPOOLGATE_CRASH_SEED"].flatMap { UInt64($0) }
            ?? (asked == nil ? 1 : UInt64.random(in: 0...999_999))
        return first..<first + (asked ?? UInt64(count))
    }

    /// Draws a round; `manner` is that of all kills, if given.
    init(seed: UInt64, manner: KillManner? = nil) {
        var generator = SplitMix(seed: seed)
        self.seed = seed
        tasks = (0..<4).map { Self.task($0, seed, &generator) }
        kills = (0..<Int.random(in: 1...3, using: &generator)).map { _ in Self.kill(&generator) }
        if let manner { for index in kills.indices { kills[index].manner = manner } }
    }

    /// Draws a round of larger uploads, whose kills wait until nginx writes into the spool.
    init(seed: UInt64, during victim: KillVictim) {
        self.init(seed: seed, manner: victim == .worker ? .worker : nil)
        var generator = SplitMix(seed: ~seed)
        // An upload must outlast the second before the first report of an offset.
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
        // A complete upload below `min-size` cannot be resumed.
        let size = Int.random(in: isCareful ? 0...400_000 : 131_072...1_500_000, using: &generator)
        // A response above 256 KiB is streamed instead of stored.
        let response = generator.once(in: 3) ? Int.random(in: 0...400_000, using: &generator) : 0
        var pace = generator.once(in: 2) ? Int.random(in: 0...3_000, using: &generator) : 0
        // Long enough for heartbeats.
        if generator.once(in: 25) { pace = 90_000 }
        return ResumingClient.Task(
            number: number,
            method: generator.once(in: 2) ? "PUT" : "POST",
            target: "/files/\(seed)-\(number)-*?answer=\(response)&pace=\(pace)",
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
