// The code that `hold`, `release` and `requeue` share.
//
// They work while a daemon runs. Invariant: an upload that is in use is not changed, and every named upload has one
// line of output.

import ArgumentParser
import Logging
import SpoolgateJournal
import SpoolgatePosix
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol

struct NamedUploads: ParsableArguments {
    @Argument(
        help: .value("upload", "The identities of the uploads."),
        transform: readUpload
    )
    var ids: [UploadID] = []
}

/// The result for one upload, as a clause for the operator.
enum ActionOutcome {
    case done(was: String)
    /// The upload was already in the requested state.
    case already(String)
    /// The upload was not changed; the clause says why, and what to do.
    case refused(String)
}

/// Applies `hold`, `release` or `requeue` to uploads one at a time, and prints one line for each.
struct UploadAction {
    let spool: Spool
    /// The word printed for a changed upload, such as `held`.
    let word: String
    private let events: Events
    private var lines: ActionLines
    private var hasHeld = false

    init(_ options: SettingsOptions, word: String, json: Bool) throws(CommandFailure) {
        let settings = try options.settings()
        spool = try openSpoolForChange(settings)
        let log = Log(Serve.logger(.warning, node: settings.node))
        events = Events(settings, spool: spool, log: log)
        self.word = word
        lines = ActionLines(json: json)
    }

    /// Locks an upload, calls `body` to change it, and prints the result.
    ///
    /// `body` is not called for an upload that is unknown or in use.
    mutating func apply(
        to id: UploadID,
        _ body: (Upload) throws(SpoolError) -> ActionOutcome
    ) {
        do throws(SpoolError) {
            guard let upload = try spool.tryLock(id) else {
                if let seen = try spool.look(at: id), seen.queue != .corrupt {
                    return lines.reportInUse(id)
                }
                return lines.reportUnknown(id)
            }
            defer { upload.unlock() }
            switch try body(upload) {
            case .done(let was):
                if upload.state.phase == .held {
                    hasHeld = true
                    events.note(Event(.held, of: upload, reason: upload.reason))
                }
                lines.report(id, word, nil, was)
            case .already(let clause): lines.report(id, word, nil, clause)
            case .refused(let why): refuse(id, why)
            }
        } catch {
            lines.report(id, "failed", .unavailable, error.sentence)
        }
    }

    mutating func refuse(_ id: UploadID, _ why: String) {
        lines.report(id, "refused", .refused, "not \(word): \(why)")
    }

    /// Notifies the daemons if uploads were held, then throws the worst failure, if any.
    func end() throws(CommandFailure) {
        // If notifying fails, the next queue run of each daemon detects the change.
        if hasHeld { spool.wake() }
        try lines.end()
    }
}

extension Upload {
    /// The upload's state as a clause; `show` and `list` print the reason separately.
    var stateClause: String {
        switch state.phase {
        case .receiving: return "upload is partial (its client has not sent all content)"
        case .deferred: return "upload is deferred"
        case .delivering: return "upload is being delivered"
        case .delivered:
            guard let status = state.finalStatus, state.isRefused else {
                return "upload is delivered"
            }
            return "upstream refused the upload with status \(status), which is final"
        case .indeterminate:
            return "outcome is indeterminate (the upstream may already have the upload)"
        case .failed: return "upload failed"
        case .held: return "upload is on hold"
        }
    }

    /// The state as a clause in the past tense; read this clause before the state is changed.
    var formerStateClause: String {
        switch state.phase {
        case .deferred: "was deferred"
        case .indeterminate: "outcome was indeterminate (the upstream may already have the upload)"
        case .failed: "had failed\(reason.map { " (\($0))" } ?? "")"
        case .held: "was on hold"
        case .receiving, .delivering, .delivered: stateClause
        }
    }

    /// Queues the upload for immediate delivery if its content is complete.
    func requeueWhole() throws(SpoolError) -> ActionOutcome {
        guard state.offset == state.length else {
            return .refused("part of the content is missing")
        }
        let was = formerStateClause
        try requeue(at: .now)
        return .done(was: was)
    }
}
