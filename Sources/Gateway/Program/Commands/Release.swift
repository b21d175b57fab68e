// `spoolgate release`: returns held uploads to the queue.

import ArgumentParser
import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol

struct Release: SpoolgateCommand {
    static let configuration = CommandConfiguration(
        abstract: "Return held uploads to the queue.",
        discussion: """
            Undoes "spoolgate hold", for an immediate attempt. Uploads that failed, or whose outcome is \
            indeterminate, are not released; use "spoolgate requeue" for those.
            """
    )

    @OptionGroup var options: SettingsOptions
    @OptionGroup var uploads: NamedUploads

    @Flag(help: "Print one JSON object per upload.")
    var json = false

    func validate() throws {
        if uploads.ids.isEmpty { throw ValidationError("Name the uploads to release.") }
    }

    func perform() throws(CommandFailure) {
        var action = try UploadAction(options, word: "released", json: json)
        for id in uploads.ids { action.apply(to: id, Self.release) }
        try action.end()
    }

    private static func release(_ upload: Upload) throws(SpoolError) -> ActionOutcome {
        switch upload.state.phase {
        case .held: return try upload.requeueWhole()
        case .failed, .indeterminate:
            return .refused("\(upload.stateClause); requeue it to retry")
        case .receiving, .deferred, .delivering, .delivered: return .refused(upload.stateClause)
        }
    }
}
