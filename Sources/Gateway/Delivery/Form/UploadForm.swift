// The regular request for one upload, in its route's form.
//
// Invariant: the upload's own bytes are neither changed nor held in memory.

package import HTTPTypes
import SpoolgateJournal
import SpoolgatePosix
package import SpoolgateSettings
package import SpoolgateSpool
import SpoolgateTextFormats
package import SpoolgateUploadProtocol
package import SpoolgateUpstream

/// The reason why a request could not be built.
///
/// Nothing was sent.
package struct FormFailure: Error, Equatable {
    /// The failed action and its object, for the log.
    package var reason: String
    /// Whether the file system to write to is full.
    package var isFull = false
}

struct UploadForm {
    let request: UpstreamRequest
    /// The handed-over file; nil in forms other than `path`.
    private let handover: Handover?

    /// Builds the request for a complete upload.
    ///
    /// In the form `path`, the file is in its directory on return, and is as durable as the upload's promise requires.
    ///
    /// - Throws: `FormFailure` if the file cannot be handed over or the signing key cannot be read.
    init(
        of upload: Upload,
        completing: HTTPFields?,
        _ grant: Grant?,
        _ digests: UploadDigests,
        by delivery: Delivery,
        onProgress: () -> Void
    ) throws(FormFailure) {
        let route = delivery.route
        var head = upload.creation.head
        grant?.apply(to: &head)
        var description: FileDescription {
            var creation = upload.creation
            creation.head = head
            return FileDescription(creation, length: upload.offset, digests)
        }
        var fields = Self.fields(of: upload, head, by: delivery, completing: completing)
        let content: UpstreamContent
        var handover: Handover?
        switch route.form(for: head) {
        case .body:
            content = upload.upstreamContent
            if let algorithm = route.settings.digest { fields.add(digests.values, algorithm) }
            UpstreamFields.addMetadata(of: head, to: &fields, policy: route.settings.fields)
        case .multipart:
            let multipart = description.multipart(route.settings.multipart)
            fields.describe(multipart.contentType)
            content = upload.upstreamContent.framed(multipart.before, multipart.after)
        case .path:
            let time = delivery.deliveries.clock.now
            let settings = route.settings.path
            let key = try SigningKey(settings)
            let placed = try Handover(upload.upstreamContent, description, settings, onProgress)
            handover = placed
            var notice = description.notice(path: placed.path)
            key.sign(&notice, at: time)
            fields.describe("application/x-www-form-urlencoded")
            content = .bytes(notice.content)
        }
        self.handover = handover
        var request = UpstreamRequest(
            method: route.method(for: head),
            target: head.target,
            fields: fields,
            content: content,
            upload: upload.creation.id,
            survivesPowerCut: upload.creation.promise == .powerCut
        )
        if route.settings.upstream.store != nil {
            request.facts = UploadFacts(
                target: head.target,
                fields: head.fields,
                owner: upload.creation.principal?.text,
                digests: digests.texts()
            )
        }
        self.request = request
    }

    private static func fields(
        of upload: Upload,
        _ head: RequestHead,
        by delivery: Delivery,
        completing: HTTPFields?
    ) -> HTTPFields {
        let route = delivery.route
        // Copies of the creation or the settings would retain dozens of references.
        let policy = route.settings.fields
        var fields = UpstreamFields.delivered(
            head.fields,
            granted: head.granted,
            completing: completing,
            isWhole: !upload.isRecorded,
            policy: policy
        )
        fields.addForwarding(
            policy.forwarding,
            address: upload.creation.remoteAddress,
            scheme: upload.creation.scheme,
            host: head.fields.value(of: .host),
            except: head.granted,
            by: route.gateway
        )
        if route.settings.honoursIdempotencyKey, upload.isRecorded, fields[.idempotencyKey] == nil {
            fields[.idempotencyKey] = "\"\(upload.creation.id)\""
        }
        UpstreamFields.finish(
            &fields,
            policy: policy,
            via: route.gateway.via,
            correlation: delivery.deliveries.current.settings.correlation(in: upload.creation.head)
        )
        return fields
    }

    /// Removes the handed-over file after a 2xx response.
    ///
    /// `status` is nil without a final response.
    func end(status: Int?) {
        guard let status, (200..<300).contains(status) else { return }
        handover?.withdraw()
    }

    /// Removes the handed-over file, because the upstream did not receive its path.
    func takeBack() { handover?.withdraw() }
}

extension Route {
    /// The form in which the upload is sent to the upstream.
    ///
    /// If the route's form is `multipart` and the content is already an HTML form, the content is sent unchanged.
    package func form(for creation: RequestHead) -> Form {
        let form = settings.form
        guard form == .multipart, let type = creation.fields[.contentType] else { return form }
        let isForm = ["multipart/form-data", "application/x-www-form-urlencoded"].contains {
            MediaType.of(type, is: $0)
        }
        return isForm ? .body : .multipart
    }

    /// Whether the gateway must refuse a part of a representation (`Content-Range`).
    ///
    /// True if the upload is inspected, or is delivered as a file, an object or a form.
    package func needsWhole(for creation: RequestHead) -> Bool {
        inspection != nil || settings.upstream.store != nil || form(for: creation) != .body
    }

