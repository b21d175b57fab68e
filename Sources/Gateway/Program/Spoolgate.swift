// The command: its subcommands, and how each failure becomes one line and a sysexits(3) code.

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

/// What a command ends with that did not do all it should: one sentence for the operator and the exit
/// code.
struct CommandFailure: Error {
    /// Exit codes of sysexits(3), but for the first.
    enum Code: Int32 {
        /// It works, and less well than it could; somebody should look.
        case warnings = 1
        /// It does not serve: a Nagios plugin's code, of `status --check` alone.
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
    /// Whether the operator was told already.
    var isTold = false
}

/// One command of the program.
protocol SpoolgateCommand: ParsableCommand {
    /// Does what the command is for.
    func perform() throws(CommandFailure)
}

extension SpoolgateCommand {
    /// Performs the command; a failure is told on standard error and becomes the exit code.
    func run() throws {
        do throws(CommandFailure) {
            try perform()
        } catch {
            if !error.isTold { printError(error.sentence) }
            throw ExitCode(error.code.rawValue)
        }
    }
}

/// Asks the spool; an error of it ends the command.
func askSpool<R>(_ answer: @autoclosure () throws(SpoolError) -> R) throws(CommandFailure) -> R {
    do throws(SpoolError) {
        return try answer()
    } catch {
        throw CommandFailure(code: .unavailable, sentence: error.sentence)
    }
}

/// One line on standard error, marked with the program's name; the journal takes it for an error.
func printError(_ sentence: String) {
    // Nobody is left to tell where this cannot be written.
    try? StandardError().write(line: "spoolgate: \(sentence.forTerminal)", .error)
}
