// How a row is measured: rows take turns over the rounds, each between two readings of the
// servers' processor time.
//
// The clock runs only from the first byte of a row's work to its last answer. Checking the result
// and cleaning up come after it, so that they are neither timed nor counted.

import Foundation

/// What a row has after its clock has stopped.
struct Outcome {
    /// Seconds of each request, where single requests matter.
    var latencies: [Double] = []
    /// Requests made, where their number is not fixed.
    var requests = 0
    /// Processor seconds of a program that ran for this row and has ended; nil: there was none.
    var programSeconds: Double?
    /// Processor seconds that the benchmark spent on a server's work (making a file durable).
    var addedSeconds = 0.0
    /// Checks the result; it is neither timed nor counted.
    var check: () throws -> Void = {}
}

/// The program behind nginx whose processor time and memory are a row's own.
enum Behind {
    /// None, or a program of the row itself.
    case nothing
    case gateway
    case tusd
}

/// One line of a table: a way to take the same work.
struct Row {
    /// What it is called in tables, unique in its section.
    let name: String
    /// The program that takes the work from nginx.
    let behind: Behind
    /// Whether its uploads are told by 104, for which nginx needs the module.
    var isTold = false
    /// Makes what the work needs, neither timed nor counted; `Int` is the round.
    var prepare: (Int) throws -> Void = { _ in }
    /// Does the work once; `Int` is the round.
    let run: (Int) throws -> Outcome
}

/// One measurement of one row.
struct Sample {
    /// Seconds from the first byte to the last answer.
    let seconds: Double
    /// Processor seconds of nginx and the program behind it, and of what the row did in their place.
    let serverSeconds: Double
    /// Processor seconds of the program behind nginx alone; nil for a row without one.
    let ownSeconds: Double?
    /// Processor seconds of the sink.
    let sinkSeconds: Double
    /// Peak resident memory of the program behind nginx in bytes; nil for a row without one.
    let peak: Int64?
    /// What other processes used of the machine.
    let others: OthersUse
    let outcome: Outcome

    /// Processor seconds of whoever delivers: the row's program, or spoolgate.
    var delivererSeconds: Double { outcome.programSeconds ?? ownSeconds ?? 0 }
}

/// The figures of one row over the rounds, by column key.
struct RowResult {
    let name: String
    /// One dictionary for each round.
    var rounds: [[String: Double]] = []
    /// What other processes used in each round.
    var others: [OthersUse] = []
    /// Why the row did not work; nil: it did.
    var failure: (any Error)?
    /// What is missing for the row, which therefore did not run; nil: nothing.
    var lacks: String?

    /// Whether it runs, or goes on.
    var isMeasured: Bool { failure == nil && lacks == nil }

    /// The values of one column.
    func values(_ key: String) -> [Double] {
        rounds.compactMap { $0[key] }
    }

    /// Drops all rounds but those.
    mutating func keep(_ kept: [Int]) {
        guard isMeasured else { return }
        (rounds, others) = (kept.map { rounds[$0] }, kept.map { others[$0] })
    }
}

/// Measures `rows` on `stage`, taking turns, each round beginning one row further, until as many rounds
/// were quiet as the options ask for.
///
/// Disturbed rounds are measured again, at most three times as many rounds as asked for in all. The result
/// has the quiet rounds alone, or all of them where none was. A row that fails is not run again.
///
/// - Parameters:
///   - rows: the rows; those that need spoolgate are left out with `--peers-only`.
///   - stage: what they run on.
///   - section: whose rows they are.
///   - title: the section's.
///   - columns: of the section's table.
///   - options: the rounds, and whether only peers run.
///   - memory: bytes of page cache that a row fills.
///   - figures: turns one sample into values by column key.
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

/// The value below which `share` (0...1) of `values` lie; `values` must not be empty.
///
/// The median of an even number of values is the mean of the two in the middle.
func percentile(_ values: [Double], _ share: Double) -> Double {
    let sorted = values.sorted()
    if share == 0.5 && sorted.count.isMultiple(of: 2) {
        return (sorted[sorted.count / 2 - 1] + sorted[sorted.count / 2]) / 2
    }
    return sorted[min(Int(Double(sorted.count) * share), sorted.count - 1)]
}

/// `value` with a fixed number of decimals.
func decimal(_ value: Double, _ places: Int) -> String {
    String(format: "%.\(places)f", value)
}
