// The output of commands that change uploads: one line per upload, for people or as JSON.
//
// Invariant: the exit code is 0 only if every upload succeeded.

import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol

/// The output of a command that changes uploads: one line per upload, and the exit code.
struct ActionLines {
    let json: Bool
    private var worst: CommandFailure.Code?

    /// Creates an empty report.
    init(json: Bool) { self.json = json }

    /// Prints the line about one upload.
    ///
    /// - Parameters:
    ///   - id: the upload.
    ///   - action: what was done, such as `held`, or why nothing was done, such as `refused`.
    ///   - code: the exit code for this upload's error, or nil for a success.
    ///   - clause: the rest of the sentence, which gives details.
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

    /// Prints that an upload does not exist.
    mutating func tellUnknown(_ id: UploadID) {
        tell(id, "unknown", .unknownUpload, "no such upload")
    }

    /// Prints that an upload is in use and was not changed.
    mutating func tellInUse(_ id: UploadID) {
        tell(id, "in use", .inUse, "upload is in use; try again in a moment")
    }

    private static func worse(
        _ one: CommandFailure.Code?,
        _ other: CommandFailure.Code
    ) -> CommandFailure.Code {
        // `.inUse` is temporary, so it becomes the exit code only if there is no other error.
        let order: [CommandFailure.Code] = [.unavailable, .unknownUpload, .refused, .inUse]
        return order.first { $0 == one || $0 == other } ?? other
    }

    /// Throws a failure with the exit code of the worst error, if there was any; call it after the last line.
    func end() throws(CommandFailure) {
        if let worst { throw CommandFailure(code: worst, sentence: "", isTold: true) }
    }
}
