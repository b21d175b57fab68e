// Programs that run once and end by themselves, as a person would start them, and what they cost.

import Glibc

/// What one run of a program was.
struct CommandRun {
    /// Seconds from its start to its end.
    let seconds: Double
    /// Processor seconds, user and system, of it and of what it started.
    let processorSeconds: Double
    /// What it wrote to its output.
    let output: String

    /// Runs a program to its end.
    ///
    /// - Throws: `BenchFailure` if it cannot be started or its exit status is not 0.
    init(
        _ name: String,
        program: String,
        arguments: [String],
        output path: String,
        log: String
    ) throws {
        let file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o644)
        guard file >= 0 else { throw BenchFailure(call: "open", on: path) }
        defer { close(file) }
        let before = endedSeconds()
        let start = now()
        let child = try Child.start(
            name,
            program: program,
            arguments: arguments,
            log: log,
            output: file
        )
        let status = child.waitForEnd()
        seconds = now() - start
        processorSeconds = endedSeconds() - before
        output = readText(path)
        guard status == 0 else {
            throw BenchFailure("\(name) ended with status \(status): \(readText(log).suffix(500))")
        }
    }
}

/// Processor seconds of all children that have ended.
func endedSeconds() -> Double {
    var usage = rusage()
    getrusage(__rusage_who_t(RUSAGE_CHILDREN.rawValue), &usage)
    return usage.ru_utime.seconds + usage.ru_stime.seconds
}

extension timeval {
    fileprivate var seconds: Double { Double(tv_sec) + Double(tv_usec) / 1e6 }
}
