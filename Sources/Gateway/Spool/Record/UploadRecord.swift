// What the spool keeps of one upload beside its content.

package import SpoolgatePosix
package import SpoolgateTextFormats
package import SpoolgateUploadProtocol

/// What is known of an upload when it is created; never changes.
package struct UploadCreation: Sendable, Equatable {
    /// Its identity.
    package var id: UploadID
    /// The route that received it.
    package var route: String
    /// Who created it, as the web server said; only the same, or the same nobody, gets at it again.
    package let owner: ExactText?
    /// Who created it, as the authorizer said where the web server did not; decides nothing.
    package var authorizedOwner: ExactText?
    /// Most bytes it may have, as the authorizer said; nil: the route's limit.
    package var maxSize: Int64?
    /// The creation's method, target and fields: what the upstream will be sent.
    package var head: RequestHead
    /// The path of its upload resource.
    package var resourcePath: String
    /// The client's address as the web server said, for forwarding fields.
    package let remoteAddress: String?
    /// The scheme the client used, as the web server said.
    package var scheme: String?
    /// When it was created.
    package var created: WallTime
    /// Whether a delivery may be repeated after an unknown outcome (RFC 9110 §9.2.2).
    package var isRepeatable: Bool
    /// What its promises survive.
    package var promise: UploadPromise
    /// What its head makes it; read once, since every request on the upload asks.
    package let kind: UploadKind

    /// Who it belongs to, whoever said so: what events, lists and forms show.
    package var principal: ExactText? { owner ?? authorizedOwner }

    /// The client whose bounds it counts against; made once, for what is asked at each step.
    package let client: ClientName
}

extension UploadCreation {
    /// Makes a creation from its parts.
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
        // The compiler's initialiser: one by hand that sets member after member copies all of them at its end.
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

/// What an offset that a client was told survives.
package enum UploadPromise: String, Sendable, CaseIterable {
    /// A power cut.
    case powerCut = "power-cut"
    /// The death of the process: nothing is synced, and a power cut removes the upload.
    case process
}

/// What happens to an upload (Postfix's words).
package enum Queue: String, Sendable, CaseIterable {
    /// Being received.
    case incoming
    /// Whole; a delivery attempt is under way.
    case active
    /// Whole; the upstream was not reached, a later attempt follows.
    case deferred
    /// Whole; waits for a person.
    case hold
    /// Delivered; only the record with the stored response is left.
    case delivered
    /// Unreadable; never touched again.
    case corrupt
}

/// One upload as `list` and `purge` see it.
package struct UploadSummary: Sendable, Equatable {
    /// Its identity.
    package var id: UploadID
    /// What happens to it.
    package var queue: Queue
    /// Its creation; nil where the record cannot be read.
    package var creation: UploadCreation?
    /// Counts the states written, of which this is one; 0 where none can be read.
    package var sequence: UInt64
    /// Bytes received.
    package var offset: Int64
    /// The length, once known.
    package var length: Int64?
    /// When content or state last changed.
    package var lastActivity: WallTime
    /// Bytes its files take on the disk.
    package var diskUsage: Int64
    /// Delivery attempts made.
    package var attempts: Int
    /// Why the last attempt did not deliver it; nil if none failed.
    package var reason: String?
    /// When the queue tries it next, or tried it, where it does so now; nil: it is not the queue's.
    package var nextAttempt: WallTime?
    /// When it was found whole, or last queued again by an operator; nil before.
    package var wholeSince: WallTime?
    /// Why it is in `hold`; nil elsewhere.
    package var holdCause: HoldCause?
    /// The status of the final response that is kept; nil: there is none that can be read.
    package var status: Int?
    /// Whether a process has locked it at this moment.
    package var isInUse: Bool
    /// The node of a shared spool that changed its state last; nil elsewhere.
    package var node: String?
}

/// A final response kept for a client that lost it.
package struct StoredResponse: Sendable, Equatable {
    /// Status and fields, ready to be relayed.
    package var head: ResponseHead
    /// The content, or nil where it was over the cap and is not kept.
    package var content: [UInt8]?

    /// Makes a stored response from its parts.
    package init(head: ResponseHead, content: [UInt8]?) {
        self.head = head
        self.content = content
    }
}
