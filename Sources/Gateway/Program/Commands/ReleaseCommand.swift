// `spoolgate release`: gives held uploads back to the queue.

import ArgumentParser
import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol

struct Release: SpoolgateCommand {
    static let configuration = CommandConfiguration(
        abstract: "Give held uploads back to the queue.",
        discussion: """
            Undoes "spoolgate hold": the uploads are tried at once. Uploads that failed, \
            or whose outcome is indeterminate, are not released; see "spoolgate requeue".
            """
    )

    @OptionGroup var options: SettingsOptions
    @OptionGroup var uploads: NamedUploads

    @Flag(help: "One JSON object a line, for each upload.")
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
            return .refused("\(upload.stateClause); to try it again, requeue it")
        case .receiving, .deferred, .delivering, .delivered: return .refused(upload.stateClause)
        }
    }
}
