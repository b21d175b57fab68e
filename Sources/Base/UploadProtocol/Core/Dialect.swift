// What one interop version says differently from the others, and tus 1.0 from all of them, as one table.
//
// Nothing else compares interop versions: every difference in behaviour is a column here, that in wording
// stands in the response builders. Invariant: a request always has a dialect; a version we do not know is
// served with the newest semantics and no 104, unless an operator says which one it is served as.

package import HTTPTypes

/// The dialect that one request speaks: of "Resumable Uploads for HTTP", or tus 1.0.
package struct Dialect: Sendable, Equatable {
    /// Whose words it uses.
    package let family: ProtocolFamily
    /// The interop version to echo, as the request named it; nil where it named none that we serve.
    package let interopVersion: Int?
    /// The version that it is served as.
    private let version: Int
    /// Whether 104 (Upload Resumption Supported) may be sent for it at all: of the drafts, only to clients
    /// that name a version (draft-12 Appendix B).
    package let allowsInterim: Bool
    private var isTus: Bool { family == .tus }

    // The table: a column each, told by the version that brought the change.

    /// The field that tells completeness: `Upload-Complete`, or its inverse `Upload-Incomplete`.
    package var completenessField: HTTPField.Name {
        version == 3 ? .uploadIncomplete : .uploadComplete
    }
    /// What an append without a valid completeness field means; nil: it is refused.
    package var omittedCompleteness: Completeness? {
        version == 3 ? .complete : version <= 6 ? .incomplete : nil
    }
    /// Whether an append must have the content type `application/partial-upload` (draft-04 on).
    package var requiresPartialMediaType: Bool { version >= 6 }
    /// The key of `Upload-Limit` that tells the lifetime: `expires` (drafts 04 and 05) or `newestLifetimeKey`;
    /// nil: this dialect has no `Upload-Limit`.
    package var lifetimeKey: String? {
        version <= 5 ? nil : version == 6 ? "expires" : Self.newestLifetimeKey
    }
    /// Whether an offset retrieval tells `Upload-Length` (draft-05 on).
    package var tellsLength: Bool { version >= 6 }
    /// Whether HEAD and DELETE with fields of an append are refused (draft-01 to draft-05).
    package var refusesStrayFields: Bool { version <= 6 }
    /// The status of an append that leaves the upload incomplete: 201 (Created), demanded by drafts 01 to
    /// 05, or 204 (No Content).
    package var partialAppendStatus: HTTPResponse.Status { version <= 6 ? .created : .noContent }
    /// Whether the final response to a creation needs a `Location` (draft-01 to draft-05).
    package var locatesFinalResponse: Bool { isTus || version <= 6 }
    /// Whether an empty creation of length zero that says "incomplete" is the whole upload.
    ///
    /// tus-js-client sends nothing after it for an empty file and speaks versions 5 and 6 only.
    package var completesEmptyCreation: Bool { isTus || version == 5 || version == 6 }
    /// Whether the problem type `completed-upload` exists (draft-04 to draft-11).
    package var namesCompletedUpload: Bool { (6...8).contains(version) }
    /// Whether a 104 may tell progress by `Upload-Offset` (draft-03 on).
    package var allowsProgress: Bool { allowsInterim && version >= 5 }
    /// Whether content beyond a known length deactivates the upload (version 7 on) or is only
    /// refused.
    package var deactivatesOnExcess: Bool { !isTus && version >= 7 }
    /// The status of content that goes past a known length: 400 (draft-12 §4.4.2), or 413 (tus).
    package var excessStatus: HTTPResponse.Status { isTus ? .contentTooLarge : .badRequest }
    /// Whether a creation leaves nothing where it is not answered with success: that answer alone names the
    /// upload, and its client begins again.
    package var forgetsFailedCreation: Bool { isTus }
    /// Whether its clients know 423 (Locked) as "come back", and need no broken connection for it.
    package var knowsLocked: Bool { isTus }

    /// Whether its clients take an offset equal to the length for success, asking nothing more.
    ///
    /// tus-js-client does, which speaks the versions of `completesEmptyCreation`; tus says so.
    package var takesOffsetForSuccess: Bool { completesEmptyCreation }

    /// Whether the 104 that names an upload resource is sent to a creation with such content.
    ///
    /// Without content the answer comes at once and names it as well, and some HTTP libraries take the 104
    /// for it (Python's http.client).
    package func allowsInterim(toCreationOf contentLength: ContentLength) -> Bool {
        allowsInterim && contentLength != .known(0)
    }

    /// Whether its clients send everything again after an upload whose creation said "incomplete" was
    /// answered with a status that others take for the answer.
    ///
    /// tus-js-client does, up to five times.
    package var repeatsAfterError: Bool { completesEmptyCreation }

    /// What `Upload-Limit` calls the lifetime from draft 06 on.
    static let newestLifetimeKey = "max-age"

    /// What a completeness field that is `isSet` says.
    func completeness(_ isSet: Bool) -> Completeness {
        isSet == (completenessField == .uploadComplete) ? .complete : .incomplete
    }

    /// Reads the dialect of a request from its `Upload-Draft-Interop-Version`.
    ///
    /// draft-12 Appendix B. Absent, malformed, repeated and unknown versions are `newest`.
    ///
    /// - Parameters:
    ///   - fields: the request's fields.
    ///   - aliases: versions that are served as other, known ones, and echoed as they were named.
    ///   - hasRFCClients: whether clients that name no version are those of the RFC.
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

    /// The version that a request of this dialect names and that is not served: it is taken for `newest`.
    ///
    /// - Parameter fields: the request's fields.
    /// - Returns: the version; nil: it names none, one that is served, or one that is far away, so that nobody makes up any
    ///   number of them.
    package func unknownVersion(in fields: HTTPFields) -> Int? {
        guard family == .ietf, interopVersion == nil,
            let named = StructuredField.integer(.uploadDraftInteropVersion, in: fields),
            (1...Int64(Self.versions.upperBound + 10)).contains(named)
        else { return nil }
        return Int(named)
    }

    /// The interop versions that are known.
    package static let versions = 3...10

    /// The dialect of a request that names no version: the newest semantics and no 104.
    package static let newest = Dialect(nil)

    /// The dialect of the RFC that the drafts become: as `newest`, with the 104 that draft-12 §4 describes
    /// without Appendix B, which goes with the last draft.
    package static let rfc = Dialect(nil, isRFC: true)

    /// tus 1.0.0: an upload ends where its length is reached, and a client takes that offset for success.
    package static let tus = Dialect(nil, family: .tus)

    /// Every dialect with an interop version, in order.
    package static let rows = versions.map { Dialect($0) }

    /// The dialect of one interop version; nil for versions without a row.
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
