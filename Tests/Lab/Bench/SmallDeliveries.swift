// Sections H and I: consecutive deliveries of 64 KiB, compared with curl.

enum SmallDeliveries {
    static let deliveries = 2000
    static let length: Int64 = 64 << 10
    static let curlRow = "curl -T, one process"
    static let aloneRow = "spoolgate's delivery alone, one process"
    static let wholeRow = "spoolgate: plain PUT through nginx"

    static func run(
        _ section: Section,
        _ options: Options,
        on stage: Stage
    ) throws -> SectionResult {
        let count = options.isQuick ? deliveries / 10 : deliveries
        let file = stage.work + "/content"
        try makeFile(file, length: length)
        let curl = try Curl(stage)
        let rows = [
            Row(name: curlRow, behind: .nothing) { _ in
                try curl.send(file, length: length, count: count)
            },
            Row(name: aloneRow, behind: .nothing) { _ in
                try Deliverer.send(file, length: length, count: count, on: stage)
            },
            Row(name: wholeRow, behind: .gateway) { _ in
                try put(count, stage)
            },
        ]
        return takeTurns(
            rows,
            on: stage,
            section: section,
            title: "\(count) deliveries of \(length >> 10) KiB, one after the other, over "
                + (section.isSecure ? "https" : "http"),
            columns: columns,
            options: options,
            memory: 16 << 20
        ) { sample in
            [
                "per_s": Double(count) / sample.seconds,
                "own_cpu_ms": sample.delivererSeconds * 1000 / Double(count),
                "p50_ms": percentile(sample.outcome.latencies, 0.5) * 1000,
                "p99_ms": percentile(sample.outcome.latencies, 0.99) * 1000,
            ]
        }
    }

    /// Whole requests by one client, which include nginx and FastCGI.
    private static func put(_ count: Int, _ stage: Stage) throws -> Outcome {
        let connection = try Connection(to: stage.address)
        var latencies: [Double] = []
        for number in 0..<count {
            let request = Request("PUT", "/files/\(number)", length: length)
            let start = now()
            let response = try connection.exchange(request, expecting: 200)
            latencies.append(now() - start)
            try requireCount(response, request)
        }
        return Outcome(latencies: latencies, requests: count)
    }

    private static let columns = [
        Column(key: "per_s", title: "per s"),
        Column(key: "per_s", title: "of curl", decimals: 2, reference: curlRow),
        Column(key: "own_cpu_ms", title: "own CPU ms", decimals: 3),
        Column(key: "own_cpu_ms", title: "of curl", decimals: 2, reference: curlRow),
        Column(key: "p50_ms", title: "p50 ms", decimals: 2),
        Column(key: "p99_ms", title: "p99 ms", decimals: 2),
        Column(key: "others_percent", title: "others %"),
    ]
}
