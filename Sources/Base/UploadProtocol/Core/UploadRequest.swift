// Classifies requests. No other code turns a head into an operation.
//
// Pure, and independent of uploads' states. Tus/UploadRequest+Tus reads the fields of tus. Invariant: a field that the draft
// says to ignore never changes the result.

import HTTPTypes

/// Whether a message contains the end of the representation (draft-12 §4.1.2), regardless of offset and length.
package enum Completeness: Sendable, Equatable {
    case incomplete
    case complete
    /// The message whose content reaches the length contains the end (tus, and versions 5 and 6).
    case atLength

    /// Returns what `atLength` means for a message with content up to a known offset.
    func resolved(reachesLength: Bool) -> Completeness {
        self == .atLength ? reachesLength ? .complete : .incomplete : self
    }
}

/// One request, classified.
package enum UploadRequest: Sendable, Equatable {
    /// Creates an upload resource (draft-12 §4.2).
    case creation(Creation)
    /// Creates an upload from the parts with these URLs, as sent (tus).
    case concatenation([String])
    /// HEAD or GET on an upload resource (draft-12 §4.3).
    case offsetRetrieval(UploadID)
    /// PATCH on an upload resource (draft-12 §4.4).
    case append(UploadID, Append)
    /// DELETE on an upload resource (draft-12 §4.5).
    case cancellation(UploadID)
    /// OPTIONS on a target resource or `*`. The request is forwarded, and `Upload-Limit` is added to the response
    /// (draft-12 §4.1.4).
    case options
    /// OPTIONS on an upload resource, served by the gateway.
    case resourceOptions(UploadID)
    /// HEAD or GET on a status resource.
    case status(UploadID)
    /// An append, offset retrieval or cancellation for an upload on another node.
    case elsewhere
    /// An ordinary upload (POST, PUT or PATCH).
    ///
    /// `isMarked` is true if the request uses the upload protocol, but is complete and too small to be resumed.
    case ordinaryUpload(isMarked: Bool)
    /// An upload to an upstream that handles tus itself (setting `tus: pass`); streamed.
    ///
    /// `room` is the maximum number of content bytes allowed after the request's offset. `length` is the size of the
    /// whole upload in bytes, or nil if unknown.
    case passedUpload(room: Int64, length: Int64?)
    /// Any other request; streamed in both directions.
    case passThrough
    /// A request that is invalid in any state of the upload.
    indirect case refused(Refusal)

    package var beginsUpload: Bool {
        switch self {
        case .creation, .concatenation, .ordinaryUpload, .passedUpload: true
        case .offsetRetrieval, .append, .cancellation, .resourceOptions, .status, .options,
            .elsewhere, .passThrough, .refused:
            false
        }
    }

    package var isUpload: Bool { if case .append = self { true } else { beginsUpload } }

    /// The properties of a creation.
    package struct Creation: Sendable, Equatable {
        package var completeness: Completeness
        /// The length of the representation; nil if the message does not state it (draft-12 §4.1.3).
        package var length: Int64?
        /// Whether content must be refused because of its media type; an empty message is allowed.
        package var mustBeEmpty = false
    }

    /// The properties of an append.
    package struct Append: Sendable, Equatable {
        package var offset: Int64
        package var completeness: Completeness
        /// The length that a valid `Upload-Length` states in bytes, otherwise nil.
        package var length: Int64?
        package var contentLength: ContentLength
    }

    /// Classifies a request (in the order upload resource, OPTIONS, creation, ordinary request).
    ///
    /// Sizes that the head states are checked against the limits before any content is read.
    package init(
        _ head: RequestHead,
        dialect: Dialect,
        resources: UploadResources,
        limits: UploadLimits
    ) {
        let match = resources.match(target: head.target)
        do throws(Refusal) {
            self =
                dialect.family == .tus
                ? try Self.tus(head, match, limits)
                : try Self.ietf(head, match, dialect, limits)
        } catch {
            self = .refused(error)
        }
    }

    private static func ietf(
        _ head: RequestHead,
        _ match: UploadResources.Match,
        _ dialect: Dialect,
        _ limits: UploadLimits
    ) throws(Refusal) -> UploadRequest {
        switch match {
        case .resource(let id): return try onResource(id, head, dialect)
        case .status(let id):
            guard [.get, .head].contains(head.method) else { throw .statusMethodNotAllowed }
            return .status(id)
        case .elsewhere(let match):
            return try elsewhere(match, isAppend(head) ? .patch : head.method)
        case .malformed: throw .unknownUpload
        case .none: break
        }
        let fields = UploadFields(head.fields, dialect: dialect)
        // An append to a path that is no upload resource must not become a new upload.
        guard let completeness = fields.completeness, uploadMethods.contains(head.method),
            !(fields.hasPartialMediaType && isAppend(head))
        else { return try unclaimed(head, limits, isPart: fields.hasContentRange) }
        return try creation(completeness, fields, head, dialect, limits)
    }

    fileprivate static let uploadMethods: [HTTPRequest.Method] = [.post, .put, .patch]

    /// Classifies a request that is not on an upload resource and uses no upload protocol.
    ///
    /// Only such a request can pass through.
    ///
    /// Invariant: a request that the upstream may treat as an upload is an upload here, regardless of its other fields.
    /// Pass false for `isPart` if the request has no `Content-Range`.
    static func unclaimed(
        _ head: RequestHead,
        _ limits: UploadLimits,
        isPart: Bool = true
    ) throws(Refusal) -> UploadRequest {
        if head.mayBeUpload {
            return try ordinary(head, limits, isMarked: false, isPart: isPart)
        }
        if let refusal = limits.refusal(ofSize: head.contentLength.count) {
            throw refusal.ofOrdinaryRequest
        }
        return head.method == .options ? .options : .passThrough
    }

    /// Classifies a tus request that the upstream handles (setting `tus: pass`).
    ///
    /// The limits apply to the size of the whole upload if the request states the size.
    package init(passed head: RequestHead, limits: UploadLimits) {
        do throws(Refusal) {
            self =
                head.mayBeUpload
                ? try Self.passed(head, limits) : try Self.unclaimed(head, limits)
        } catch {
            self = .refused(error)
        }
    }

    private static func passed(
        _ head: RequestHead,
        _ limits: UploadLimits
    ) throws(Refusal) -> UploadRequest {
        func number(_ name: HTTPField.Name) -> Int64 {
            max(0, head.fields[name].flatMap { Int64($0) } ?? 0)
        }
        let length = max(number(.uploadLength), head.fields.contentRange?.length ?? 0)
        let (end, exceeds) = number(.uploadOffset)
            .addingReportingOverflow(head.contentLength.count ?? 0)
        if let refusal = limits.refusal(ofSize: exceeds ? .max : max(length, end)) {
            throw refusal.ofOrdinaryRequest
        }
        return .passedUpload(
            room: limits.maxSize - number(.uploadOffset),
            length: length > 0 ? length : head.contentLength.count
        )
    }

    /// Whether the head of a creation announced more content than its own.
    package static func isSegmented(_ head: RequestHead, _ dialect: Dialect) -> Bool {
        UploadFields(head.fields, dialect: dialect).completeness == .incomplete
    }

    private static func onResource(
        _ id: UploadID,
        _ head: RequestHead,
        _ dialect: Dialect
    ) throws(Refusal) -> UploadRequest {
        let fields = UploadFields(head.fields, dialect: dialect)
        switch head.method {
        case .head, .get, .delete:
            if let refusal = fields.strayRefusal(dialect) { throw refusal }
            return head.method == .delete ? .cancellation(id) : .offsetRetrieval(id)
        case .options: return .resourceOptions(id)
        case _ where isAppend(head):
            return .append(id, try Append(fields, head.contentLength, dialect))
        default: throw .methodNotAllowed
        }
    }

    /// Whether a request is an append: PATCH, or POST if the client's network blocks PATCH.
    private static func isAppend(_ head: RequestHead) -> Bool {
        head.method == .patch || head.method == .post && head.overrides(with: .patch)
    }

    /// Classifies a request on another node's resource by its effective method.
    static func elsewhere(
        _ match: UploadResources.Match,
        _ method: HTTPRequest.Method
    ) throws(Refusal) -> UploadRequest {
        guard case .resource = match, [.patch, .head, .get, .delete].contains(method) else {
            throw .otherNode
        }
        return .elsewhere
    }

    private static func ordinary(
        _ head: RequestHead,
        _ limits: UploadLimits,
        isMarked: Bool,
        isPart: Bool
    ) throws(Refusal) -> UploadRequest {
        let length = isPart ? head.representationLength : head.contentLength.count
        if let refusal = limits.refusal(ofSize: length) { throw refusal.ofOrdinaryRequest }
        return .ordinaryUpload(isMarked: isMarked)
    }

    private static func creation(
        _ stated: Completeness,
        _ fields: UploadFields,
        _ head: RequestHead,
        _ dialect: Dialect,
        _ limits: UploadLimits
    ) throws(Refusal) -> UploadRequest {
        var completeness = dialect.meaning(of: stated)
        var length = fields.length
        if fields.hasContentRange {
            // A part of another representation cannot be a resumable upload.
            guard completeness == .complete else { throw .partNotResumable }
            return try ordinary(head, limits, isMarked: true, isPart: true)
        }
        if case .known(let count) = head.contentLength {
            if completeness == .complete, count < limits.minSize, length == nil || length == count {
                return try ordinary(head, limits, isMarked: true, isPart: false)
            }
            completeness = completeness.resolved(reachesLength: count == length)
            try check(count, completeness, length: length, limits)
            if completeness == .complete { length = count }
        }
        if let refusal = limits.refusal(ofSize: length) { throw refusal }
        return .creation(Creation(completeness: completeness, length: length))
    }

    /// Checks a creation with `count` bytes of content.
    private static func check(
        _ count: Int64,
        _ completeness: Completeness,
        length: Int64?,
        _ limits: UploadLimits
    ) throws(Refusal) {
        if let refusal = limits.refusal(ofSize: count) { throw refusal }
        if let length, completeness == .complete, count != length {
            throw .lengthChanged(known: length, stated: count)
        }
        if let length, count > length { throw .lengthExceeded(length: length) }
        if let refusal = limits.refusal(ofContent: count) { throw refusal }
    }
}

