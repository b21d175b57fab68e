// The program; its name selects the command `spoolgate-upload` or `spoolgate-download`.

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
        // Flushes standard output.
        exit(status)
    }
}

/// Why a command did not complete, and its exit code.
struct Ending: Error {
    enum Code: Int32 {
        /// The transfer was not accepted; retrying will not help.
        case refused = 1
        case usage = 2
        /// Running the same command again continues the transfer (EX_TEMPFAIL).
        case later = 75
    }

    var code: Code
    /// The sentence to print; nil if everything was printed.
    var sentence: String?

    init(_ code: Code, _ sentence: String?) { (self.code, self.sentence) = (code, sentence) }

    /// A failure with `error`; `fix` says what the user can do.
    init(_ error: SystemError, _ fix: String) { self.init(.refused, "\(error); \(fix)") }
}

extension TransferError {
    var code: Ending.Code { mayWorkLater ? .later : kind == .invalid ? .usage : .refused }
}

extension ParsableCommand {
    fileprivate static func status(_ arguments: [String]) -> Int32 {
        do {
            var command = try parseAsRoot(arguments)
            try command.run()
            return 0
        } catch let ending as Ending {
            if let sentence = ending.sentence { report(sentence) }
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

    /// Prints one line on standard error, with the command's name.
    static func report(_ sentence: String) {
        // A failure cannot be reported.
        try? StandardError().write(line: "\(name): \(sentence.forTerminal)", .error)
    }

    static var name: String { configuration.commandName ?? "" }
}
