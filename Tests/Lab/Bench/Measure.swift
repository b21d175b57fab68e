// The measurement of rows, which take turns in each round.
//
// The clock runs from the first byte of a row's work until its last response; the servers' processor time is read
// before and after. Checks and cleanup are neither timed nor counted.

import Foundation

struct Outcome {
    /// The seconds of each request, if single requests matter.
    var latencies: [Double] = []
    /// The number of requests, if it is not fixed.
    var requests = 0
    /// Processor seconds of the program run for this row, if any.
    var programSeconds: Double?
    /// Processor seconds that the benchmark spent for a server (making a file durable).
    var addedSeconds = 0.0
    /// Checks the result; neither timed nor counted.
    var check: () throws -> Void = {}
}

/// The program that nginx passes requests to; its processor time and memory belong to the row.
enum Behind {
    /// No program, or the row's own.
    case nothing
    case gateway
    case tusd
}

/// One line of a table: one way to do the section's work.
struct Row {
    /// The name in tables, unique in its section.
    let name: String
    let behind: Behind
    /// Whether its uploads are told by 104, which needs nginx's module.
    var isReported = false
    /// Preparation, neither timed nor counted; `Int` is the round.
    var prepare: (Int) throws -> Void = { _ in }
    let run: (Int) throws -> Outcome
}

struct Sample {
    /// Seconds from the first byte until the last response.
    let seconds: Double
    /// Processor seconds of nginx, the program behind it, and the benchmark on their behalf.
    let serverSeconds: Double
    /// Processor seconds of the program behind nginx, if any.
    let ownSeconds: Double?
    let sinkSeconds: Double
    /// Peak resident bytes of the program behind nginx, if any.
    let peak: Int64?
    let others: OthersUse
    let outcome: Outcome

    /// Processor seconds of the delivering process: the row's program, or spoolgate.
    var delivererSeconds: Double { outcome.programSeconds ?? ownSeconds ?? 0 }
}

struct RowResult {
    let name: String
    var rounds: [[String: Double]] = []
    var others: [OthersUse] = []
    /// The error that ended the row, if any.
    var failure: (any Error)?
    /// The missing prerequisite, if any.
    var lacks: String?

    var isMeasured: Bool { failure == nil && lacks == nil }

    func values(_ key: String) -> [Double] {
        rounds.compactMap { $0[key] }
    }

    mutating func keep(_ kept: [Int]) {
        guard isMeasured else { return }
        (rounds, others) = (kept.map { rounds[$0] }, kept.map { others[$0] })
    }
}

/// Measures `rows` on `stage` until the requested number of rounds were quiet.
///
/// The rows take turns, and each round begins one row further; `--peers-only` omits rows that need spoolgate. Disturbed
/// rounds are repeated, up to three times the requested number in all. The result contains only the quiet rounds, or
/// all if none was quiet. A row that fails is not run again.
///
/// `memory` is the page cache in bytes that a row fills; `figures` converts a sample to values by column key.
func takeTurns(
    _ rows: [Row],
    on stage: Stage,
    section: Section,
    title: String,
    columns: [Column],
    options: Options,
    memory: Int64,
    figures: (Sample) -> [String: Double]
) -> SectionResult {
    let rows = rows.filter { $0.behind != .gateway || !options.peersOnly }
    var results = rows.map { RowResult(name: $0.name, lacks: stage.lacks(for: $0)) }
    var quiet: [Int] = []
    var round = 0
    while round < options.mostRounds, quiet.count < options.rounds,
        results.contains(where: \.isMeasured)
    {
        for position in rows.indices {
            let index = (position + round) % rows.count
            guard results[index].isMeasured else { continue }
            do {
                let sample = try measure(rows[index], round: round, on: stage, memory: memory)
                waitIfEnding()
                var values = figures(sample)
                values["others_percent"] = sample.others.percent
                results[index].rounds.append(values)
                results[index].others.append(sample.others)
                note(
                    "\(section.rawValue) round \(round + 1): \(rows[index].name): "
                        + "\(decimal(sample.seconds, 2)) s, "
                        + "\(decimal(sample.serverSeconds, 2)) s of processor"
                )
            } catch {
                waitIfEnding()
                results[index].failure = error
                note("\(section.rawValue): \(rows[index].name) FAILED: \(error)")
                let findings = stage.findings
                if !findings.isEmpty { note(findings) }
            }
        }
        let others = results.filter(\.isMeasured).map { $0.others[round] }
        if OthersUse.isQuiet(others) {
            quiet.append(round)
        } else {
            let text = OthersUse.sum(others).text
            note("\(section.rawValue) round \(round + 1): others disturbed, by \(text)")
        }
        round += 1
    }
    if !quiet.isEmpty { for index in results.indices { results[index].keep(quiet) } }
    return SectionResult(
        section: section,
        title: title,
        columns: columns,
        rows: results,
        measuredRounds: round,
        quietRounds: quiet.count
    )
}

private func measure(
    _ row: Row,
    round: Int,
    on stage: Stage,
    memory: Int64
) throws -> Sample {
    try row.prepare(round)
    stage.settle()
    try touchMemory(memory, in: stage.work)
    let pid = stage.pid(row.behind)
    if let pid { ProcessStatus.resetPeak(pid) }
    let server = stage.serverSeconds
    let own = pid.map(processorSeconds) ?? 0
    let sink = processorSeconds(stage.sinkPID)
    let load = MachineLoad(stage)
    let start = now()
    let outcome = try row.run(round)
    let seconds = now() - start
    let others = MachineLoad(stage).use(since: load)
    stage.settle()
    let sample = Sample(
        seconds: seconds,
        serverSeconds: stage.serverSeconds - server + outcome.addedSeconds,
        ownSeconds: pid.map { processorSeconds($0) - own },
        sinkSeconds: processorSeconds(stage.sinkPID) - sink,
        peak: pid.map { ProcessStatus($0).peak },
        others: others,
        outcome: outcome
    )
    try outcome.check()
    return sample
}

/// The value that `share` (0...1) of the nonempty `values` are below; the median of an even number is the mean of the
/// middle two.
func percentile(_ values: [Double], _ share: Double) -> Double {
    let sorted = values.sorted()
    if share == 0.5 && sorted.count.isMultiple(of: 2) {
        return (sorted[sorted.count / 2 - 1] + sorted[sorted.count / 2]) / 2
    }
    return sorted[min(Int(Double(sorted.count) * share), sorted.count - 1)]
}

func decimal(_ value: Double, _ places: Int) -> String {
    String(format: "%.\(places)f", value)
}
