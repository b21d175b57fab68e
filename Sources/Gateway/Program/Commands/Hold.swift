// `spoolgate hold`: keeps complete uploads from being delivered until they are released.

import ArgumentParser
import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol

struct Hold: SpoolgateCommand {
    static let configuration = CommandConfiguration(
        abstract: "Keep complete uploads from being delivered.",
        discussion: """
            Puts complete uploads that wait in the queue (deferred) on hold, until "spoolgate release" \
            or "spoolgate requeue". Their clients are asked to retry later. Safe while a daemon runs; an \
            upload that is in use is not changed.
            """
    )

    @OptionGroup var options: SettingsOptions
    @OptionGroup var uploads: NamedUploads

    @Flag(help: "Print one JSON object per upload.")
    var json = false

    func validate() throws {
        if uploads.ids.isEmpty { throw ValidationError("Name the uploads to hold.") }
    }

    func perform() throws(CommandFailure) {
        var action = try UploadAction(options, word: "held", json: json)
        for id in uploads.ids { action.apply(to: id, Self.hold) }
        try action.end()
    }

    private static func hold(_ upload: Upload) throws(SpoolError) -> ActionOutcome {
        switch upload.state.phase {
        case .deferred:
            let was = upload.formerStateClause
            try upload.hold(.held, reason: upload.reason ?? "held by an operator")
            return .done(was: was)
        case .held: return .already("already on hold since \(upload.lastActivity)")
        case .indeterminate, .failed:
            return .refused("\(upload.stateClause); only a requeue would deliver it")
        case .receiving: return .refused("\(upload.stateClause); hold it when it is complete")
        case .delivering, .delivered: return .refused(upload.stateClause)
        }
    }
}
