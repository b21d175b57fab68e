// The project's targets, the measured figures, and whether they are met.
//
// If a section was not run, or a row failed, its target is "not measured".

import Foundation

private struct Target {
    let sentence: String
    /// The figure in each round; empty: not measured.
    let values: [Double]
    let bound: Double
    /// Whether `bound` is the highest allowed figure, not the lowest.
    let isUpper: Bool
    let unit: String

    init(_ sentence: String, _ values: [Double], upTo bound: Double, _ unit: String = "x") {
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
    var result: String {
        guard let figure else { return "not measured" }
        let result = meets(figure) ? "met" : "missed"
        let agree = values.allSatisfy { meets($0) == meets(figure) }
        return agree ? result : result + ", not in every round"
    }

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

func printTargets(_ results: [SectionResult], _ options: Options) {
    let targets =
        targets(results, options.promise)
        + (options.hasLane ? lane(results, options.spoolReceive) : [])
    if options.json {
        for target in targets {
            let figure: Any = target.figure ?? NSNull()
            print(
                json([
                    "target": target.sentence, "figure": figure, "verdict": target.result,
                ])
            )
        }
        return
    }
    print(
        "\nTargets\(options.isQuick ? " (quick sizes, which are not those of the targets)" : "")\n"
    )
    let lines = targets.map { target in
        [target.sentence, target.text, target.result]
    }
    printTable(["", "measured", ""], lines)
    let disturbed = results.filter(\.isDisturbed).map(\.section.rawValue)
    if !disturbed.isEmpty {
        print("\n  No round of \(disturbed.joined(separator: ", ")) was quiet: run it again.")
    }
}

private func targets(_ results: [SectionResult], _ promise: String) -> [Target] {
    besideNginx(results) + deliveries(results) + client(results, promise) + besideTusd(results)
}

extension [SectionResult] {
    /// A row's figure in each round, divided by another row's if given; empty: not measured.
    fileprivate func figure(
        _ section: Section,
        _ row: String,
        _ key: String,
        over reference: String? = nil
    ) -> [Double] {
        first { $0.section == section }?.values(row, key, over: reference) ?? []
    }
}

private func besideNginx(_ results: [SectionResult]) -> [Target] {
    func receive(over reference: String) -> [Double] {
        results.figure(.oneRequest, OneRequest.receiveRow, "cpu_s_per_gib", over: reference)
    }
    func small(_ row: String) -> [Double] {
        results.figure(.smallUploads, row, "per_s", over: SmallUploads.proxyRow)
    }
    func slow(_ count: Int) -> [Double] {
        results.figure(.slowUploads, SlowUploads.rowName(count), "rss_mib")
    }
    let large = [OneRequest.plainRow, OneRequest.uploadRow, OneRequest.receiveRow]
    let peaks = (large + Promise.allCases.map(\.toldRow))
        .flatMap { results.figure(.oneRequest, $0, "peak_rss_mib") }
    let heads = results.figure(
        .offsetRetrieval,
        OffsetRetrieval.headRow,
        "per_s",
        over: OffsetRetrieval.returnRow
    )
    return [
        Target(
            "1 GiB received: processor at most 2.0 x dav PUT",
            receive(over: OneRequest.davRow),
            upTo: 2
        ),
        Target(
            "  the same against dav PUT made durable too",
            receive(over: OneRequest.syncedDavRow),
            upTo: 2
        ),
        Target(
            "1 GiB in one request: peak memory below 48 MiB",
            peaks.max().map { [$0] } ?? [],
            upTo: 48,
            "MiB"
        ),
        Target("HEAD: rate at least 1/6 of return 200", heads, atLeast: 1.0 / 6),
        Target("  and at least 1/4, the moonshot", heads, atLeast: 1.0 / 4),
        Target(
            "1000 x 64 KiB plain: rate at least 0.5 x unbuffered proxy",
            small(SmallUploads.plainRow),
            atLeast: 0.5
        ),
        Target(
            "1000 x 64 KiB as told upload resources: at least 0.3 x",
            small(SmallUploads.toldRow),
            atLeast: 0.3
        ),
        Target("2000 slow uploads within 65 MiB", slow(2_000), upTo: 65, "MiB"),
        Target("9000 slow uploads within 220 MiB", slow(9_000), upTo: 220, "MiB"),
    ]
}

private func deliveries(_ results: [SectionResult]) -> [Target] {
    let schemes: [(String, large: Section, small: Section)] = [
        ("http", .delivery, .smallDeliveries), ("https", .secureDelivery, .smallSecureDeliveries),
    ]
    return schemes.flatMap { scheme, large, small in
        [
            Target(
                "delivery over \(scheme): no slower than \(Deliveries.uploadRow)",
                results.figure(
                    large,
                    Deliveries.aloneRow,
                    "mib_per_s",
                    over: Deliveries.uploadRow
                ),
                atLeast: 1
            ),
            Target(
                "64 KiB over \(scheme): no slower than \(SmallDeliveries.curlRow)",
                results.figure(
                    small,
                    SmallDeliveries.aloneRow,
                    "per_s",
                    over: SmallDeliveries.curlRow
                ),
                atLeast: 1
            ),
            Target(
                "  99 of 100 below 20 ms through nginx: no delayed acknowledgement",
                results.figure(small, SmallDeliveries.wholeRow, "p99_ms"),
                upTo: 20,
                "ms"
            ),
        ]
    }
}

private func client(_ results: [SectionResult], _ promise: String) -> [Target] {
    func atLeast(_ bound: Double, _ name: String, _ row: String, of peer: String) -> Target {
        Target(
            "\(name): at least \(bound) x \(peer)",
            results.figure(.clientUploads, row, "mib_per_s", over: peer),
            atLeast: bound
        )
    }
    // The gateway syncs the content of spoolgate-upload's pipe, but not that of curl's request.
    let ofPipe = promise == "process" ? 1 : 0.9
    return [
        atLeast(1, "the client's command", ClientUploads.putRow, of: ClientUploads.curlRow),
        atLeast(ofPipe, "  of a pipe", ClientUploads.streamRow, of: ClientUploads.curlStreamRow),
    ]
}

/// The targets if nginx writes content into the spool itself; each `promise` is compared with a peer of the same
/// durability.
private func lane(_ results: [SectionResult], _ spoolReceive: SpoolReceive) -> [Target] {
    // Threads cost some thousand handovers per GiB.
    let maximum = spoolReceive == .worker ? 1.15 : 1.5
    func large(_ promise: Promise, _ key: String) -> [Double] {
        let peer = promise == .process ? OneRequest.davRow : OneRequest.syncedDavRow
        return results.figure(.oneRequest, promise.toldRow, key, over: peer)
    }
    return [
        Target(
            "written by nginx, process: 1 GiB: processor at most \(maximum) x dav PUT",
            large(.process, "cpu_s_per_gib"),
            upTo: maximum
        ),
        Target(
            "  power-cut, against dav PUT made durable: processor at most \(maximum) x",
            large(.powerCut, "cpu_s_per_gib"),
            upTo: maximum
        ),
        Target(
            "  1 GiB, process: at least 1.4 x tusd",
            results.figure(
                .oneRequest,
                Promise.process.toldRow,
                "mib_per_s",
                over: OneRequest.tusdRow
            ),
            atLeast: 1.4
        ),
        Target(
            "  64 appends of 16 MiB, process: at least 1.5 x tusd",
            results.figure(
                .appends,
                Promise.process.partsRow,
                "mib_per_s",
                over: Appends.tusdRow
            ),
            atLeast: 1.5
        ),
    ]
}

/// The targets at equal durability, then those with a durability that tusd does not offer.
private func besideTusd(_ results: [SectionResult]) -> [Target] {
    func small(_ section: Section, _ promise: Promise) -> [Double] {
        results.figure(section, promise.toldRow, "per_s", over: SmallUploads.tusdRow)
    }
    func creations(_ promise: Promise) -> [Double] {
        results.figure(.smallUploads, promise.tusRow, "per_s", over: SmallUploads.tusdRow)
    }
    func large(_ key: String) -> [Double] {
        let row = Promise.process.toldRow
        return results.figure(.oneRequest, row, key, over: OneRequest.tusdRow)
    }
    func parts(_ promise: Promise, _ key: String = "mib_per_s") -> [Double] {
        results.figure(.appends, promise.partsRow, key, over: Appends.tusdRow)
    }
    return [
        Target(
            "beside tusd, process: 64 KiB uploads at least 1.2 x",
            small(.smallUploads, .process),
            atLeast: 1.2
        ),
        Target("  64 KiB tus uploads at least 1.2 x", creations(.process), atLeast: 1.2),
        Target("  256 KiB uploads at least 1.2 x", small(.mediumUploads, .process), atLeast: 1.2),
        Target("  1 GiB in one request at least 1.0 x", large("mib_per_s"), atLeast: 1),
        Target("  and with no more processor", large("cpu_s_per_gib"), upTo: 1),
        Target("  64 appends of 16 MiB at least 1.2 x", parts(.process), atLeast: 1.2),
        Target(
            "  and with a tenth of the memory",
            parts(.process, "peak_rss_mib"),
            upTo: 0.1
        ),
        Target(
            "beside tusd, power-cut: 64 KiB uploads at least 0.8 x",
            small(.smallUploads, .powerCut),
            atLeast: 0.8
        ),
        Target("  64 KiB tus uploads at least 0.8 x", creations(.powerCut), atLeast: 0.8),
        Target("  256 KiB uploads at least 0.8 x", small(.mediumUploads, .powerCut), atLeast: 0.8),
        Target("  64 appends of 16 MiB at least 1.0 x", parts(.powerCut), atLeast: 1),
    ]
}