    /// The method of the request to the upstream: POST for forms, otherwise the client's method.
    package func method(for creation: RequestHead) -> HTTPRequest.Method {
        switch form(for: creation) {
        case .body: creation.method
        case .multipart, .path: .post
        }
    }

    /// Whether an upload may be sent again although the upstream may have received it completely.
    ///
    /// True if the upstream honours the idempotency key, and for stores on a server, which replace no object. Otherwise
    /// the method must be idempotent, and a request that changes something must be unconditional.
    package func mayRepeat(_ creation: RequestHead) -> Bool {
        settings.honoursIdempotencyKey || settings.upstream.serverStore != nil
            || method(for: creation).isRepeatable(with: creation.fields)
    }
}

extension HTTPFields {
    /// Adds a computed digest to `Repr-Digest`, unless the client sent one of the same algorithm.
    fileprivate mutating func add(_ digests: DigestValues, _ algorithm: DigestAlgorithm) {
        guard let value = digests.fieldValue(of: algorithm) else { return }
        // `try?`: an invalid digest was refused earlier.
        let reported = try? DigestValues(.reprDigest, in: self)
        guard reported?[algorithm] == nil else { return }
        self[.reprDigest] = (self[.reprDigest].map { "\($0), " } ?? "") + value
    }

    /// Replaces the fields that describe the upload with those of a form.
    fileprivate mutating func describe(_ contentType: String) {
        removeAll {
            $0.name.canonicalName.hasPrefix("content-") || $0.name == .reprDigest
        }
        self[.contentType] = contentType
    }
}

extension Upload {
    fileprivate var upstreamContent: UpstreamContent {
        if let buffer = content.buffer { return .held(buffer) }
        if let bytes = content.inMemory { return .bytes(bytes) }
        return .file(descriptor: dataFile, length: state.offset) { buffer, position in
            try self.read(into: buffer, at: position)
        }
    }
}

extension UpstreamContent {
    /// Adds bytes before and after this content.
    package func framed(_ before: [UInt8], _ after: [UInt8]) -> UpstreamContent {
        switch self {
        case .none:
            return .bytes(before + after)
        case .bytes(let bytes):
            return .bytes(before + bytes + after)
        case .held(let buffer):
            return .framed(
                before: before,
                length: Int64(buffer.count),
                read: { target, position in buffer.copy(from: Int(position), to: target) },
                after: after
            )
        case .file(_, let length, let read):
            return .framed(before: before, length: length, read: read, after: after)
        case .framed, .stream:
            preconditionFailure("an upload must be complete and have no form yet")
        }
    }
}

// MARK: Checks of the form

// The verification of a complete upload's digests before its request is built.
//
// Invariant: no request is built for an upload that contradicts a client's digest.

extension Delivery {
    /// Computes the digests needed for a complete upload.
    ///
    /// Reads nothing if none is needed. `reported` contains the algorithms of the digests for the upstream.
    ///
    /// - Returns: the digests, or a refusal if they contradict the client's. In that case, the upload has been removed,
    ///   or moved to `hold` if `client` cannot receive the refusal.
    func checkDigests(
        of upload: Upload,
        for client: ClientKnowledge,
        completing: HTTPFields?,
        reported: Set<DigestAlgorithm>,
        _ heartbeat: Heartbeat?
    ) throws(SpoolError) -> Result<UploadDigests, Refusal> {
        let plan = DigestPlan(
            creation: upload.creation.head.fields,
            completing: completing,
            reported: reported
        )
        let values = try DigestReading.values(
            plan.algorithms,
            length: upload.offset,
            read: { buffer, position throws(SpoolError) in
                try upload.read(into: buffer, at: position)
            },
            // If a heartbeat fails, the content may be truncated, and reading it ends early.
            onProgress: { heartbeat?.beat(upload, failingInto: journal) }
        )
        guard let values else {
            let subject = "the content of \(upload.creation.id)"
            throw .disk(SystemError(call: "pread", subject: subject, errno: SystemError.lost))
        }
        let checked = plan.checked(values)
        if case .failure(let refusal) = checked {
            if AttemptDecision(after: .contradicted, isRepeatable: true, client).removesContent {
                try upload.remove(durably: true)
                journal.deactivated(upload, refusal)
            } else {
                try fail(upload, reason: "the content contradicts the client's digest")
            }
        }
        return checked
    }

    /// Verifies a complete upload's digests, and removes the upload if they contradict the client's.
    ///
    /// Reads nothing if the client has already received 202 for the upload.
    ///
    /// `completing` contains the fields of the request that completed the upload. `heartbeat` sends heartbeats to the
    /// client while the content is read.
    ///
    /// - Returns: the refusal to send; nil if the digests agree, or none needs verification.
    /// - Throws: `SpoolError` if the upload cannot be read or removed.
    package func contradiction(
        of upload: Upload,
        completing: HTTPFields,
        _ heartbeat: Heartbeat?
    ) throws(SpoolError) -> Refusal? {
        guard upload.state.phase == .receiving else { return nil }
        return try checkDigests(
            of: upload,
            for: .resource,
            completing: completing,
            reported: [],
            heartbeat
        ).failure
    }
}

extension FormFailure {
    /// The refusal to send if this form cannot be built; `isKept` is true if the upload is kept for a retry.
    package func refusal(isKept: Bool) -> Refusal {
        isFull ? .destinationFull(isKept: isKept) : .notReached(timedOut: false, isKept: isKept)
    }
}
