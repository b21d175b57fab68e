// What a request asks for: the one place where a head becomes an operation.
//
// Pure: it knows no upload's state. UploadState decides what the operation does to an upload. What tus says by
// other fields is read in Tus/TusRequest. Invariant: a field that the draft says to ignore never changes the
// outcome.

import HTTPTypes

/// Whether more of the representation may come (draft-12 §4.1.2); not the same as offset == length.
package enum Completeness: Sendable, Equatable {
    /// More may come.
    case incomplete
    /// This message brings the last of it.
    case complete
    /// The last of it is what reaches the length (tus).
    case atLength
}

/// One request, classified.
package enum UploadRequest: Sendable, Equatable {
    /// A request that creates an upload resource (draft-12 §4.2).
    case creation(Creation)
    /// A request that makes an upload of parts, their URLs as sent (tus, "concatenation").
    case concatenation([String])
    /// HEAD or GET on an upload resource (draft-12 §4.3).
    case offsetRetrieval(UploadID)
    /// PATCH on an upload resource (draft-12 §4.4).
    case append(UploadID, Append)
    /// DELETE on an upload resource (draft-12 §4.5).
    case cancellation(UploadID)
    /// OPTIONS on a target resource or `*`: forwarded, its answer gains `Upload-Limit` (draft-12
    /// §4.1.4).
    case options
    /// OPTIONS on an upload resource: answered here.
    case resourceOptions(UploadID)
    /// HEAD or GET on an upload's status resource.
    case status(UploadID)
    /// An append to, look at or cancellation of an upload that another node has.
    case elsewhere
    /// An ordinary upload (POST, PUT or PATCH), without resumption. `isMarked`: it speaks the protocol,
    /// and is whole in one message too small to be resumed.
    case ordinaryUpload(isMarked: Bool)
    /// An upload that the upstream speaks tus about (setting `tus: pass`): streamed. `room`: most bytes of content that
    /// the request may have, what the upload has before them taken off; `length`: bytes of the whole upload, where the
    /// request tells them.
    case passedUpload(room: Int64, length: Int64?)
    /// Everything else: streamed through both ways.
    case passThrough
    /// A request that is wrong by itself, whatever the upload's state. `ResponseBuilder.refused`
    /// answers it.
    indirect case refused(Refusal)

    /// Whether it begins an upload, with a resource of its own or without.
    package var beginsUpload: Bool {
        switch self {
        case .creation, .concatenation, .ordinaryUpload, .passedUpload: true
        case .offsetRetrieval, .append, .cancellation, .resourceOptions, .status, .options,
            .elsewhere, .passThrough, .refused:
            false
        }
    }

    /// Whether it brings content of an upload.
    package var isUpload: Bool { if case .append = self { true } else { beginsUpload } }

    /// What a creation says of the upload.
    package struct Creation: Sendable, Equatable {
        /// Whether this message's content is the whole representation.
        package var completeness: Completeness
        /// The length of the representation where the message tells it (draft-12 §4.1.3).
        package var length: Int64?
        /// Whether content, of which nobody knows yet whether there is any, would be of the wrong type.
        package var mustBeEmpty = false
    }

    /// What an append says of itself.
    package struct Append: Sendable, Equatable {
        /// Where the content starts in the representation.
        package var offset: Int64
        /// Whether this content ends the representation.
        package var completeness: Completeness
        /// `Upload-Length`, where valid.
        package var length: Int64?
        /// How long this message's content is.
        package var contentLength: ContentLength
    }

    /// Classifies a request (protocol order: upload resource, options, creation, ordinary).
    ///
    /// - Parameters:
    ///   - head: the request as received.
    ///   - dialect: the dialect the request speaks.
    ///   - resources: how upload resources are named on this route.
    ///   - limits: the route's limits; refusals by size are made here, before any content is read.
    package init(
        _ head: RequestHead,
        dialect: Dialect,
        resources: UploadResources,
        limits: UploadLimits
    ) {
        let match = resources.match(target: head.target)
        if dialect.family == .tus {
            self.init(tus: head, match, limits: limits)
            return
        }
        switch match {
        case .resource(let id):
            self.init(on: id, head, dialect: dialect)
            return
        case .status(let id):
            let isLook = head.method == .get || head.method == .head
            self = isLook ? .status(id) : .refused(.statusMethodNotAllowed)
            return
        case .elsewhere(let match):
            self.init(elsewhere: match, Self.isAppend(head) ? .patch : head.method)
            return
        case .malformed:
            self = .refused(.unknownUpload)
            return
        case .none:
            break
        }
        let fields = UploadFields(head.fields, dialect: dialect)
        // An append that found no upload resource must not become an upload of its own.
        let isAppend = fields.hasPartialMediaType && Self.isAppend(head)
        if let completeness = fields.completeness, !isAppend,
            Self.uploadMethods.contains(head.method)
        {
            self.init(creation: completeness, fields, head, dialect: dialect, limits: limits)
        } else {
            self.init(unclaimed: head, limits: limits, isPart: fields.hasContentRange)
        }
    }

    fileprivate static let uploadMethods: [HTTPRequest.Method] = [.post, .put, .patch]

    /// Classifies a request on no upload resource that no protocol claims: the one place that lets a request pass
    /// through.
    ///
    /// Invariant: what may be an upload to the upstream is an upload here, whatever its other fields say.
    ///
    /// `isPart`: whether it has `Content-Range`.
    init(unclaimed head: RequestHead, limits: UploadLimits, isPart: Bool = true) {
        if head.mayBeUpload {
            self.init(ordinary: head, isMarked: false, limits: limits, isPart: isPart)
        } else if let refusal = limits.refusal(ofSize: head.contentLength.count) {
            self = .refused(refusal.ofOrdinaryRequest)
        } else {
            self = head.method == .options ? .options : .passThrough
        }
    }

    /// Classifies a request of tus that the upstream answers (setting `tus: pass`).
    ///
    /// - Parameters:
    ///   - head: the request as received.
    ///   - limits: the route's limits, which hold for the whole upload as far as the request tells it.
    package init(passed head: RequestHead, limits: UploadLimits) {
        guard head.mayBeUpload else {
            self.init(unclaimed: head, limits: limits)
            return
        }
        func number(_ name: HTTPField.Name) -> Int64 {
            max(0, head.fields[name].flatMap { Int64($0) } ?? 0)
        }
        let length = max(number(.uploadLength), head.fields.contentRange?.length ?? 0)
        let (end, isOver) = number(.uploadOffset)
            .addingReportingOverflow(head.contentLength.count ?? 0)
        if let refusal = limits.refusal(ofSize: isOver ? .max : max(length, end)) {
            self = .refused(refusal.ofOrdinaryRequest)
            return
        }
        self = .passedUpload(
            room: limits.maxSize - number(.uploadOffset),
            length: length > 0 ? length : head.contentLength.count
        )
    }

    /// Whether a creation's head said that more comes than its own content.
    package static func isSegmented(_ head: RequestHead, _ dialect: Dialect) -> Bool {
        UploadFields(head.fields, dialect: dialect).completeness == .incomplete
    }

    private init(on id: UploadID, _ head: RequestHead, dialect: Dialect) {
        let fields = UploadFields(head.fields, dialect: dialect)
        switch head.method {
        case .head, .get:
            self = fields.strayRefusal(dialect).map { .refused($0) } ?? .offsetRetrieval(id)
        case .delete:
            self = fields.strayRefusal(dialect).map { .refused($0) } ?? .cancellation(id)
        case .options:
            self = .resourceOptions(id)
        case _ where Self.isAppend(head):
            self.init(appendTo: id, fields, head.contentLength, dialect: dialect)
        default:
            self = .refused(.methodNotAllowed)
        }
    }

    /// Whether a request on an upload resource is an append: some clients sit behind something that lets no
    /// PATCH through.
    private static func isAppend(_ head: RequestHead) -> Bool {
        head.method == .patch || head.method == .post && head.overrides(with: .patch)
    }

    /// Classifies a request, by the method that it means, on what another node has.
    init(elsewhere match: UploadResources.Match, _ method: HTTPRequest.Method) {
        guard case .resource = match, [.patch, .head, .get, .delete].contains(method) else {
            self = .refused(.otherNode)
            return
        }
        self = .elsewhere
    }

    private init(
        appendTo id: UploadID,
        _ fields: UploadFields,
        _ contentLength: ContentLength,
        dialect: Dialect
    ) {
        guard fields.hasPartialMediaType || !dialect.requiresPartialMediaType else {
            self = .refused(.wrongMediaType)
            return
        }
        guard let offset = fields.offset else {
            self = .refused(.missingOffset)
            return
        }
        guard let completeness = fields.completeness ?? dialect.omittedCompleteness else {
            self = .refused(.missingCompleteness)
            return
        }
        self = .append(
            id,
            Append(
                offset: offset,
                completeness: completeness,
                length: fields.length,
                contentLength: contentLength
            )
        )
    }

    private init(ordinary head: RequestHead, isMarked: Bool, limits: UploadLimits, isPart: Bool) {
        let length = isPart ? head.representationLength : head.contentLength.count
        self =
            limits.refusal(ofSize: length).map { .refused($0.ofOrdinaryRequest) }
            ?? .ordinaryUpload(isMarked: isMarked)
    }

    private init(
        creation told: Completeness,
        _ fields: UploadFields,
        _ head: RequestHead,
        dialect: Dialect,
        limits: UploadLimits
    ) {
        var completeness = told
        var length = fields.length
        if fields.hasContentRange {
            // What is a part of something else is no upload that could be resumed.
            if completeness == .complete {
                self.init(ordinary: head, isMarked: true, limits: limits, isPart: true)
            } else {
                self = .refused(.partNotResumable)
            }
            return
        }
        if case .known(let count) = head.contentLength {
            if completeness == .complete, count < limits.minSize, length == nil || length == count {
                self.init(ordinary: head, isMarked: true, limits: limits, isPart: false)
                return
            }
            if count == 0, length == 0, dialect.completesEmptyCreation {
                completeness = .complete
            }
            if let refusal = UploadRequest.refusal(
                of: count,
                completeness,
                length: length,
                limits: limits
            ) {
                self = .refused(refusal)
                return
            }
            if completeness == .complete { length = count }
        }
        if let refusal = limits.refusal(ofSize: length) {
            self = .refused(refusal)
            return
        }
        self = .creation(Creation(completeness: completeness, length: length))
    }

    /// Why a creation with `count` bytes of content cannot be taken; nil if it can.
    private static func refusal(
        of count: Int64,
        _ completeness: Completeness,
        length: Int64?,
        limits: UploadLimits
    ) -> Refusal? {
        if let refusal = limits.refusal(ofSize: count) { return refusal }
        if let length, completeness == .complete, count != length {
            return .lengthChanged(known: length, told: count)
        }
        if let length, count > length { return .lengthExceeded(length: length) }
        return limits.refusal(ofContent: count, completeness, isCreation: true)
    }
}

