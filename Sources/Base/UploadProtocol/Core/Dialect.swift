// The differences between the interop versions of the draft, and between the draft and tus 1.0.
//
// No other code compares interop versions. Invariant: every request has a dialect. An unknown version gets the newest
// semantics and no 104, unless an operator maps it to a known one.

package import HTTPTypes

/// The protocol of one request: a version of "Resumable Uploads for HTTP", or tus 1.0.
package struct Dialect: Sendable, Equatable {
    package let family: ProtocolFamily
    /// The interop version of the request, which responses repeat; nil if the request named no supported version.
    package let interopVersion: Int?
    /// The interop version whose semantics apply.
    private let version: Int
    /// Whether responses may include 104, as the drafts allow if the client names a version (draft-12 Appendix B).
    package let allowsInterim: Bool
    private var isTus: Bool { family == .tus }

    // The columns of the table; "since" names the draft that introduced the change.

    /// The completeness field: `Upload-Complete`, or its inverse `Upload-Incomplete`.
    package var completenessField: HTTPField.Name {
        version == 3 ? .uploadIncomplete : .uploadComplete
    }
    /// The completeness of an append without a valid completeness field; nil if such an append is refused.
    package var omittedCompleteness: Completeness? {
        version == 3 ? .complete : version <= 6 ? .incomplete : nil
    }
    /// Whether an append needs the content type `application/partial-upload` (since draft-04).
    package var requiresPartialMediaType: Bool { version >= 6 }
    /// The key of the lifetime in `Upload-Limit`; nil if this dialect has no `Upload-Limit`.
    ///
    /// The key is `expires` in drafts 04 and 05, and `newestLifetimeKey` in later drafts.
    package var lifetimeKey: String? {
        version <= 5 ? nil : version == 6 ? "expires" : Self.newestLifetimeKey
    }
    /// Whether the response to an offset retrieval includes `Upload-Length` (since draft-05).
    package var reportsLength: Bool { version >= 6 }
    /// Whether HEAD and DELETE requests with fields of an append are refused (draft-01 to draft-05).
    package var refusesStrayFields: Bool { version <= 6 }
    /// The status of a response to an append that leaves the upload incomplete.
    ///
    /// The status is 201 (Created) in drafts 01 to 05, which require it, and 204 (No Content) in later drafts.
    package var partialAppendStatus: HTTPResponse.Status { version <= 6 ? .created : .noContent }
    /// Whether the final response to a creation needs a `Location` (tus, and draft-01 to draft-05).
    package var locatesFinalResponse: Bool { isTus || version <= 6 }
    /// Whether the problem type `completed-upload` exists (draft-04 to draft-11).
    package var namesCompletedUpload: Bool { (6...8).contains(version) }
    /// Whether a 104 may report progress with `Upload-Offset` (since draft-03).
    package var allowsProgress: Bool { allowsInterim && version >= 5 }
    /// Whether content beyond a known length removes the upload (since version 7); if false, only the request is
    /// refused.
    package var deactivatesOnExcess: Bool { !isTus && version >= 7 }
    /// The status for content beyond a known length: 400 (draft-12 §4.4.2), or 413 (tus).
    package var excessStatus: HTTPResponse.Status { isTus ? .contentTooLarge : .badRequest }
    /// Whether the upload is removed if the response to its creation does not report success.
    ///
    /// In tus, only a successful response names the upload; after any other, the client would start a new upload.
    package var forgetsFailedCreation: Bool { isTus }
    /// Whether clients retry after 423 (Locked), so that the connection need not be closed.
    package var knowsLocked: Bool { isTus }

    /// Whether clients treat an offset equal to the length as success and send no further request.
    ///
    /// tus requires this; tus-js-client also does so in versions 5 and 6.
    package var takesOffsetForSuccess: Bool { isTus || version == 5 || version == 6 }

    /// Returns the completeness of a message that says `stated`.
    ///
    /// A client that takes an offset equal to the length for success may say "incomplete" of its last content:
    /// tus-js-client does of an empty file and of a stream.
    func meaning(of stated: Completeness) -> Completeness {
        stated == .incomplete && takesOffsetForSuccess ? .atLength : stated
    }

    /// Whether a creation with this content length receives the 104 that names the upload resource.
    ///
    /// Without content, the final response follows at once, and some HTTP libraries (Python's http.client) mistake the
    /// 104 for that response.
    package func allowsInterim(toCreationOf contentLength: ContentLength) -> Bool {
        allowsInterim && contentLength != .known(0)
    }

    /// Whether clients upload everything again after an error status that other clients treat as final.
    ///
    /// tus-js-client does, up to five times, if the creation said "incomplete".
    package var repeatsAfterError: Bool { takesOffsetForSuccess }

    /// The key of the lifetime in `Upload-Limit` since draft-06.
    static let newestLifetimeKey = "max-age"

    /// Returns the completeness that the completeness field states if its value is `isSet`.
    func completeness(isSet: Bool) -> Completeness {
        isSet == (completenessField == .uploadComplete) ? .complete : .incomplete
    }

    /// Reads the dialect from `Upload-Draft-Interop-Version` (draft-12 Appendix B).
    ///
    /// A missing, malformed, repeated or unknown version results in `newest`. `aliases` maps an unknown version to the
    /// known version whose semantics apply; responses repeat the version of the request. If `hasRFCClients` is true, a
    /// client that names no version implements the RFC.
    package init(of fields: HTTPFields, aliases: [Int: Int] = [:], hasRFCClients: Bool = false) {
        let version = StructuredField.integer(.uploadDraftInteropVersion, in: fields)
        if let known = version.flatMap(Dialect.known) {
            self = known
        } else if let named = version.map({ Int($0) }), let served = aliases[named],
            Dialect.versions.contains(served)
        {
            self = Dialect(served, echoing: named)
        } else if hasRFCClients, !fields.contains(.uploadDraftInteropVersion) {
            self = .rfc
        } else {
            self = .newest
        }
    }

    /// Returns the version that a request names if it is unsupported and `newest` therefore applies.
    ///
    /// The result is nil if the version is far out of range, so that clients cannot make up any number of versions.
    package func unknownVersion(in fields: HTTPFields) -> Int? {
        guard family == .ietf, interopVersion == nil,
            let named = StructuredField.integer(.uploadDraftInteropVersion, in: fields),
            (1...Int64(Self.versions.upperBound + 10)).contains(named)
        else { return nil }
        return Int(named)
    }

    package static let versions = 3...10

    /// The newest semantics and no 104, for a request without a version.
    package static let newest = Dialect(nil)

    /// The future RFC: `newest`, with the 104 of draft-12 §4.
    ///
    /// Appendix B, which restricts the 104, ends with the last draft.
    package static let rfc = Dialect(nil, isRFC: true)

    package static let tus = Dialect(nil, family: .tus)

    /// All dialects with an interop version, in ascending order.
    package static let rows = versions.map { Dialect($0) }

    /// Returns the dialect of an interop version, or nil if the version is unknown.
    package static func known(_ version: Int64) -> Dialect? {
        Int(exactly: version).flatMap {
            versions.contains($0) ? rows[$0 - versions.lowerBound] : nil
        }
    }

    private init(
        _ interopVersion: Int?,
        echoing echoed: Int? = nil,
        family: ProtocolFamily = .ietf,
        isRFC: Bool = false
    ) {
        self.family = family
        version = interopVersion ?? Dialect.versions.upperBound
        self.interopVersion = echoed ?? interopVersion
        allowsInterim = interopVersion != nil || isRFC
    }
}

