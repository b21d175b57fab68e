// Section K: one large file sent through the gateway by `spoolgate-upload`, compared with curl.

enum ClientUploads {
    static let curlRow = "curl -T file"
    static let putRow = "spoolgate-upload -X PUT file"
    static let optimisticRow = "spoolgate-upload, optimistic"
    static let curlStreamRow = "curl -T - of a pipe"
    static let streamRow = "spoolgate-upload of a pipe"

    static func run(_ options: Options, on stage: Stage) throws -> SectionResult {
        let length = options.largeLength
        let file = stage.work + "/content"
        try makeFile(file, length: length)
        let curl = try Curl(stage)
        let url = "\(stage.gatewayURL)/client"
        func command(_ line: String) throws -> Outcome {
            let run = try CommandRun(
                "spoolgate-upload",
                program: "/usr/bin/env",
                arguments: [
                    "XDG_STATE_HOME=\(stage.work)", "no_proxy=*", "sh", "-c", line,
                    try clientProgram(options), file, url,
                ],
                output: stage.work + "/client.out",
                log: stage.work + "/client.log"
            )
            return Outcome(programSeconds: run.processorSeconds) {
                guard Int64(run.output.prefix { $0 != "\n" }) == length else {
                    throw BenchFailure("the sink counted '\(run.output.prefix(40))' of \(length)")
                }
            }
        }
        let rows = [
            Row(name: curlRow, behind: .gateway) { _ in
                try curl.send(file, length: length, .upload, to: url)
            },
            Row(name: putRow, behind: .gateway) { _ in
                try command(#"exec "$0" -X PUT "$1" "$2""#)
            },
            Row(name: optimisticRow, behind: .gateway) { _ in
                try command(#"exec "$0" -X PUT --creation optimistic "$1" "$2""#)
            },
            Row(name: curlStreamRow, behind: .gateway) { _ in
                try command(#"cat "$1" | curl -sS --noproxy '*' -T - "$2""#)
            },
            Row(name: streamRow, behind: .gateway) { _ in
                try command(#"cat "$1" | "$0" -X PUT - "$2""#)
            },
        ]
        let mebibytes = Double(length) / Double(1 << 20)
        return takeTurns(
            rows,
            on: stage,
            section: .clientUploads,
            title: "\(length >> 20) MiB sent through nginx and the gateway to the sink",
            columns: columns,
            options: options,
            memory: length + length / 2
        ) { sample in
            [
                "mib_per_s": mebibytes / sample.seconds,
                "own_cpu_s_per_gib": sample.delivererSeconds / mebibytes * 1024,
            ]
        }
    }

    private static let columns = [
        Column(key: "mib_per_s", title: "MiB/s"),
        Column(key: "mib_per_s", title: "of -T", decimals: 2, reference: curlRow),
        Column(key: "own_cpu_s_per_gib", title: "own CPU s/GiB", decimals: 2),
        Column(key: "own_cpu_s_per_gib", title: "of -T", decimals: 2, reference: curlRow),
        Column(key: "others_percent", title: "others %"),
    ]
}