extension UploadRequest.Append {
    fileprivate init(
        _ fields: UploadFields,
        _ contentLength: ContentLength,
        _ dialect: Dialect
    ) throws(Refusal) {
        guard fields.hasPartialMediaType || !dialect.requiresPartialMediaType else {
            throw .wrongMediaType
        }
        guard let offset = fields.offset else { throw .missingOffset }
        guard let completeness = fields.completeness ?? dialect.omittedCompleteness else {
            throw .missingCompleteness
        }
        self.offset = offset
        self.completeness = dialect.meaning(of: completeness)
        length = fields.length
        self.contentLength = contentLength
    }
}

extension RequestHead {
    /// The size of the whole representation in bytes, even if the content is only a part; nil if unknown.
    package var representationLength: Int64? {
        let count = contentLength.count
        guard let range = fields.contentRange else { return count }
        return [count, range.length].compactMap { $0 }.max()
    }

    /// Whether the upstream may treat the request as an upload.
    ///
    /// The method, or a field that overrides it, is POST, PUT or PATCH in any letter case.
    package var mayBeUpload: Bool {
        let methods = UploadRequest.uploadMethods
        return methods.contains(method)
            || methods.contains {
                method.rawValue.uppercased() == $0.rawValue || overrides(with: $0)
            }
    }

