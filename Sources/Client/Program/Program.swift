// The program, by the name it was called with: `spoolgate-upload`, or `spoolgate-download`.

import ArgumentParser
import Glibc
import ResumableUpload
import SpoolgatePosix
import SpoolgateTextFormats

@main
enum Program {
    static func main() {
        Signals.ignoreFileSizeLimit()
        let name = CommandLine.arguments.first ?? ""
        let status =
            name.hasSuffix("download")
            ? DownloadCommand.status(Array(CommandLine.arguments.dropFirst()))
            : UploadCommand.status(Array(FilePath.arguments().dropFirst()))
        // What was printed leaves the process by it.
        exit(status)
    }
}

/// Why a command did not do all it should: one sentence, and the exit code.
struct Ending: Error {
    /// The exit codes.
    enum Code: Int32 {
        /// Not taken, and trying the same again will not help.
        case refused = 1
        /// The command line is wrong.
        case usage = 2
        /// Not yet; the same command again goes on (EX_TEMPFAIL).
        case later = 75
    }

    var code: Code
    /// Nil: everything is told already.
    var sentence: String?

    init(_ code: Code, _ sentence: String?) { (self.code, self.sentence) = (code, sentence) }

    /// Of a call that failed, with what to do.
    init(_ error: SystemError, _ mend: String) { self.init(.refused, "\(error); \(mend)") }
}

extension TransferError {
    /// What the command exits with because of it.
    var code: Ending.Code { mayWorkLater ? .later : kind == .invalid ? .usage : .refused }
}

extension ParsableCommand {
    /// Runs the command with its arguments; gives the exit code, everything else is told already.
    fileprivate static func status(_ arguments: [String]) -> Int32 {
        do {
            var command = try parseAsRoot(arguments)
            try command.run()
            return 0
        } catch let ending as Ending {
            if let sentence = ending.sentence { tell(sentence) }
            return ending.code.rawValue
        } catch {
            let code = exitCode(for: error)
            guard code != .success else {
                print(fullMessage(for: error))
                return 0
            }
            let text = Array((fullMessage(for: error) + "\n").utf8)
            _ = write(STDERR_FILENO, text, text.count)
            return code == .validationFailure ? Ending.Code.usage.rawValue : code.rawValue
        }
    }

    /// One line on standard error, with the command's name.
    static func tell(_ sentence: String) {
        // Nobody is left to tell where this cannot be written.
        try? StandardError().write(line: "\(name): \(sentence.forTerminal)", .error)
    }

    /// The command's name.
    static var name: String { configuration.commandName ?? "" }
}
