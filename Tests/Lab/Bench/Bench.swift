// spoolgate-bench: compares spoolgate with nginx's own ways to receive an upload.
//
// It starts nginx, spoolgate and a sink in a state directory, measures the given sections, and prints tables and the
// project's targets. The exit status is 0 for any figures, 1 if something failed, 64 for an invalid command line.

import Glibc

@main
enum Bench {
    static func main() {
        do {
            if CommandLine.arguments.dropFirst().elementsEqual(["sink"]) {
                let output = dup(STDOUT_FILENO)
                close(STDOUT_FILENO)
                try Sink.serve(output: output)
            }
            if CommandLine.arguments.dropFirst().first == "deliver" {
                return try Deliverer.run(CommandLine.arguments.dropFirst(2))
            }
        } catch {
            note("spoolgate-bench \(CommandLine.arguments[1]): \(error)")
            exit(1)
        }
        var options: Options?
        do {
            options = try Options.parse(CommandLine.arguments.dropFirst())
        } catch {
            note("spoolgate-bench: \(error)")
            exit(64)
        }
        guard let options else {
            print(Options.help)
            return
        }
        do {
            raiseOpenFilesLimit()
            let lock = try lockState(options.state)
            defer { close(lock) }
            let clean = { @Sendable in
                Child.endAll()
                // The next run removes the rest.
                try? emptyDirectory(options.state + "/work")
            }
            try endOnSignal(clean)
            let works = Result { try run(options) }
            clean()
            exit(try works.get() ? 0 : 1)
        } catch {
            note("spoolgate-bench: \(error)")
            exit(1)
        }
    }

    /// Runs the sections and prints the targets; false if something failed.
    private static func run(_ options: Options) throws -> Bool {
        if !options.json {
            print("The gateway's setting promise: \(options.promise).")
            print(
                options.module.map { "nginx has the module \($0)." }
                    ?? "nginx has no module: no upload is told by 104."
            )
            if options.hasLane {
                print("nginx writes content into the spool: spool_receive \(options.spoolReceive).")
            }
        }
        var results: [SectionResult] = []
        for section in options.sections {
            let isOwn = section == .slowUploads || section == .clientUploads
            if isOwn && options.peersOnly { continue }
            let result = try run(section, options)
            result.print(json: options.json)
            results.append(result)
        }
        if !options.peersOnly { printTargets(results, options) }
        return results.allSatisfy { $0.rows.allSatisfy { $0.failure == nil } }
    }

    private static func run(
        _ section: Section,
        _ options: Options
    ) throws -> SectionResult {
        if section == .slowUploads { return try runSlowUploads(options) }
        let stage = try Stage(options, withTLS: section.isSecure)
        defer { stage.end() }
        switch section {
        case .oneRequest: return OneRequest.run(options, on: stage)
        case .appends: return Appends.run(options, on: stage)
        case .smallUploads, .mediumUploads:
            return SmallUploads.run(section, options, on: stage)
        case .delivery, .secureDelivery:
            return try Deliveries.run(section, options, on: stage)
        case .smallDeliveries, .smallSecureDeliveries:
            return try SmallDeliveries.run(section, options, on: stage)
        case .clientUploads: return try ClientUploads.run(options, on: stage)
        case .offsetRetrieval, .slowUploads:
            return try OffsetRetrieval.run(options, on: stage)
        }
    }

    /// Runs section E, with a stage for each number of uploads.
    private static func runSlowUploads(_ options: Options) throws -> SectionResult {
        var rows: [RowResult] = []
        for count in options.slowCounts {
            let stage = try Stage(options)
            defer { stage.end() }
            rows.append(SlowUploads.run(count, options, on: stage))
        }
        return SectionResult(
            section: .slowUploads,
            title: "slow uploads, 1 KB/s each, held for \(Int(options.slowSeconds)) s",
            columns: SlowUploads.columns,
            rows: rows,
            measuredRounds: 1,
            quietRounds: OthersUse.isQuiet(rows.flatMap(\.others)) ? 1 : 0
        )
    }

    /// Locks the state directory until the descriptor is closed.
    private static func lockState(_ state: String) throws -> Int32 {
        try makeDirectory(state)
        let path = state + "/lock"
        let file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0o644)
        guard file >= 0 else { throw BenchFailure(call: "open", on: path) }
        guard flock(file, LOCK_EX | LOCK_NB) == 0 else {
            throw BenchFailure("another benchmark uses \(state)")
        }
        return file
    }
}
