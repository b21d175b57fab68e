// One thing that happened to an upload, as programs read it; see spoolgate-events(5).
//
// Invariant: nothing in it is a credential or a field of a request, but for the one that correlates.

import HTTPTypes
package import SpoolgatePosix
package import SpoolgateSpool
package import SpoolgateTextFormats
package import SpoolgateUploadProtocol

/// One event in the life of an upload.
package struct Event: Sendable {
    /// What can happen.
    package enum Kind: String, Sendable, CaseIterable {
        /// An upload resource was made.
        case created
        /// Content of one request ended early; what arrived is kept.
        case interrupted
        /// The content is whole.
        case completed
        /// There is a final response of the upstream, whatever its status.
        case delivered
        /// There is no final response yet; it is tried again.
        case deferred
        /// It is not delivered and will not be.
        case failed
        /// Its outcome is unknown, or an operator holds it.
        case held
        /// It was idle for longer than its route keeps one.
        case expired
        /// Its client removed it.
        case cancelled
        /// An operator removed it.
        case purged
    }

    /// What happened.
    package var kind: Kind
    /// When; set when it is told.
    package var time = WallTime(seconds: 0)
    /// The node that tells it; nil: there is one.
    package var node: String?
    /// The upload's identity.
    package var upload: UploadID
    /// Its route; nil: not known.
    package var route: String?
    /// Who it belongs to.
    package var owner: String?
    /// The method of the request that created it.
    package var method: String?
    /// The target of that request.
    package var target: String?
    /// Bytes received.
    package var offset: Int64?
    /// Bytes of the whole, once known.
    package var length: Int64?
    /// The status of the final response.
    package var status: Int?
    /// Why.
    package var reason: String?
    /// When the next delivery attempt is due.
    package var nextAttempt: WallTime?
    /// Delivery attempts made.
    package var attempts: Int?
    /// What correlates it with other logs.
    package var correlation: String?
    /// The creation, until `correlation` was taken from it.
    package var creation: UploadCreation?

    /// An event of an upload that is held.
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

    /// An event of an upload that was seen without holding it.
    package init(_ kind: Kind, of summary: UploadSummary) {
        self.init(kind, of: summary.creation, id: summary.id)
        offset = summary.offset
        length = summary.length
        attempts = summary.attempts
        reason = summary.reason
    }

    /// An event of an upload of which only that is known.
    package init(_ kind: Kind, of creation: UploadCreation?, id: UploadID) {
        self.kind = kind
        upload = id
        self.creation = creation
        route = creation?.route
        owner = creation?.principal?.text
        method = creation?.head.method.rawValue
        target = creation?.head.target
    }

    /// The event as one JSON object; what is not known is left out.
    package var json: JSON {
        var members: [(name: String, value: JSON)] = [
            ("time", .string(time.description)), ("event", .string(kind.rawValue)),
            ("upload", .string(upload.description)),
        ]
        func add(_ name: String, _ text: String?) {
            if let text { members.append((name, .string(text))) }
        }
        func add(_ name: String, _ number: Int64?) {
            if let number { members.append((name, .integer(number))) }
        }
        add("node", node)
        add("route", route)
        add("owner", owner)
        add("method", method)
        add("target", target)
        add("offset", offset)
        add("length", length)
        add("status", status.map(Int64.init))
        add("reason", reason)
        add("next-attempt", nextAttempt?.description)
        add("attempts", attempts.map(Int64.init))
        add("correlation", correlation)
        return .object(members)
    }
}
