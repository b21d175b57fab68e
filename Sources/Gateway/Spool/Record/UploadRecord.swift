// The data of an upload in the spool, except its content.

package import SpoolgatePosix
package import SpoolgateTextFormats
package import SpoolgateUploadProtocol

/// The properties of an upload that are fixed at its creation.
package struct UploadCreation: Sendable, Equatable {
    package var id: UploadID
    /// The route that received it.
    package var route: String
    /// The owner as reported by the web server; nil: none.
    ///
    /// Only requests with the same owner, or without one, can use the upload.
    package let owner: ExactText?
    /// The owner as reported by the authorizer, if the web server reported none; not used for access control.
    package var authorizedOwner: ExactText?
    /// The maximum size in bytes set by the authorizer; nil: the route's limit.
    package var maxSize: Int64?
    /// The creation's method, target and fields, which are sent to the upstream.
    package var head: RequestHead
    package var resourcePath: String
    /// The client's address as reported by the web server, for forwarding fields.
    package let remoteAddress: String?
    /// The scheme of the client's request as reported by the web server.
    package var scheme: String?
    package var created: WallTime
    /// Whether a delivery may be retried if its outcome is unknown (RFC 9110 §9.2.2).
    package var isRepeatable: Bool
    /// The guarantee for acknowledged offsets.
    package var promise: UploadPromise
    /// The kind of upload according to `head`; computed once because every request needs it.
    package let kind: UploadKind

    /// The owner from either source, as shown in events, lists and forms.
    package var principal: ExactText? { owner ?? authorizedOwner }

    /// The client whose limits apply; computed once because every step needs it.
    package let client: ClientName
}

extension UploadCreation {
    /// Creates the properties of an upload.
    package init(
        id: UploadID,
        route: String,
        owner: ExactText?,
        authorizedOwner: ExactText? = nil,
        maxSize: Int64? = nil,
        head: RequestHead,
        resourcePath: String,
        remoteAddress: String?,
        scheme: String?,
        created: WallTime,
        isRepeatable: Bool,
        promise: UploadPromise = .powerCut,
        client: ClientName? = nil
    ) {
        // The compiler's initialiser is faster: one that sets each member copies the result at its end.
        self.init(
            id: id,
            route: route,
            owner: owner,
            authorizedOwner: authorizedOwner,
            maxSize: maxSize,
            head: head,
            resourcePath: resourcePath,
            remoteAddress: remoteAddress,
            scheme: scheme,
            created: created,
            isRepeatable: isRepeatable,
            promise: promise,
            kind: UploadKind(of: head),
            client: client ?? ClientName(owner: owner, address: remoteAddress)
        )
    }
}

/// The failure that an acknowledged offset survives.
package enum UploadPromise: String, Sendable, CaseIterable {
    /// A power failure.
    case powerCut = "power-cut"
    /// A crash: nothing is synced, and a power failure removes the upload.
    case process
}

/// The state of an upload (Postfix's words).
package enum Queue: String, Sendable, CaseIterable {
    /// Complete; later attempts follow.
    case incoming
    /// Complete; an attempt is in progress.
    case active
    /// Complete; a later attempt follows.
    case deferred
    /// Complete; waits for an operator.
    case hold
    /// Delivered; only the record with the stored response is left.
    case delivered
    /// Unreadable; left unchanged.
    case corrupt
}

/// An upload as shown by `list` and `purge`.
package struct UploadSummary: Sendable, Equatable {
    package var id: UploadID
    package var queue: Queue
    /// Its creation; nil if the record cannot be read.
    package var creation: UploadCreation?
    /// The sequence number of its state; 0 if none can be read.
    package var sequence: UInt64
    package var offset: Int64
    package var length: Int64?
    package var lastActivity: WallTime
    /// The number of bytes on the disk.
    package var diskUsage: Int64
    package var attempts: Int
    package var reason: String?
    /// When the next attempt is due, or was due if in progress; nil if the upload is not queued.
    package var nextAttempt: WallTime?
    /// When it was completed, or last requeued by an operator; nil before.
    package var wholeSince: WallTime?
    package var holdCause: HoldCause?
    /// The status of the stored response, if it can be read.
    package var status: Int?
    /// Whether a process has locked it.
    package var isInUse: Bool
    /// The node that last changed its state, in a shared spool.
    package var node: String?
}

/// A final response, stored for a client that did not receive it.
package struct StoredResponse: Sendable, Equatable {
    /// The status and fields, ready to be sent.
    package var head: ResponseHead
    /// The content; nil if it was too large to be stored.
    package var content: [UInt8]?

    /// Creates a stored response.
    package init(head: ResponseHead, content: [UInt8]?) {
        self.head = head
        self.content = content
    }
}
