// The program: its commands, and the line and sysexits(3) code of each failure.

import ArgumentParser
import SpoolgateBuild
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

/// A failure of a command: one sentence for the operator and the exit code.
struct CommandFailure: Error {
    /// Exit codes of sysexits(3), except for the first two.
    enum Code: Int32 {
        /// It works, but an operator should look.
        case warnings = 1
        /// The service is down: a Nagios plugin's code, only for `status --check`.
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

    var code: Code
    var sentence: String
    /// Whether the operator was already informed.
    var isTold = false
}

/// One command of the program.
protocol SpoolgateCommand: ParsableCommand {
    /// Performs the command.
    func perform() throws(CommandFailure)
}

extension SpoolgateCommand {
    /// Performs the command, and reports a failure on standard error and by the exit code.
    func run() throws {
        do throws(CommandFailure) {
            try perform()
        } catch {
            if !error.isTold { printError(error.sentence) }
            throw ExitCode(error.code.rawValue)
        }
    }
}

/// Performs an operation of the spool; its error ends the command.
func askSpool<R>(_ answer: @autoclosure () throws(SpoolError) -> R) throws(CommandFailure) -> R {
    do throws(SpoolError) {
        return try answer()
    } catch {
        throw CommandFailure(code: .unavailable, sentence: error.sentence)
    }
}

/// Prints one line on standard error after the program's name; the journal stores it as an error.
func printError(_ sentence: String) {
    // If this fails, there is no other place to report it.
    try? StandardError().write(line: "spoolgate: \(sentence.forTerminal)", .error)
}
