// What `hold`, `release` and `requeue` have in common: uploads named on the command line are held one by
// one, changed or refused, and the outcome is told of each.
//
// It runs beside a daemon. Invariant: an upload that anybody uses is left alone, and every upload named
// gets one line.

import ArgumentParser
import Logging
import SpoolgateJournal
import SpoolgatePosix
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol

/// Which uploads a command is about.
struct NamedUploads: ParsableArguments {
    @Argument(
        help: ArgumentHelp("The identities of the uploads.", valueName: "upload"),
        transform: readUpload
    )
    var ids: [UploadID] = []
}

/// What became of one upload.
enum ActionOutcome {
    /// It was changed; a clause says what it was.
    case done(was: String)
    /// It was as the operator wants it before; a clause says so.
    case already(String)
    /// It may not be changed: a clause says why, and what to do.
    case refused(String)
}

/// A change of one upload after another, with a line for each.
struct UploadAction {
    let spool: Spool
    /// What is said of an upload that was changed: `held`.
    let word: String
    private let events: Events
    private var lines: ActionLines
    private var hasHeld = false

    /// Opens the spool for a command that changes uploads.
    init(_ options: SettingsOptions, word: String, json: Bool) throws(CommandFailure) {
        let settings = try options.settings()
        spool = try openSpool(settings)
        let log = Log(Serve.logger(.warning, node: settings.node))
        events = Events(settings, spool: spool, log: log)
        self.word = word
        lines = ActionLines(json: json)
    }

    /// Holds an upload while `body` changes it, and tells what became of it.
    ///
    /// - Parameters:
    ///   - id: the upload.
    ///   - body: changes it.
    mutating func apply(
        to id: UploadID,
        _ body: (Upload) throws(SpoolError) -> ActionOutcome
    ) {
        do throws(SpoolError) {
            guard let upload = try spool.tryLock(id) else {
                if let seen = try spool.look(at: id), seen.queue != .corrupt {
                    return lines.tellInUse(id)
                }
                return lines.tellUnknown(id)
            }
            defer { upload.unlock() }
            switch try body(upload) {
            case .done(let was):
                if upload.state.phase == .held {
                    hasHeld = true
                    events.note(Event(.held, of: upload, reason: upload.reason))
                }
                lines.tell(id, word, nil, was)
            case .already(let clause): lines.tell(id, word, nil, clause)
            case .refused(let why): refuse(id, why)
            }
        } catch {
            lines.tell(id, "failed", .unavailable, error.sentence)
        }
    }

    /// Tells that an upload is not changed, and why.
    mutating func refuse(_ id: UploadID, _ why: String) {
        lines.tell(id, "refused", .refused, "not \(word): \(why)")
    }

    /// Has the daemons see what is held, as they do what is queued, and ends the command with the code of what
    /// went wrong, if anything did.
    func end() throws(CommandFailure) {
        // Where they cannot be told, their next run of the queue sees it.
        if hasHeld { _ = try? spool.wakeDaemons() }
        try lines.end()
    }
}

extension Upload {
    /// What it is, as a clause for an operator; why it is so, `show` and `list` tell.
    var stateClause: String {
        switch state.phase {
        case .receiving: return "upload is partial (its client has not sent all content)"
        case .deferred: return "upload is deferred"
        case .delivering: return "upload is being delivered"
        case .delivered:
            guard let status = state.finalStatus, status >= 400 else {
                return "upload is delivered"
            }
            return "upstream refused the upload with status \(status), which is final"
        case .indeterminate:
            return "outcome is indeterminate (the upstream may already have the upload)"
        case .failed: return "upload failed"
        case .held: return "upload is on hold"
        }
    }

    /// What it was, as such a clause, before it is changed.
    var formerStateClause: String {
        switch state.phase {
        case .deferred: "was deferred"
        case .indeterminate: "outcome was indeterminate (the upstream may already have the upload)"
        case .failed: "had failed"
        case .held: "was on hold"
        case .receiving, .delivering, .delivered: stateClause
        }
    }

    /// Gives it to the queue, due at once, if all of its content is there still.
    func requeueWhole() throws(SpoolError) -> ActionOutcome {
        guard state.offset == state.length else {
            return .refused("part of the content is missing")
        }
        let was = formerStateClause
        try requeue(at: .now)
        return .done(was: was)
    }
}
