// The curl command as the peer of a delivery: one process with a kept-alive connection.

struct Curl {
    enum Way {
        /// `-T`: read and sent in pieces.
        case upload
        /// `--data-binary @`: read into memory, then sent.
        case data
    }

    private let program: String
    private let stage: Stage

    init(_ stage: Stage) throws {
        program = try findProgram("curl")
        self.stage = stage
    }

    /// Sends `file`, `length` bytes, once to `url` (nil: the sink), while the clock of the outcome's row runs.
    func send(
        _ file: String,
        length: Int64,
        _ way: Way,
        to url: String? = nil
    ) throws -> Outcome {
        let way = way == .upload ? ["-T", file] : ["--data-binary", "@\(file)"]
        let run = try run(way + [url ?? "\(stage.sinkURL)/curl"])
        return Outcome(programSeconds: run.processorSeconds) {
            guard Int64(run.output.prefix { $0 != "\n" }) == length else {
                throw BenchFailure("the sink counted '\(run.output.prefix(40))' of \(length)")
            }
        }
    }

    func send(_ file: String, length: Int64, count: Int) throws -> Outcome {
        let list = stage.work + "/curl.list"
        var text = ""
        for number in 0..<count {
            text += "url = \"\(stage.sinkURL)/\(number)\"\nupload-file = \"\(file)\"\n"
            text += "output = \"/dev/null\"\n"
        }
        try writeText(text, to: list)
        let run = try run(["-K", list, "-w", "%{size_upload} %{time_total}\\n"])
        return try Outcome(run, length: length, count: count)
    }

    private func run(_ arguments: [String]) throws -> CommandRun {
        let trust = stage.authority.map { ["--cacert", $0] } ?? []
        return try CommandRun(
            "curl",
            program: program,
            arguments: ["-q", "-sS", "-f", "--noproxy", "*", "--http1.1", "-H", "Expect:"] + trust
                + arguments,
            output: stage.work + "/curl.out",
            log: stage.work + "/curl.log"
        )
    }
}

extension Outcome {
    /// Reads a program's output, a line `BYTES SECONDS` for each of `count` deliveries.
    init(_ run: CommandRun, length: Int64, count: Int) throws {
        var latencies: [Double] = []
        for line in run.output.split(separator: "\n") {
            let words = line.split(separator: " ")
            guard words.count == 2, Int64(words[0]) == length, let seconds = Double(words[1]) else {
                throw BenchFailure("invalid line for a delivery of \(length) bytes: '\(line)'")
            }
            latencies.append(seconds)
        }
        guard latencies.count == count else {
            throw BenchFailure("\(latencies.count) of \(count) deliveries were made")
        }
        self.init(latencies: latencies, requests: count, programSeconds: run.processorSeconds)
    }
}
