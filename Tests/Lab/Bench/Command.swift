// Programs run once, and their processor time.

import Glibc

struct CommandRun {
    let seconds: Double
    /// User and system time of the program and its children.
    let processorSeconds: Double
    let output: String

    /// Runs a program to its end, and requires exit status 0.
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

/// The processor seconds of all ended children.
func endedSeconds() -> Double {
    var usage = rusage()
    getrusage(__rusage_who_t(RUSAGE_CHILDREN.rawValue), &usage)
    return usage.ru_utime.seconds + usage.ru_stime.seconds
}

extension timeval {
    fileprivate var seconds: Double { Double(tv_sec) + Double(tv_usec) / 1e6 }
}
