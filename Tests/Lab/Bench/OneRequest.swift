// Section A: one large upload in one request.

import SpoolgateTestSupport

enum OneRequest {
    static let davRow = "dav PUT"
    static let syncedDavRow = "dav PUT, then fdatasync"
    static let fileOnlyRow = "client_body_in_file_only"
    static let plainRow = "spoolgate: plain PUT, delivered"
    static let uploadRow = "spoolgate: upload, delivered"
    static let receiveRow = "spoolgate: upload, received only"
    static let tusdRow = "tusd: creation with upload"

    static func run(_ options: Options, on stage: Stage) -> SectionResult {
        let length = options.largeLength
        let complete = [(name: "Upload-Complete", value: "?1")]
        let rows = [
            Row(name: davRow, behind: .nothing) { round in
                try davPut(length, stage, round, synced: false)
            },
            Row(name: syncedDavRow, behind: .nothing) { round in
                try davPut(length, stage, round, synced: true)
            },
            Row(name: fileOnlyRow, behind: .nothing) { round in
                let request = Request("PUT", "/file-only/\(round)", length: length)
                let outcome = try deliver(request, stage)
                return Outcome {
                    try outcome.check()
                    try emptyDirectory(stage.bodyDirectory)
                }
            },
            Row(name: plainRow, behind: .gateway) { round in
                try deliver(Request("PUT", "/files/plain-\(round)", length: length), stage)
            },
            Row(name: uploadRow, behind: .gateway) { round in
                try deliver(
                    Request("PUT", "/files/upload-\(round)", complete, length: length),
                    stage
                )
            },
            Row(name: receiveRow, behind: .gateway) { round in
                try receive(length, stage, round)
            },
        ]
        let kept =
            Promise.allCases.map { promise in
                Row(name: promise.toldRow, behind: .gateway, isReported: true) { round in
                    let connection = try Connection(to: stage.address)
                    try connection.exchange(
                        Request("PUT", "\(promise.location)\(round)", toldFields, length: length),
                        isReported: true,
                        expecting: 201
                    )
                    return keptFile(ofLength: length, in: stage.dropDirectory)
                }
            } + [
                Row(name: tusdRow, behind: .tusd) { _ in
                    let connection = try Connection(to: stage.address)
                    _ = try TusUpload(length: length, content: length, connection)
                    return keptFile(ofLength: length, in: stage.tusdDirectory)
                }
            ]
        let gibibytes = Double(length) / Double(1 << 30)
        return takeTurns(
            rows + kept,
            on: stage,
            section: .oneRequest,
            title: "\(length >> 20) MiB in one request",
            columns: largeColumns(reference: davRow),
            options: options,
            memory: length + length / 2
        ) { largeFigures($0, gibibytes) }
    }

    /// An upload that stays incomplete, so that nothing is delivered.
    private static func receive(
        _ length: Int64,
        _ stage: Stage,
        _ round: Int
    ) throws -> Outcome {
        let connection = try Connection(to: stage.address)
        let response = try connection.exchange(
            Request("PUT", "/files/receive-\(round)", [("Upload-Complete", "?0")], length: length),
            expecting: 201
        )
        return Outcome {
            let upload = try UploadResource(response, connection)
            try upload.requireOffset(length)
            try upload.cancel()
        }
    }

    private static func davPut(
        _ length: Int64,
        _ stage: Stage,
        _ round: Int,
        synced: Bool
    ) throws -> Outcome {
        let connection = try Connection(to: stage.address)
        try connection.exchange(Request("PUT", "/dav/\(round)", length: length), expecting: 201)
        let path = "\(stage.davDirectory)/\(round)"
        let added = synced ? try synchronise(path) : 0
        var outcome = keptFile(ofLength: length, in: stage.davDirectory)
        outcome.addedSeconds = added
        return outcome
    }
}

/// Sends a request, and checks that the sink counted every byte.
func deliver(_ request: Request, _ stage: Stage) throws -> Outcome {
    let connection = try Connection(to: stage.address)
    let response = try connection.exchange(request, expecting: 200)
    return Outcome {
        try requireCount(response, request)
    }
}

func requireCount(_ response: WireClient.Answer, _ request: Request) throws {
    let counted = Int64(response.text.prefix { $0 != "\n" })
    guard counted == request.length else {
        throw BenchFailure(
            "\(request.method) \(request.target): \(request.length ?? 0) bytes were sent, "
                + "the sink counted '\(response.text.prefix(40))'"
        )
    }
}

/// The outcome of creating `count` files, whose check empties their directory.
func keptFile(ofLength wanted: Int64, count: Int = 1, in directory: String) -> Outcome {
    Outcome {
        let kept = try fileLengths(below: directory).count { $0 == wanted }
        guard kept == count else {
            throw BenchFailure("\(kept) files of \(wanted) bytes in \(directory), not \(count)")
        }
        try emptyDirectory(directory)
    }
}

func largeColumns(reference: String) -> [Column] {
    [
        Column(key: "mib_per_s", title: "MiB/s"),
        Column(key: "mib_per_s", title: "of dav", decimals: 2, reference: reference),
        Column(key: "cpu_s_per_gib", title: "CPU s/GiB", decimals: 2),
        Column(key: "cpu_s_per_gib", title: "of dav", decimals: 2, reference: reference),
        Column(key: "own_cpu_s_per_gib", title: "own CPU", decimals: 2),
        Column(key: "sink_cpu_s_per_gib", title: "sink CPU", decimals: 2),
        Column(key: "peak_rss_mib", title: "peak MiB", decimals: 1),
        Column(key: "others_percent", title: "others %"),
    ]
}

func largeFigures(_ sample: Sample, _ gibibytes: Double) -> [String: Double] {
    var figures = [
        "mib_per_s": gibibytes * 1024 / sample.seconds,
        "cpu_s_per_gib": sample.serverSeconds / gibibytes,
        "sink_cpu_s_per_gib": sample.sinkSeconds / gibibytes,
    ]
    figures["own_cpu_s_per_gib"] = sample.ownSeconds.map { $0 / gibibytes }
    figures["peak_rss_mib"] = sample.peak.map { Double($0) / Double(1 << 20) }
    return figures
}
