// The project's targets, each with the measured figure and whether it is met.
//
// A target of a section that did not run, or of a row that failed, is "not measured".

import Glibc

/// One target.
private struct Target {
    let sentence: String
    /// The figure in each round; empty: not measured.
    let values: [Double]
    let bound: Double
    /// Whether the figure must not be above `bound` (or else not below it).
    let isUpper: Bool
    let unit: String

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
            let figure = target.figure.map { "\($0)" } ?? "null"
            print(
                "{\"target\":\(quoted(target.sentence)),\"figure\":\(figure),"
                    + "\"verdict\":\(quoted(target.verdict))}"
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

private func atMost(
    _ bound: Double,
    _ unit: String,
    _ sentence: String,
    _ values: [Double]
) -> Target {
    Target(sentence: sentence, values: values, bound: bound, isUpper: true, unit: unit)
}

private func atLeast(_ bound: Double, _ sentence: String, _ values: [Double]) -> Target {
    Target(sentence: sentence, values: values, bound: bound, isUpper: false, unit: "x")
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
    let dav = OneRequest.davRow
    let synced = OneRequest.syncedDavRow
    let receive = OneRequest.receiveRow
    let peaks = [OneRequest.plainRow, OneRequest.uploadRow, OneRequest.dropRow, receive]
        .flatMap { figure(.oneRequest, $0, "peak_rss_mib") }
    return [
        atMost(
            1.6,
            "x",
            "large receive: processor at most 1.6 x dav PUT",
            figure(.oneRequest, receive, "cpu_s_per_gib", over: dav)
        ),
        atMost(
            1.6,
            "x",
            "  the same against dav PUT made durable too",
            figure(.oneRequest, receive, "cpu_s_per_gib", over: synced)
        ),
        atLeast(
            0.8,
            "large receive: speed at least 0.8 x dav PUT",
            figure(.oneRequest, receive, "mib_per_s", over: dav)
        ),
        atLeast(
            0.8,
            "  the same against dav PUT made durable too",
            figure(.oneRequest, receive, "mib_per_s", over: synced)
        ),
        atMost(
            48,
            "MiB",
            "large uploads: peak memory below 48 MiB",
            peaks.max().map { [$0] } ?? []
        ),
        atLeast(
            1.0 / 6,
            "HEAD: rate at least 1/6 of return 200",
            figure(
                .offsetRetrieval,
                OffsetRetrieval.headRow,
                "per_s",
                over: OffsetRetrieval.returnRow
            )
        ),
        atLeast(
            0.5,
            "1000 x 64 KiB plain: rate at least 0.5 x unbuffered proxy",
            figure(
                .smallUploads,
                SmallUploads.plainRow,
                "per_s",
                over: SmallUploads.proxyRow
            )
        ),
        atLeast(
            0.5,
            "1000 x 64 KiB as upload resources: the same",
            figure(
                .smallUploads,
                SmallUploads.uploadRow,
                "per_s",
                over: SmallUploads.proxyRow
            )
        ),
        atMost(
            80,
            "MiB",
            "2000 slow uploads within 80 MiB",
            figure(.slowUploads, SlowUploads.rowName(2_000), "rss_mib")
        ),
        atMost(
            300,
            "MiB",
            "9000 slow uploads within 300 MiB",
            figure(.slowUploads, SlowUploads.rowName(9_000), "rss_mib")
        ),
    ] + deliveryTargets(figure)
}

/// The targets of sections F to I.
private func deliveryTargets(
    _ figure: (Section, String, String, _ over: String?) -> [Double]
) -> [Target] {
    var targets: [Target] = []
    for (section, scheme) in [(Section.delivery, "http"), (.secureDelivery, "https")] {
        for peer in [Deliveries.uploadRow, Deliveries.dataRow] {
            targets += [
                atLeast(
                    1,
                    "delivery over \(scheme): no slower than \(peer)",
                    figure(section, Deliveries.aloneRow, "mib_per_s", peer)
                ),
                atMost(
                    1,
                    "x",
                    "  and with no more processor",
                    figure(section, Deliveries.aloneRow, "own_cpu_s_per_gib", peer)
                ),
            ]
        }
    }
    for (section, scheme) in [
        (Section.smallDeliveries, "http"), (.smallSecureDeliveries, "https"),
    ] {
        targets.append(
            atMost(
                20,
                "ms",
                "64 KiB over \(scheme), 99 of 100 below 20 ms: no delayed acknowledgement",
                figure(section, SmallDeliveries.wholeRow, "p99_ms", nil)
            )
        )
    }
    return targets
}
