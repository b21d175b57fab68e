// What a command tells of the uploads that it was to change: a line for each, for people or as JSON.
//
// Invariant: the exit code is 0 only where all went well.

import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol

/// Lines about one upload after another, and the exit code that comes of them.
struct ActionLines {
    let json: Bool
    private var worst: CommandFailure.Code?

    /// Begins with nothing told.
    init(json: Bool) { self.json = json }

    /// Tells of an upload.
    ///
    /// - Parameters:
    ///   - id: the upload.
    ///   - action: what was done, or what it is: `refused`.
    ///   - code: what went wrong; nil: nothing.
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

    /// Tells that there is no such upload.
    mutating func tellUnknown(_ id: UploadID) {
        tell(id, "unknown", .unknownUpload, "no such upload")
    }

    /// Tells that somebody uses it.
    mutating func tellInUse(_ id: UploadID) {
        tell(id, "in use", .inUse, "upload is in use; try again in a moment")
    }

    private static func worse(
        _ one: CommandFailure.Code?,
        _ other: CommandFailure.Code
    ) -> CommandFailure.Code {
        // What is over in a moment is told only where nothing else went wrong.
        let order: [CommandFailure.Code] = [.unavailable, .unknownUpload, .refused, .inUse]
        return order.first { $0 == one || $0 == other } ?? other
    }

    /// Ends the command with the code of what went wrong, if anything did.
    func end() throws(CommandFailure) {
        if let worst { throw CommandFailure(code: worst, sentence: "", isTold: true) }
    }
}
