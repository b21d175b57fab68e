// The measurement of rows: they take turns in each round, and the servers' processor time is read before and after
// each.
//
// The clock runs from the first byte of a row's work until its last response. Checks and cleanup follow it, and are
// neither timed nor counted.

import Foundation

struct Outcome {
    /// The seconds of each request, if single requests matter.
    var latencies: [Double] = []
    /// The number of requests, if it is not fixed.
    var requests = 0
    /// Processor seconds of a program that was run for this row; nil: no program was run.
    var programSeconds: Double?
    /// Processor seconds that the benchmark spent on a server's work (making a file durable).
    var addedSeconds = 0.0
    /// Checks the result; neither timed nor counted.
    var check: () throws -> Void = {}
}

/// The program that nginx passes requests to, whose processor time and memory belong to the row.
enum Behind {
    /// No program, or one of the row itself.
    case nothing
    case gateway
    case tusd
}

/// One line of a table: one way to do the section's work.
struct Row {
    /// Its name in tables, unique in its section.
    let name: String
    let behind: Behind
    /// Whether its uploads are told by 104, which needs nginx's module.
    var isTold = false
    /// Prepares the work, neither timed nor counted; `Int` is the round.
    var prepare: (Int) throws -> Void = { _ in }
    let run: (Int) throws -> Outcome
}

struct Sample {
    /// Seconds from the first byte until the last response.
    let seconds: Double
    /// Processor seconds of nginx, of the program behind nginx, and of the benchmark on their behalf.
    let serverSeconds: Double
    /// Processor seconds of the program behind nginx; nil for a row without one.
    let ownSeconds: Double?
    let sinkSeconds: Double
    /// Peak resident memory of the program behind nginx, in bytes; nil for a row without one.
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
    /// The error that ended the row; nil: it worked.
    var failure: (any Error)?
    /// The prerequisite whose absence kept the row from running; nil: nothing is missing.
    var lacks: String?

    var isMeasured: Bool { failure == nil && lacks == nil }

    func values(_ key: String) -> [Double] {
        rounds.compactMap { $0[key] }
    }

    /// Keeps only the rounds with these indices.
    mutating func keep(_ kept: [Int]) {
        guard isMeasured else { return }
        (rounds, others) = (kept.map { rounds[$0] }, kept.map { others[$0] })
    }
}

/// Measures `rows` on `stage` until the requested number of rounds were quiet.
///
/// The rows take turns, and each round begins one row further. Disturbed rounds are repeated, up to three times the
/// requested number of rounds in all. The result contains only the quiet rounds, or all rounds if none was quiet. A
/// row that fails is not run again.
///
/// - Parameters:
///   - rows: the rows; those that need spoolgate are omitted with `--peers-only`.
///   - stage: the stage that they run on.
///   - section: the section of the rows.
///   - title: the title of the section.
///   - columns: the columns of the section's table.
///   - options: the number of rounds, and whether only peers run.
///   - memory: the bytes of page cache that a row fills.
///   - figures: converts a sample to values by column key.
/// - Returns: the section's results.
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

/// The value that `share` (0...1) of the nonempty `values` are below.
///
/// The median of an even number of values is the mean of the middle two.
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