// MARK: Families

// Detects the protocol of a request.
//
// The first matching rule applies. On an upload resource: a mark of the draft, then a mark of tus, then the protocol of
// the upload's creation. Elsewhere: a valid completeness field, even together with `Tus-Resumable`; then
// `Tus-Resumable`. `Upload-Length` or `Upload-Offset` alone is not a mark.

/// The upload protocols.
package enum ProtocolFamily: Sendable, Equatable {
    /// "Resumable Uploads for HTTP", any interop version.
    case ietf
    case tus

    /// Detects the protocol of a request from its fields; nil if no field identifies a protocol.
    ///
    /// `isOnResource` is evaluated only if the request may be tus.
    package init?(of head: RequestHead, isOnResource: @autoclosure () -> Bool) {
        let marks = Marks(head.fields)
        // OPTIONS asks for general capabilities (RFC 9110), and tus ignores the version in such a request.
        guard marks.hasTusVersion || marks.hasTusType, head.method != .options else {
            guard marks.isIETF else { return nil }
            self = .ietf
            return
        }
        if isOnResource() {
            self = marks.isIETF ? .ietf : .tus
        } else if UploadFields(head.fields, dialect: Dialect(of: head.fields)).completeness != nil {
            self = .ietf
        } else if marks.hasTusVersion {
            self = .tus
        } else {
            return nil
        }
    }

    private struct Marks {
        private(set) var isIETF = false
        private(set) var hasTusVersion = false
        private(set) var hasTusType = false

        init(_ fields: HTTPFields) {
            for field in fields {
                // Rules out most fields cheaply.
                switch field.name.canonicalName.utf8.first {
                case UInt8(ascii: "t"): if field.name == .tusResumable { hasTusVersion = true }
                case UInt8(ascii: "u"):
                    if field.name == .uploadDraftInteropVersion || field.name == .uploadComplete
                        || field.name == .uploadIncomplete
                    {
                        isIETF = true
                    }
                case UInt8(ascii: "c"):
                    guard field.name == .contentType else { continue }
                    if MediaType.of(field.value, is: UploadResources.partialMediaType) {
                        isIETF = true
                    } else if MediaType.of(field.value, is: Tus.mediaType) {
                        hasTusType = true
                    }
                default: break
                }
            }
        }
    }
}

/// An upload's protocol and, in tus, whether it is a part of another upload or made of parts.
package struct UploadKind: Sendable, Equatable {
    package var family = ProtocolFamily.ietf
    /// Whether the upload is only a part of another upload and never delivered by itself (tus, "concatenation").
    package var isPart = false
    /// Whether the upload is concatenated from parts.
    package var isFinal = false

    /// Creates the kind of a plain upload of the draft.
    package init() {}

    /// Reads the kind from the head of a creation.
    package init(of creation: RequestHead) {
        guard ProtocolFamily(of: creation, isOnResource: false) == .tus else { return }
        family = .tus
        switch creation.fields[.uploadConcat].flatMap(UploadConcat.init) {
        case .partial: isPart = true
        case .final: isFinal = true
        case nil: break
        }
    }
}
