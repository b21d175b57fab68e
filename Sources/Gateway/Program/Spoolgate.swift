// The program: its commands, and the line and sysexits(3) code of each failure.

import ArgumentParser
import SpoolgateJournal
import SpoolgatePosix
import SpoolgateSpool
import SpoolgateTextFormats

@main
struct Spoolgate: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "spoolgate",
        abstract: "Resumable uploads for an application you cannot change, behind nginx.",
        discussion: """
            See spoolgate(8) for the commands, spoolgate.yaml(5) for the settings, spoolgate-spool(5) \
            for the spool directory, spoolgate-log(5) for the log, spoolgate-events(5) for the events \
            and spoolgate-metrics(7) for the metrics.
            """,
        version: ProgramVersion.text(build: ProgramBuild.identity),
        subcommands: [
            Serve.self, Check.self, List.self, Show.self, Hold.self, Release.self, Requeue.self,
            Purge.self, Probe.self, StatusCommand.self,
        ]
    )

    static func main() {
        Signals.ignoreFileSizeLimit()
        main(nil)
    }
}

struct CommandFailure: Error {
    /// Exit codes; all except the first two are those of sysexits(3).
    enum Code: Int32 {
        /// The command succeeded, but found something that requires an operator's attention.
        case warnings = 1
        /// The service is down; only `status --check` uses this code, as a Nagios plugin.
        case critical = 2
        case refused = 65
        case unknownUpload = 66
        case unknownUser = 67
        case unavailable = 69
        case cannotCreate = 73
        case inUse = 75
        case noPermission = 77
        case configuration = 78
    }

    let code: Code
    let sentence: String
    /// Whether the failure has already been printed.
    let isReported: Bool

    init(_ code: Code, _ sentence: String, isReported: Bool = false) {
        (self.code, self.sentence, self.isReported) = (code, sentence, isReported)
    }
}

protocol SpoolgateCommand: ParsableCommand {
    /// Throws a failure instead of printing it.
    func perform() throws(CommandFailure)
}

extension SpoolgateCommand {
    /// Performs the command; prints a failure's sentence on standard error, and throws its exit code.
    func run() throws {
        do throws(CommandFailure) {
            try perform()
        } catch {
            if !error.isReported { printError(error.sentence) }
            throw ExitCode(error.code.rawValue)
        }
    }
}

/// Converts an error of the spool into a failure of the command.
func withSpoolErrors<R>(_ body: @autoclosure () throws(SpoolError) -> R) throws(CommandFailure)
    -> R
{
    do throws(SpoolError) {
        return try body()
    } catch {
        throw CommandFailure(.unavailable, error.sentence)
    }
}

/// Prints a line after the program's name on standard error; the systemd journal stores it at level error.
func printError(_ sentence: String) {
    // If this fails, there is no other place to report it.
    try? StandardError().write(line: "spoolgate: \(sentence.forTerminal)", .error)
}
