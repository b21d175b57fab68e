// The project's targets, each with the measured figure and whether it is met.
//
// A target of a section that did not run, or of a row that failed, is "not measured".

import Foundation

/// One target.
private struct Target {
    let sentence: String
    /// The figure in each round; empty: not measured.
    let values: [Double]
    let bound: Double
    /// Whether the figure must not be above `bound` (or else not below it).
    let isUpper: Bool
    let unit: String

    init(_ sentence: String, _ values: [Double], atMost bound: Double, _ unit: String = "x") {
        (self.sentence, self.values, self.bound) = (sentence, values, bound)
        (isUpper, self.unit) = (true, unit)
    }

    init(_ sentence: String, _ values: [Double], atLeast bound: Double) {
        (self.sentence, self.values, self.bound) = (sentence, values, bound)
        (isUpper, unit) = (false, "x")
    }

    /// The median; nil: not measured.
    var figure: Double? { values.isEmpty ? nil : percentile(values, 0.5) }

    /// Whether the median meets the bound, and whether all rounds agree.
    var verdict: String {
        guard let figure else { return "not measured" }
        let verdict = meets(figure) ? "met" : "missed"
        let agree = values.allSatisfy { meets($0) == meets(figure) }
        return agree ? verdict : verdict + ", not in every round"
    }

    /// The figure with its unit and its range.
    var text: String {
        guard let figure, let low = values.min(), let high = values.max() else { return "-" }
        let places = unit == "MiB" ? 1 : 2
        let middle = "\(decimal(figure, places)) \(unit)"
        guard values.count > 1 else { return middle }
        return "\(middle) (\(decimal(low, places))-\(decimal(high, places)))"
    }

    private func meets(_ value: Double) -> Bool {
        isUpper ? value <= bound : value >= bound
    }
}

/// Prints every target with its figure.
func printTargets(_ results: [SectionResult], _ options: Options) {
    let targets = targets(results)
    if options.json {
        for target in targets {
            let figure: Any = target.figure ?? NSNull()
            print(
                json([
                    "target": target.sentence, "figure": figure, "verdict": target.verdict,
                ])
            )
        }
        return
    }
    print(
        "\nTargets\(options.isQuick ? " (quick sizes, which are not those of the targets)" : "")\n"
    )
    let lines = targets.map { target in
        [target.sentence, target.text, target.verdict]
    }
    printTable(["", "measured", ""], lines)
    let disturbed = results.filter(\.isDisturbed).map(\.section.rawValue)
    if !disturbed.isEmpty {
        print("\n  Other processes disturbed \(disturbed.joined(separator: ", ")): run it again.")
    }
}

private func targets(_ results: [SectionResult]) -> [Target] {
    func figure(
        _ section: Section,
        _ row: String,
        _ key: String,
        over reference: String? = nil
    ) -> [Double] {
        results.first { $0.section == section }?.values(row, key, over: reference) ?? []
    }
    func receive(_ key: String, over reference: String) -> [Double] {
        figure(.oneRequest, OneRequest.receiveRow, key, over: reference)
    }
    func small(_ row: String) -> [Double] {
        figure(.smallUploads, row, "per_s", over: SmallUploads.proxyRow)
    }
    func slow(_ count: Int) -> [Double] {
        figure(.slowUploads, SlowUploads.rowName(count), "rss_mib")
    }
    let (dav, synced) = (OneRequest.davRow, OneRequest.syncedDavRow)
    let durable = "  the same against dav PUT made durable too"
    let peaks = [
        OneRequest.plainRow, OneRequest.uploadRow, OneRequest.dropRow, OneRequest.receiveRow,
    ].flatMap { figure(.oneRequest, $0, "peak_rss_mib") }
    let heads = figure(
        .offsetRetrieval,
        OffsetRetrieval.headRow,
        "per_s",
        over: OffsetRetrieval.returnRow
    )
    var targets = [
        Target(
            "large receive: processor at most 1.6 x dav PUT",
            receive("cpu_s_per_gib", over: dav),
            atMost: 1.6
        ),
        Target(durable, receive("cpu_s_per_gib", over: synced), atMost: 1.6),
        Target(
            "large receive: speed at least 0.8 x dav PUT",
            receive("mib_per_s", over: dav),
            atLeast: 0.8
        ),
        Target(durable, receive("mib_per_s", over: synced), atLeast: 0.8),
        Target(
            "large uploads: peak memory below 48 MiB",
            peaks.max().map { [$0] } ?? [],
            atMost: 48,
            "MiB"
        ),
        Target("HEAD: rate at least 1/6 of return 200", heads, atLeast: 1.0 / 6),
        Target(
            "1000 x 64 KiB plain: rate at least 0.5 x unbuffered proxy",
            small(SmallUploads.plainRow),
            atLeast: 0.5
        ),
        Target(
            "1000 x 64 KiB as upload resources: the same",
            small(SmallUploads.uploadRow),
            atLeast: 0.5
        ),
        Target("2000 slow uploads within 80 MiB", slow(2_000), atMost: 80, "MiB"),
        Target("9000 slow uploads within 300 MiB", slow(9_000), atMost: 300, "MiB"),
    ]
    for (section, scheme) in [(Section.delivery, "http"), (.secureDelivery, "https")] {
        for peer in [Deliveries.uploadRow, Deliveries.dataRow] {
            func alone(_ key: String) -> [Double] {
                figure(section, Deliveries.aloneRow, key, over: peer)
            }
            targets += [
                Target(
                    "delivery over \(scheme): no slower than \(peer)",
                    alone("mib_per_s"),
                    atLeast: 1
                ),
                Target("  and with no more processor", alone("own_cpu_s_per_gib"), atMost: 1),
            ]
        }
    }
    for (section, scheme) in [(Section.smallDeliveries, "http"), (.smallSecureDeliveries, "https")]
    {
        targets.append(
            Target(
                "64 KiB over \(scheme), 99 of 100 below 20 ms: no delayed acknowledgement",
                figure(section, SmallDeliveries.wholeRow, "p99_ms"),
                atMost: 20,
                "ms"
            )
        )
    }
    return targets
}
