// The output of commands that change uploads: one line per upload, for people or as JSON.
//
// Invariant: the exit code is 0 only if every upload succeeded.

import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol

struct ActionLines {
    let json: Bool
    private var worst: CommandFailure.Code?

    init(json: Bool) { self.json = json }

    /// Prints a line; `action` is a word such as `held` or `refused`, and `code` is nil for a success.
    mutating func report(
        _ id: UploadID,
        _ action: String,
        _ code: CommandFailure.Code?,
        _ clause: String
    ) {
        if let code { worst = Self.order.first { $0 == worst || $0 == code } ?? code }
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

    mutating func reportUnknown(_ id: UploadID) {
        report(id, "unknown", .unknownUpload, "no such upload")
    }

    mutating func reportInUse(_ id: UploadID) {
        report(id, "in use", .inUse, "upload is in use; try again in a moment")
    }

    /// `.inUse` is temporary, so every other error takes precedence.
    private static let order: [CommandFailure.Code] = [
        .unavailable, .unknownUpload, .refused, .inUse,
    ]

    /// Throws the exit code of the worst error, if any; call it after the last line.
    func end() throws(CommandFailure) {
        if let worst { throw CommandFailure(worst, "", isReported: true) }
    }
}
