// `spoolgate hold`: keeps whole uploads from being delivered until they are released.

import ArgumentParser
import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol

struct Hold: SpoolgateCommand {
    static let configuration = CommandConfiguration(
        abstract: "Keep uploads that wait for the upstream from being delivered.",
        discussion: """
            Holds whole uploads that wait in the queue (deferred), until "spoolgate release" or \
            "spoolgate requeue". Their clients are told to ask again later. Safe beside a running \
            daemon; an upload that is in use is left alone.
            """
    )

    @OptionGroup var options: SettingsOptions
    @OptionGroup var uploads: NamedUploads

    @Flag(help: "One JSON object a line, for each upload.")
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
        case .held: return .already("already held since \(upload.lastActivity)")
        case .indeterminate, .failed:
            return .refused("\(upload.stateClause); nothing delivers it as it is")
        case .receiving: return .refused("\(upload.stateClause); hold it once it is whole")
        case .delivering, .delivered: return .refused(upload.stateClause)
        }
    }
}