extension RequestHead {
    /// Bytes of what an ordinary upload is or is a part of, if its head tells them.
    package var representationLength: Int64? {
        let count = contentLength.count
        guard let range = fields.contentRange else { return count }
        return [count, range.length].compactMap { $0 }.max()
    }

    /// Whether the upstream may take the request for an upload: its method is POST, PUT or PATCH in any case of letters,
    /// or a field tells the upstream to treat it as one of these.
    package var mayBeUpload: Bool {
        let methods = UploadRequest.uploadMethods
        return methods.contains(method)
            || methods.contains {
                method.rawValue.uppercased() == $0.rawValue || overrides(with: $0)
            }
    }

    /// Whether a field says that the request is to be treated as one with another method.
    ///
    /// Applications read the first three names; an intermediary may have joined several values of one.
    func overrides(with method: HTTPRequest.Method) -> Bool {
        fields.contains { field in
            // The first letter alone tells most fields of a request apart from these.
            guard field.name.canonicalName.utf8.first == UInt8(ascii: "x") else { return false }
            switch field.name.canonicalName {
            case "x-http-method-override", "x-http-method", "x-method-override":
                return field.value.split { $0 == "," || $0 == " " || $0 == "\t" }
                    .contains { $0.uppercased() == method.rawValue }
            default: return false
            }
        }
    }
}

extension UploadLimits {
    /// Why the content of one creation or append has the wrong size (draft-12 §4.1.4).
    ///
    /// - Parameters:
    ///   - count: bytes of content, as the message's head tells them.
    ///   - completeness: what the message says of the upload.
    ///   - isCreation: whether it is a creation; an empty one is never too small.
    /// - Returns: nil if the limits allow it.
    package func refusal(
        ofContent count: Int64,
        _ completeness: Completeness,
        isCreation: Bool
    ) -> Refusal? {
        if let maxAppendSize, count > maxAppendSize {
            return .appendTooLarge(maxAppendSize: maxAppendSize)
        }
        guard completeness == .incomplete, count < minAppendSize, count > 0 || !isCreation else {
            return nil
        }
        return .appendTooSmall(minAppendSize: minAppendSize)
    }
}
