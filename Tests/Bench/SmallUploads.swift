// Section C: many small uploads by some clients at once.

import TestSupport
import Synchronization

/// Section C.
enum SmallUploads {
    static let clients = 16
    static let uploads = 1000
    static let length: Int64 = 64 << 10
    static let proxyRow = "nginx proxy, unbuffered"
    static let fileOnlyRow = "client_body_in_file_only"
    static let plainRow = "spoolgate: plain PUT"
    static let uploadRow = "spoolgate: upload resources"

    /// Runs the section.
    static func run(_ options: Options, on stage: Stage) -> SectionResult {
        let complete = [(name: "Upload-Complete", value: "?1")]
        let rows = [
            Row(name: proxyRow, usesGateway: false) { _ in
                try upload(to: "/proxy/", [], stage)
            },
            Row(name: fileOnlyRow, usesGateway: false) { _ in
                var outcome = try upload(to: "/file-only/", [], stage)
                outcome.check = {
                    try emptyDirectory(stage.bodyDirectory)
                }
                return outcome
            },
            Row(name: plainRow, usesGateway: true) { _ in
                try upload(to: "/files/", [], stage)
            },
            Row(name: uploadRow, usesGateway: true) { _ in
                try upload(to: "/small/", complete, stage)
            },
        ]
        return takeTurns(
            rows,
            on: stage,
            section: .smallUploads,
            title: "\(uploads) uploads of \(length >> 10) KiB by \(clients) clients, "
                + "keep-alive, delivered",
            columns: rateColumns(reference: proxyRow),
            options: options,
            memory: 8 * Int64(uploads) * length,
            figures: rateFigures
        )
    }

    /// Makes all uploads, each answered by the sink and counted by it.
    private static func upload(
        to location: String,
        _ fields: [(name: String, value: String)],
        _ stage: Stage
    ) throws -> Outcome {
        let address = stage.address
        let turn = Turn()
        let latencies = Parallel.run(clients) { _ in
            let connection = try Connection(to: address)
            var latencies: [Double] = []
            while let number = turn.next(below: uploads) {
                let request = Request("PUT", "\(location)\(number)", fields, length: length)
                let start = now()
                let response = try connection.exchange(request, expecting: 200)
                latencies.append(now() - start)
                try requireCount(response, request)
            }
            return latencies
        }
        return Outcome(latencies: try latencies.flatMap { try $0.get() }, requests: uploads)
    }
}

/// Hands out numbers from 0 to many threads.
private final class Turn: Sendable {
    private let count = Atomic<Int>(0)

    /// The next number, or nil when `end` is reached.
    func next(below end: Int) -> Int? {
        let number = count.wrappingAdd(1, ordering: .relaxed).oldValue
        return number < end ? number : nil
    }
}

/// The columns of sections C and D.
func rateColumns(reference: String) -> [Column] {
    [
        Column(key: "per_s", title: "per s"),
        Column(key: "per_s", title: "of peer", decimals: 2, reference: reference),
        Column(key: "cpu_ms", title: "CPU ms each", decimals: 3),
        Column(key: "cpu_ms", title: "of peer", decimals: 2, reference: reference),
        Column(key: "gateway_cpu_ms", title: "own CPU ms", decimals: 3),
        Column(key: "p50_ms", title: "p50 ms", decimals: 2),
        Column(key: "p99_ms", title: "p99 ms", decimals: 2),
        Column(key: "peak_rss_mib", title: "peak MiB", decimals: 1),
        Column(key: "others_percent", title: "others %"),
    ]
}

/// The figures of sections C and D.
func rateFigures(_ sample: Sample) -> [String: Double] {
    let requests = Double(max(sample.outcome.requests, 1))
    var figures = [
        "per_s": requests / sample.seconds,
        "cpu_ms": sample.serverSeconds * 1000 / requests,
    ]
    figures["gateway_cpu_ms"] = sample.gatewaySeconds.map { $0 * 1000 / requests }
    if !sample.outcome.latencies.isEmpty {
        figures["p50_ms"] = percentile(sample.outcome.latencies, 0.5) * 1000
        figures["p99_ms"] = percentile(sample.outcome.latencies, 0.99) * 1000
    }
    figures["peak_rss_mib"] = sample.peak.map { Double($0) / Double(1 << 20) }
    return figures
}
