// One upload as the regular request its route's form makes of it.
//
// The fields come from UpstreamFields, the forms' bytes from MultipartForm and HandoverNotice; here they
// are put together. Invariant: the upload's own bytes are neither changed nor held in memory.

package import HTTPTypes
import SpoolgatePosix
package import SpoolgateSettings
import SpoolgateSpool
import SpoolgateTextFormats
package import SpoolgateUploadProtocol
package import SpoolgateUpstream

/// Why a form could not be made; nothing was sent.
package struct FormFailure: Error, Equatable {
    /// What was attempted on what, for the log.
    package var reason: String
    /// Whether it is for want of room where the file was to go.
    package var isFull = false
}

/// One upload in its form.
struct UploadForm {
    /// The request to send.
    let request: UpstreamRequest
    /// The file that was handed over; nil in other forms than `path`.
    private let handover: Handover?

    /// Makes the one request of a whole upload from its creation.
    ///
    /// In a `path` form the file is in its directory, and on disk, on return.
    ///
    /// - Parameters:
    ///   - upload: the upload.
    ///   - route: its route.
    ///   - completing: the fields of the request that completes it; nil if there is none.
    ///   - digests: its digests.
    ///   - time: the present moment, which a notice is signed with.
    ///   - onProgress: called between two parts of a copy.
    /// - Throws: `FormFailure` where a file cannot be handed over or the key cannot be read; nothing was sent then.
    init(
        of upload: Upload,
        on route: Route,
        completing: HTTPFields?,
        _ digests: UploadDigests,
        time: WallTime,
        onProgress: () -> Void
    ) throws(FormFailure) {
        let head = upload.creation.head
        var fields = Self.fields(of: upload, on: route, completing: completing)
        let content: UpstreamContent
        var handover: Handover?
        switch route.form(for: head) {
        case .body:
            content = upload.upstreamContent
            if let algorithm = route.settings.digest { fields.tell(digests.values, algorithm) }
            if head.fields.contains(.uploadMetadata) {
                UpstreamFields.tell(
                    UploadMetadata(head.fields),
                    name: ClientFileName(target: head.target, fields: head.fields),
                    in: &fields,
                    policy: route.settings.fields
                )
            }
        case .multipart:
            let description = FileDescription(upload.creation, length: upload.offset, digests)
            let multipart = description.multipart(route.settings.multipart)
            fields.describe(multipart.contentType)
            content = upload.upstreamContent.framed(multipart.before, multipart.after)
        case .path:
            let description = FileDescription(upload.creation, length: upload.offset, digests)
            let settings = route.settings.path
            let key = try SigningKey(settings)
            let placed = try Handover(upload.upstreamContent, description, settings, onProgress)
            handover = placed
            var notice = description.notice(path: placed.path)
            key.sign(&notice, at: time)
            fields.describe(settings.encoding.contentType)
            content = .bytes(notice.content(settings.encoding))
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
        if route.settings.upstream.stores {
            request.isRepeated = upload.attempts > 0
            request.facts = UploadFacts(
                target: head.target,
                fields: head.fields,
                owner: upload.creation.principal?.text,
                digests: digests.texts
            )
        }
        self.request = request
    }

    /// The fields of the request, whatever its form.
    private static func fields(
        of upload: Upload,
        on route: Route,
        completing: HTTPFields?
    ) -> HTTPFields {
        // Neither creation nor settings are copied: that would be dozens of references.
        let policy = route.settings.fields
        var fields = UpstreamFields.delivered(
            upload.creation.head.fields,
            completing: completing,
            isWhole: !upload.isRecorded,
            policy: policy
        )
        fields.addForwarding(
            policy.forwarding,
            address: upload.creation.remoteAddress,
            scheme: upload.creation.scheme,
            host: upload.creation.head.fields.value(of: .host),
            by: route.gateway
        )
        if route.settings.honoursIdempotencyKey, upload.isRecorded, fields[.idempotencyKey] == nil {
            fields[.idempotencyKey] = "\"\(upload.creation.id)\""
        }
        UpstreamFields.finish(&fields, policy: policy)
        return fields
    }

    /// Takes back what was handed over, where the upstream's answer says that it has it.
    ///
    /// - Parameter status: the final response's; nil where there was none.
    func end(status: Int?) {
        guard let status, (200..<300).contains(status) else { return }
        handover?.withdraw()
    }

    /// Takes back what was handed over, where the upstream never heard of it and will not.
    func takeBack() { handover?.withdraw() }
}

extension Route {
    /// The form of one upload: a content that is a form of fields already goes as it is, where forms are
    /// what the upstream takes.
    package func form(for creation: RequestHead) -> Form {
        let form = settings.form
        guard form == .multipart, let type = creation.fields[.contentType] else { return form }
        let isForm = ["multipart/form-data", "application/x-www-form-urlencoded"].contains {
            MediaType.of(type, is: $0)
        }
        return isForm ? .body : .multipart
    }

    /// Whether an upload is worth nothing but whole: it is inspected, or becomes a file, an object or a form.
    package func needsWhole(for creation: RequestHead) -> Bool {
        inspection != nil || settings.upstream.stores || form(for: creation) != .body
    }

    /// The method the upstream sees: forms are posted.
    package func method(for creation: RequestHead) -> HTTPRequest.Method {
        switch form(for: creation) {
        case .body: creation.method
        case .multipart, .path: .post
        }
    }

    /// Whether the upstream may be sent an upload again of which it may have everything: a bucket also
    /// whatever the method, since it puts nothing in the place of what it has; elsewhere no conditional request.
    package func mayRepeat(_ creation: RequestHead) -> Bool {
        settings.honoursIdempotencyKey || settings.upstream.isBucket
            || method(for: creation).isRepeatable(with: creation.fields)
    }
}

extension HTTPFields {
    /// Adds a digest to `Repr-Digest`, unless the client has told one by that algorithm.
    fileprivate mutating func tell(_ digests: DigestValues, _ algorithm: DigestAlgorithm) {
        guard let bytes = digests[algorithm] else { return }
        // `try?`: what cannot be read was refused before.
        let told = try? DigestValues(.reprDigest, in: self)
        guard told?[algorithm] == nil else { return }
        var values = DigestValues()
        values[algorithm] = bytes
        let before = self[.reprDigest].map { "\($0), " } ?? ""
        self[.reprDigest] = before + values.fieldValue
    }

    /// Puts the description of a form in place of the description of the upload.
    fileprivate mutating func describe(_ contentType: String) {
        removeAll {
            $0.name.canonicalName.hasPrefix("content-") || $0.name == .reprDigest
        }
        self[.contentType] = contentType
    }
}

extension Upload {
    /// Its content, from wherever it is.
    fileprivate var upstreamContent: UpstreamContent {
        if let buffer = content.buffer { return .held(buffer) }
        if let bytes = content.inMemory { return .bytes(bytes) }
        return .file(descriptor: dataFile, length: state.offset) { buffer, position in
            try self.read(into: buffer, at: position)
        }
    }
}

extension UpstreamContent {
    /// The same content with bytes before and after it.
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
