// Sections F and G: the delivery of one large received upload, compared with curl.

enum Deliveries {
    static let uploadRow = "curl -T file"
    static let dataRow = "curl --data-binary @file"
    static let aloneRow = "spoolgate's delivery alone"
    static let gatewayRow = "spoolgate: whole in the spool, delivered"

    static func run(
        _ section: Section,
        _ options: Options,
        on stage: Stage
    ) throws -> SectionResult {
        let length = options.largeLength / 2
        let file = stage.work + "/content"
        try makeFile(file, length: length)
        let curl = try Curl(stage)
        var upload: UploadResource?
        let rows = [
            Row(name: uploadRow, behind: .nothing) { _ in
                try curl.send(file, length: length, .upload)
            },
            Row(name: dataRow, behind: .nothing) { _ in
                try curl.send(file, length: length, .data)
            },
            Row(name: aloneRow, behind: .nothing) { _ in
                try Deliverer.send(file, length: length, count: 1, on: stage)
            },
            Row(
                name: gatewayRow,
                behind: .gateway,
                prepare: { round in
                    upload = try receive(length, "/files/delivery-\(round)", stage)
                }
            ) { _ in
                guard let upload else { throw BenchFailure("there is no upload to deliver") }
                let response = try upload.append(0, at: length, last: true)
                return Outcome {
                    let whole = Request("PATCH", upload.path, length: length)
                    try requireCount(response, whole)
                }
            },
        ]
        let mebibytes = Double(length) / Double(1 << 20)
        return takeTurns(
            rows,
            on: stage,
            section: section,
            title:
                "\(length >> 20) MiB to the upstream over \(section.isSecure ? "https" : "http")",
            columns: columns,
            options: options,
            memory: length
        ) { sample in
            [
                "mib_per_s": mebibytes / sample.seconds,
                "own_cpu_s_per_gib": sample.delivererSeconds / mebibytes * 1024,
                "sink_cpu_s_per_gib": sample.sinkSeconds / mebibytes * 1024,
            ]
        }
    }

    /// Creates an incomplete upload with all its content, whose delivery an empty append starts.
    private static func receive(
        _ length: Int64,
        _ target: String,
        _ stage: Stage
    ) throws -> UploadResource {
        let connection = try Connection(to: stage.address)
        let response = try connection.exchange(
            Request("PUT", target, [("Upload-Complete", "?0")], length: length),
            expecting: 201
        )
        return try UploadResource(response, connection)
    }

    private static let columns = [
        Column(key: "mib_per_s", title: "MiB/s"),
        Column(key: "mib_per_s", title: "of -T", decimals: 2, reference: uploadRow),
        Column(key: "mib_per_s", title: "of data", decimals: 2, reference: dataRow),
        Column(key: "own_cpu_s_per_gib", title: "own CPU s/GiB", decimals: 2),
        Column(key: "own_cpu_s_per_gib", title: "of -T", decimals: 2, reference: uploadRow),
        Column(key: "own_cpu_s_per_gib", title: "of data", decimals: 2, reference: dataRow),
        Column(key: "sink_cpu_s_per_gib", title: "sink CPU", decimals: 2),
        Column(key: "others_percent", title: "others %"),
    ]
}
