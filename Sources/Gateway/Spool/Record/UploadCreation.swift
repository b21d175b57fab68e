// The data of an upload in the spool, except its content.

import SpoolgateCrypto
package import SpoolgatePosix
package import SpoolgateTextFormats
package import SpoolgateUploadProtocol

/// The properties of an upload that never change after its creation.
///
/// A new property needs a row in `visit`, and its name in spoolgate-spool(5).
package struct UploadCreation: Sendable, Equatable {
    package internal(set) var id: UploadID
    package var route: String
    /// The owner as reported by the web server, or nil if it reported none.
    ///
    /// Only requests with the same owner can use the upload. If the owner is nil, only requests without an owner can.
    package internal(set) var owner: ExactText?
    /// The owner as reported by the authorizer, if the web server reported none; not used for access control.
    package var authorizedOwner: ExactText?
    /// The maximum size in bytes set by the authorizer, or nil if only the route's limit applies.
    package var maxSize: Int64?
    /// The method, target and fields of the request that created the upload, which are sent to the upstream.
    package var head: RequestHead
    /// The path of the upload resource, or empty if there is none.
    package var resourcePath = ""
    /// The client's address as reported by the web server, for forwarding fields.
    package internal(set) var remoteAddress: String?
    package var scheme: String?
    package var created: WallTime
    /// Whether a delivery may be retried if its outcome is unknown (RFC 9110 §9.2.2).
    package var isRepeatable = false
    package var promise = UploadPromise.powerCut
    /// The kind of upload derived from `head`; stored because every request needs it.
    package private(set) var kind: UploadKind
    /// The client against whose limits the upload counts; stored because every step needs it.
    package private(set) var client: ClientName

    /// The lines of the creation, except those of the fields, in the order of writing.
    mutating func visit(_ lines: inout (some RecordRows & ~Copyable)) {
        lines.row("id", &id)
        lines.row("route", &route)
        lines.row("owner", ifSet: &owner)
        lines.row("authorized-owner", ifSet: &authorizedOwner)
        lines.row("max-size", ifSet: &maxSize)
        lines.row("method", &head.method)
        lines.row("target", &head.target)
        lines.row("content-length", ifSet: &head.contentLength.recordedCount)
        lines.row("resource", &resourcePath)
        lines.row("remote", ifSet: &remoteAddress)
        lines.row("scheme", ifSet: &scheme)
        lines.row("created", &created)
        lines.row("repeatable", &isRepeatable)
        lines.row("promise", &promise)
    }

    /// The owner from either source, or nil if unknown.
    package var principal: ExactText? { owner ?? authorizedOwner }

    /// Sets the properties that are stored, but not recorded.
    mutating func derive() {
        kind = UploadKind(of: head)
        client = ClientName(owner: owner, address: remoteAddress)
    }
}

extension ContentLength {
    fileprivate var recordedCount: Int64? {
        get { count }
        set { self = newValue.map { .known($0) } ?? .unknown }
    }
}

extension UploadCreation {
    /// Creates the properties of an upload without a resource; the other properties can be set afterwards.
    package init(
        id: UploadID,
        route: String,
        owner: ExactText? = nil,
        head: RequestHead,
        remoteAddress: String? = nil,
        created: WallTime
    ) {
        // The compiler's initialiser is faster: one that sets each member copies the result at its end.
        self.init(
            id: id,
            route: route,
            owner: owner,
            head: head,
            remoteAddress: remoteAddress,
            created: created,
            kind: UploadKind(of: head),
            client: ClientName(owner: owner, address: remoteAddress)
        )
    }
}

/// The failure that an acknowledged offset survives.
package enum UploadPromise: String, Sendable, CaseIterable {
    /// A power failure.
    case powerCut = "power-cut"
    /// A crash of the process; nothing is synced.
    case process
}

/// The state of an upload, named as in Postfix.
package enum Queue: String, Sendable, CaseIterable {
    /// Incomplete: being received, or waiting for its client to resume it.
    case incoming
    /// Complete; a delivery attempt is in progress.
    case active
    /// Complete; waiting for its next attempt or its client.
    case deferred
    /// Complete; waiting for an operator.
    case hold
    /// Delivered or permanently refused; only the record with the stored response is left.
    case delivered
    /// The record is unreadable or does not match the content; the files are kept for an operator.
    case corrupt
}

/// An upload as shown by `spoolgate list` and `spoolgate purge`.
package struct UploadSummary: Sendable, Equatable {
    package var id: UploadID
    package var queue: Queue
    /// The properties fixed at creation, or nil if the record cannot be read.
    package var creation: UploadCreation?
    /// The sequence number of the newest state, or 0 if none can be read.
    package var sequence: UInt64 = 0
    package var offset: Int64 = 0
    package var length: Int64?
    package var lastActivity: WallTime
    /// The number of bytes that the upload occupies on the disk.
    package var diskUsage: Int64 = 0
    package var attempts = 0
    package var reason: String?
    /// The time at which the next or current attempt is or was due, or nil if the upload is not queued.
    package var nextAttempt: WallTime?
    /// The time of the completion or the last requeue, or nil if the upload is incomplete.
    package var completeSince: WallTime?
    package var holdCause: HoldCause?
    /// The status of the stored final response, or nil if it is missing or unreadable.
    package var status: Int?
    package var isInUse = false
    /// Whether the upload is content in `corrupt` whose record is missing.
    package var lacksRecord = false
    /// The node that last changed the upload's state, or nil if the spool is not shared.
    package var node: String?
}

/// A final response, stored in case the client did not receive it.
package struct StoredResponse: Sendable, Equatable {
    package var head: ResponseHead
    /// The content, or nil if it was too large to be stored.
    package var content: [UInt8]?

    /// Creates a stored response.
    package init(head: ResponseHead, content: [UInt8]?) {
        self.head = head
        self.content = content
    }
}

// MARK: Identities

// Identities for new uploads.

extension UploadID {
    /// Returns a new random identity that clients cannot guess (draft-12 §4.2.2, §13).
    package static func random() -> UploadID {
        let bits = RandomBits.pair()
        return UploadID(high: bits.high, low: bits.low)
    }
}
