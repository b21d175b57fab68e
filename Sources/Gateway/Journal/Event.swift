// Events that report changes of uploads to programs; see spoolgate-events(5).
//
// Invariant: an event contains no credential and no field of a request except the correlation ID.

import HTTPTypes
package import SpoolgatePosix
package import SpoolgateSpool
package import SpoolgateTextFormats
package import SpoolgateUploadProtocol

/// The report of one change of an upload.
package struct Event: Sendable {
    /// The kinds of events.
    package enum Kind: String, Sendable, CaseIterable {
        case created
        /// A request's content ended early; the bytes received are kept.
        case interrupted
        case completed
        /// The upstream sent a final response, with any status.
        case delivered
        /// A delivery attempt failed; another attempt follows.
        case deferred
        /// The upload will not be delivered.
        case failed
        /// The outcome of the delivery is unknown, or an operator has put the upload on hold.
        case held
        /// The upload was idle longer than its route allows.
        case expired
        case cancelled
        /// The command `purge` removed the upload.
        case purged
    }

    package var kind: Kind
    /// The time of the event, set when it is written.
    package var time = WallTime(seconds: 0)
    /// The node's name; nil if the settings name no node.
    package var node: String?
    package var upload: UploadID
    /// The upload's route; nil if unknown.
    package var route: String?
    package var owner: String?
    package var method: String?
    package var target: String?
    package var offset: Int64?
    /// The length of the complete upload in bytes; nil if unknown.
    package var length: Int64?
    /// The status code of the final response; nil without a response.
    package var status: Int?
    package var reason: String?
    package var nextAttempt: WallTime?
    package var attempts: Int?
    package var correlation: String?
    /// The upload's creation, nil if unknown; `correlation` is read from it when the event is written.
    package var creation: UploadCreation?

    /// Creates an event about a locked upload.
    package init(
        _ kind: Kind,
        of upload: Upload,
        status: Int? = nil,
        reason: String? = nil
    ) {
        self.init(kind, of: upload.creation, id: upload.creation.id)
        self.status = status
        self.reason = reason
        guard upload.isRecorded else {
            length = upload.offset
            return
        }
        offset = upload.offset
        length = upload.state.length
        attempts = upload.attempts
        nextAttempt = upload.nextAttempt
    }

    /// Creates an event about an upload that was read without a lock.
    package init(_ kind: Kind, of summary: UploadSummary) {
        self.init(kind, of: summary.creation, id: summary.id)
        offset = summary.offset
        length = summary.length
        attempts = summary.attempts
        reason = summary.reason
    }

    /// Creates an event about an upload with at least a known ID.
    package init(_ kind: Kind, of creation: UploadCreation?, id: UploadID) {
        self.kind = kind
        upload = id
        self.creation = creation
        route = creation?.route
        owner = creation?.principal?.text
        method = creation?.head.method.rawValue
        target = creation?.head.target
    }

    /// The event as a JSON object, without unknown values.
    package var json: JSON {
        let members: [(name: String, value: JSON)] = [
            ("time", .string(time.description)), ("event", .string(kind.rawValue)),
            ("upload", .string(upload.description)), ("node", .string(node)),
            ("route", .string(route)), ("owner", .string(owner)), ("method", .string(method)),
            ("target", .string(target)), ("offset", .integer(offset)), ("length", .integer(length)),
            ("status", .integer(status)), ("reason", .string(reason)),
            ("next-attempt", .string(nextAttempt?.description)), ("attempts", .integer(attempts)),
            ("correlation", .string(correlation)),
        ]
        return .object(members.filter { if case .null = $0.value { false } else { true } })
    }
}
