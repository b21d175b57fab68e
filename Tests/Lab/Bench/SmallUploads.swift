// Sections C (64 KiB) and J (256 KiB): many small uploads by several clients at once.

import SpoolgateTestSupport
import Synchronization

enum SmallUploads {
    static let clients = 16
    static let uploads = 1000
    static let proxyRow = "nginx proxy, unbuffered"
    static let fileOnlyRow = "client_body_in_file_only"
    static let plainRow = "spoolgate: plain PUT"
    static let uploadRow = "spoolgate: upload resources"
    static let toldRow = "spoolgate: told upload resources"
    static let tusdRow = "tusd: creations with upload"

    static func run(_ section: Section, _ options: Options, on stage: Stage) -> SectionResult {
        let length = Int64(section == .smallUploads ? 64 << 10 : 256 << 10)
        let complete = [(name: "Upload-Complete", value: "?1")]
        let delivered = [
            Row(name: proxyRow, behind: .nothing) { _ in
                try deliver(length, to: "/proxy/", stage)
            },
            Row(name: fileOnlyRow, behind: .nothing) { _ in
                var outcome = try deliver(length, to: "/file-only/", stage)
                outcome.check = {
                    try emptyDirectory(stage.bodyDirectory)
                }
                return outcome
            },
            Row(name: plainRow, behind: .gateway) { _ in
                try deliver(length, to: "/files/", stage)
            },
            Row(name: uploadRow, behind: .gateway) { _ in
                try deliver(length, to: "/small/", stage, fields: complete)
            },
            Row(name: toldRow, behind: .gateway, isReported: true) { _ in
                try deliver(length, to: "/small/", stage, fields: toldFields, isReported: true)
            },
        ]
        let kept =
            Promise.allCases.map { promise in
                Row(name: promise.toldRow, behind: .gateway, isReported: true) { _ in
                    var outcome = try parallel(stage) { connection, number in
                        let target = "\(promise.location)\(number)"
                        let request = Request("PUT", target, toldFields, length: length)
                        try connection.exchange(request, isReported: true, expecting: 201)
                    }
                    outcome.check =
                        keptFile(ofLength: length, count: uploads, in: stage.dropDirectory).check
                    return outcome
                }
            }
            + Promise.allCases.map { promise in
                Row(name: promise.tusRow, behind: .gateway) { _ in
                    try create(length, at: promise.location, in: stage.dropDirectory, stage)
                }
            } + [
                Row(name: tusdRow, behind: .tusd) { _ in
                    try create(length, at: TusUpload.base, in: stage.tusdDirectory, stage)
                }
            ]
        return takeTurns(
            delivered + kept,
            on: stage,
            section: section,
            title: "\(uploads) uploads of \(length >> 10) KiB by \(clients) clients, keep-alive",
            columns: rateColumns(reference: proxyRow),
            options: options,
            memory: 512 << 20,
            figures: rateFigures
        )
    }

    private static func deliver(
        _ length: Int64,
        to location: String,
        _ stage: Stage,
        fields: [(name: String, value: String)] = [],
        isReported: Bool = false
    ) throws -> Outcome {
        try parallel(stage) { connection, number in
            let request = Request("PUT", "\(location)\(number)", fields, length: length)
            let response = try connection.exchange(request, isReported: isReported, expecting: 200)
            try requireCount(response, request)
        }
    }

    /// Sends all uploads as tus creations with the content, each of which becomes a file in a directory.
    private static func create(
        _ length: Int64,
        at base: String,
        in directory: String,
        _ stage: Stage
    ) throws -> Outcome {
        var outcome = try parallel(stage) { connection, _ in
            _ = try TusUpload(at: base, length: length, content: length, connection)
        }
        outcome.check = keptFile(ofLength: length, count: uploads, in: directory).check
        return outcome
    }

    /// Distributes uploads among all clients, each with its own connection, and returns the seconds of each upload.
    private static func parallel(
        _ stage: Stage,
        _ upload: @escaping @Sendable (Connection, Int) throws -> Void
    ) throws -> Outcome {
        let address = stage.address
        let turn = Turn()
        let latencies = Parallel.run(clients) { _ in
            let connection = try Connection(to: address)
            var latencies: [Double] = []
            while let number = turn.next(below: uploads) {
                let start = now()
                try upload(connection, number)
                latencies.append(now() - start)
            }
            return latencies
        }
        return Outcome(latencies: try latencies.flatMap { try $0.get() }, requests: uploads)
    }
}

/// Gives out numbers from 0 to many threads.
private final class Turn: Sendable {
    private let count = Atomic<Int>(0)

    func next(below end: Int) -> Int? {
        let number = count.wrappingAdd(1, ordering: .relaxed).oldValue
        return number < end ? number : nil
    }
}

func rateColumns(reference: String) -> [Column] {
    [
        Column(key: "per_s", title: "per s"),
        Column(key: "per_s", title: "of peer", decimals: 2, reference: reference),
        Column(key: "cpu_ms", title: "CPU ms each", decimals: 3),
        Column(key: "cpu_ms", title: "of peer", decimals: 2, reference: reference),
        Column(key: "own_cpu_ms", title: "own CPU ms", decimals: 3),
        Column(key: "p50_ms", title: "p50 ms", decimals: 2),
        Column(key: "p99_ms", title: "p99 ms", decimals: 2),
        Column(key: "peak_rss_mib", title: "peak MiB", decimals: 1),
        Column(key: "others_percent", title: "others %"),
    ]
}

func rateFigures(_ sample: Sample) -> [String: Double] {
    let requests = Double(max(sample.outcome.requests, 1))
    var figures = [
        "per_s": requests / sample.seconds,
        "cpu_ms": sample.serverSeconds * 1000 / requests,
    ]
    figures["own_cpu_ms"] = sample.ownSeconds.map { $0 * 1000 / requests }
    if !sample.outcome.latencies.isEmpty {
        figures["p50_ms"] = percentile(sample.outcome.latencies, 0.5) * 1000
        figures["p99_ms"] = percentile(sample.outcome.latencies, 0.99) * 1000
    }
    figures["peak_rss_mib"] = sample.peak.map { Double($0) / Double(1 << 20) }
    return figures
}