    /// Whether a field such as `X-HTTP-Method-Override` names `method`, alone or among several joined values.
    func overrides(with method: HTTPRequest.Method) -> Bool {
        fields.contains { field in
            // Rules out most fields cheaply.
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
    /// Returns the refusal of content that is too large for one message (draft-12 §4.1.4); nil if it is allowed.
    ///
    /// `count` is the content length in bytes from the message's head.
    package func refusal(ofContent count: Int64) -> Refusal? {
        guard let maxAppendSize, count > maxAppendSize else { return nil }
        return .appendTooLarge(maxAppendSize: maxAppendSize)
    }
}

// MARK: Fields

// The protocol's fields of one request, read in one pass.
//
// A malformed or repeated field counts as missing (draft-12 §4.1.1 to §4.1.3). UploadRequest decides on combinations of
// fields.

/// The fields of creations and appends.
///
/// A property is nil if its field is missing or ignored.
struct UploadFields {
    private(set) var offset: Int64?
    private(set) var length: Int64?
    private(set) var completeness: Completeness?
    private(set) var hasPartialMediaType = false
    /// Whether the content is a part of a representation (`Content-Range`).
    private(set) var hasContentRange = false

    init(_ fields: HTTPFields, dialect: Dialect) {
        var offsets = Only()
        var lengths = Only()
        var markers = Only()
        var types = Only()
        let marker = dialect.completenessField
        for field in fields {
            // Rules out most fields cheaply.
            switch field.name.canonicalName.utf8.first {
            case UInt8(ascii: "u"):
                if field.name == .uploadOffset {
                    offsets.add(field)
                } else if field.name == marker {
                    markers.add(field)
                } else if field.name == .uploadLength {
                    lengths.add(field)
                }
            case UInt8(ascii: "c"):
                if field.name == .contentType {
                    types.add(field)
                } else if field.name == .contentRange {
                    hasContentRange = true
                }
            default:
                break
            }
        }
        offset = offsets.value.flatMap(StructuredField.integer(_:)).flatMap { $0 < 0 ? nil : $0 }
        length = lengths.value.flatMap(StructuredField.integer(_:)).flatMap { $0 < 0 ? nil : $0 }
        completeness = markers.value.flatMap(StructuredField.boolean(_:)).map(
            dialect.completeness(isSet:)
        )
        hasPartialMediaType =
            types.value.map { MediaType.of($0, is: UploadResources.partialMediaType) } ?? false
    }

    /// Returns the refusal of a request that is neither a creation nor an append; nil if the request may have these
    /// fields.
    func strayRefusal(_ dialect: Dialect) -> Refusal? {
        guard dialect.refusesStrayFields else { return nil }
        if offset != nil { return .strayField(.uploadOffset) }
        if completeness != nil { return .strayField(dialect.completenessField) }
        if length != nil, dialect.reportsLength { return .strayField(.uploadLength) }
        return nil
    }

    /// A field's value; nil unless the field occurs exactly once.
    private struct Only {
        private(set) var value: String?
        private var occurred = false

        mutating func add(_ field: HTTPField) {
            value = occurred ? nil : field.value
            occurred = true
        }
    }
}
