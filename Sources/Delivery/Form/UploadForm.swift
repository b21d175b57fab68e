// One upload as the regular request its route's form makes of it.
//
// The fields come from UpstreamFields, the forms' bytes from MultipartForm and HandoverNotice; here they
// are put together. Invariant: the upload's own bytes are neither changed nor held in memory.

import Crypto
package import HTTPTypes
package import Posix
package import Settings
package import UploadProtocol
package import Upstream

/// A whole upload, and what is known of it.
package struct WholeUpload {
    /// Its identity.
    var id: UploadID
    /// Its creation, fields as recorded.
    var creation: RequestHead
    /// The fields of the request that completes it; nil if there is none.
    var completing: HTTPFields?
    /// Whether the creation's message brought the whole of it.
    var isWhole: Bool
    /// Who created it.
    var owner: String?
    /// The client's address at the creation.
    var address: String?
    /// The client's scheme at the creation.
    var scheme: String?
    /// Sent as `Idempotency-Key` where the client has none; nil: none is made up.
    var idempotencyKey: String?
    /// Bytes of content.
    var length: Int64
    /// The digests that were computed, those the upstream is told among them.
    var digests: DigestValues

    /// Describes a whole upload.
    package init(
        id: UploadID,
        creation: RequestHead,
        completing: HTTPFields?,
        isWhole: Bool = false,
        owner: String?,
        address: String?,
        scheme: String?,
        idempotencyKey: String? = nil,
        length: Int64,
        digests: DigestValues = DigestValues()
    ) {
        self.id = id
        self.creation = creation
        self.completing = completing
        self.isWhole = isWhole
        self.owner = owner
        self.address = address
        self.scheme = scheme
        self.idempotencyKey = idempotencyKey
        self.length = length
        self.digests = digests
    }
}

/// Why a form could not be made; nothing was sent.
package struct FormFailure: Error, Equatable {
    /// What was attempted on what, for the log.
    package var reason: String
    /// Whether it is for want of room where the file was to go.
    package var isFull = false
}

/// One upload in its form.
package struct UploadForm {
    /// The request to send.
    package let request: UpstreamRequest
    /// The file that was handed over; nil in other forms than `path`.
    private let handover: Handover?

    /// Makes the request of an upload.
    ///
    /// In a `path` form the file is in its directory, and on disk, on return.
    ///
    /// - Parameters:
    ///   - upload: the upload; its digests are all that `told` of its `DigestPlan` asks for.
    ///   - content: its bytes, readable from any position.
    ///   - route: its route.
    ///   - told: the digests that the upstream is told.
    ///   - time: the present moment, which a notice is signed with.
    ///   - onProgress: called between two parts of a copy.
    /// - Throws: `FormFailure` where a file cannot be handed over or the key cannot be read.
    package init(
        _ upload: WholeUpload,
        _ content: UpstreamContent,
        route: RouteSettings,
        told: Set<DigestAlgorithm>,
        time: WallTime,
        onProgress: () -> Void = {}
    ) throws(FormFailure) {
        var fields = Self.fields(of: upload, policy: route.fields)
        let description = FileDescription(upload, told: told)
        let form = route.form(for: upload.creation)
        var sent = content
        var handover: Handover?
        switch form {
        case .body:
            if let algorithm = route.digest { fields.tell(upload.digests, algorithm) }
        case .multipart:
            let multipart = description.multipart(route.multipart, creation: upload.creation.fields)
            fields.describe(multipart.contentType)
            sent = content.framed(multipart.before, multipart.after)
        case .path:
            let key = try SigningKey(route.path)
            let placed = try Handover(content, description, route.path, onProgress)
            handover = placed
            var notice = description.notice(path: placed.path, target: upload.creation.target)
            notice.sign(with: key, at: time)
            fields.describe(route.path.encoding.contentType)
            sent = .bytes(notice.content(route.path.encoding))
        }
        self.handover = handover
        request = UpstreamRequest(
            method: route.method(for: upload.creation),
            target: upload.creation.target,
            fields: fields,
            content: sent,
            upload: upload.id
        )
    }

    /// Takes back what was handed over, where the upstream's answer says that it has it.
    ///
    /// - Parameter status: the final response's; nil where there was none.
    package func end(status: Int?) {
        guard let status, (200..<300).contains(status) else { return }
        handover?.withdraw()
    }

    /// Takes back what was handed over, where the upstream never heard of it and will not.
    package func takeBack() { handover?.withdraw() }

    private static func fields(of upload: WholeUpload, policy: FieldPolicy) -> HTTPFields {
        var fields = UpstreamFields.delivered(
            upload.creation.fields,
            completing: upload.completing,
            isWhole: upload.isWhole,
            policy: policy
        )
        fields.addForwarding(
            policy.forwarding,
            address: upload.address,
            scheme: upload.scheme,
            host: upload.creation.fields[.host]
        )
        if let key = upload.idempotencyKey, fields[.idempotencyKey] == nil {
            fields[.idempotencyKey] = key
        }
        UpstreamFields.finish(&fields, policy: policy)
        return fields
    }
}

extension RouteSettings {
    /// The form of one upload: a content that is a form of fields already goes as it is, where forms are
    /// what the upstream takes.
    package func form(for creation: RequestHead) -> Form {
        guard form == .multipart, let type = creation.fields[.contentType] else { return form }
        let isForm = ["multipart/form-data", "application/x-www-form-urlencoded"].contains {
            MediaType.of(type, is: $0)
        }
        return isForm ? .body : .multipart
    }

    /// The method the upstream sees: forms are posted.
    package func method(for creation: RequestHead) -> HTTPRequest.Method {
        switch form(for: creation) {
        case .body: creation.method
        case .multipart, .path: .post
        }
    }

    /// Whether the upstream may be sent an upload again of which it may have everything.
    package func mayRepeat(_ creation: RequestHead) -> Bool {
        method(for: creation).isIdempotent || honoursIdempotencyKey
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

extension UpstreamContent {
    /// The same content with bytes before and after it.
    package func framed(_ before: [UInt8], _ after: [UInt8]) -> UpstreamContent {
        switch self {
        case .none:
            return .bytes(before + after)
        case .bytes(let bytes):
            return .bytes(before + bytes + after)
        case .file(_, let length, let read):
            return .framed(before: before, length: length, read: read, after: after)
        case .framed, .stream:
            preconditionFailure("an upload is whole before it gets a form, and gets one")
        }
    }
}
