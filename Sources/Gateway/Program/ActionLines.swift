// The output of commands that change uploads: one line per upload, for people or as JSON.
//
// Invariant: the exit code is 0 only if every upload succeeded.

import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol

/// The lines about the uploads of one command, and its exit code.
struct ActionLines {
    let json: Bool
    private var worst: CommandFailure.Code?

    /// Creates an empty report.
    init(json: Bool) { self.json = json }

    /// Prints the line of one upload.
    ///
    /// - Parameters:
    ///   - id: the upload.
    ///   - action: the action, or the reason for none, such as `refused`.
    ///   - code: the error; nil: success.
    ///   - clause: the rest of the sentence.
    mutating func tell(
        _ id: UploadID,
        _ action: String,
        _ code: CommandFailure.Code?,
        _ clause: String
    ) {
        if let code { worst = Self.worse(worst, code) }
        if json {
            print(
                JSON.line([
                    ("upload", .string(id.description)), ("action", .string(action)),
                    ("detail", .string(clause)),
                ])
            )
        } else if code == nil {
            print("\(action) \(id): \(clause.forTerminal)")
        } else {
            printError("\(id): \(clause.forTerminal)")
        }
    }

    /// Reports an upload that does not exist.
    mutating func tellUnknown(_ id: UploadID) {
        tell(id, "unknown", .unknownUpload, "no such upload")
    }

    /// Reports an upload that is in use.
    mutating func tellInUse(_ id: UploadID) {
        tell(id, "in use", .inUse, "upload is in use; try again in a moment")
    }

    private static func worse(
        _ one: CommandFailure.Code?,
        _ other: CommandFailure.Code
    ) -> CommandFailure.Code {
        // `.inUse` is temporary, so it is reported only without any other error.
        let order: [CommandFailure.Code] = [.unavailable, .unknownUpload, .refused, .inUse]
        return order.first { $0 == one || $0 == other } ?? other
    }

    /// Ends the command with the code of its worst error, if there was one.
    func end() throws(CommandFailure) {
        if let worst { throw CommandFailure(code: worst, sentence: "", isTold: true) }
    }
}
