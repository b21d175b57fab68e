// The fields of each interop version: how a client writes and reads them.
//
// Values only. The invariant: a client that names no version uses the newest one.

import HTTPTypes
import SpoolgateTextFormats
import SpoolgateUploadProtocol

struct WireVersion: Equatable {
    /// The version to name; nil to name none.
    let named: Int?
    private var dialect: Dialect { named.flatMap { Dialect.known(Int64($0)) } ?? .newest }

    /// Returns nil if the version is not supported.
    init?(_ named: Int?) {
        if let named, !Dialect.versions.contains(named) { return nil }
        self.named = named
    }

    /// The version that servers with few versions have in common.
    ///
    /// The client tries it if another version is refused.
    static let common = 6

    func name(in fields: inout HTTPFields) {
        if let named { fields[.uploadDraftInteropVersion] = String(named) }
    }

    /// Adds the field that states whether the body ends with this request.
    func mark(_ isComplete: Bool, in fields: inout HTTPFields) {
        let field = dialect.completenessField
        fields[field] = isComplete == (field == .uploadComplete) ? "?1" : "?0"
    }

    /// Adds the fields of an append, which has had its own media type since draft-04.
    func markAppend(at offset: Int64, in fields: inout HTTPFields) {
        fields[.uploadOffset] = String(offset)
        if dialect.requiresPartialMediaType {
            fields[.contentType] = UploadResources.partialMediaType
        }
    }

    /// Returns whether an interim response is a 104 with the named version (draft-12 Appendix B).
    func isOwn(_ interim: ResponseHead) -> Bool {
        guard interim.status.code == 104 else { return false }
        let echoed = StructuredField.integer(.uploadDraftInteropVersion, in: interim.fields)
        return echoed == named.map { Int64($0) }
    }
}

extension HTTPFields {
    /// Asks proxies to forward content as it arrives (RFC 10036), because the client waits for a 104 meanwhile.
    mutating func requestIncrementalForwarding() { self[.incremental] = "?1" }
}

/// The upload fields of one response.
///
/// A property is nil if its field is missing or invalid.
struct ServerResponse {
    let status: Int
    let offset: Int64?
    let length: Int64?
    /// Whether the upload is complete or the response is the application's own.
    let isComplete: Bool?
    /// The unresolved URL of the upload resource.
    let location: String?
    /// The maximum content of an append in bytes.
    let maxAppend: Int64?
    /// The minimum content of an append that does not complete the upload, in bytes.
    let minAppend: Int64?
    /// The maximum length of an upload in bytes.
    let maxSize: Int64?
    let retryAfter: Duration?

    init(_ head: ResponseHead, retryAfter: Duration? = nil) {
        self.retryAfter = retryAfter
        let fields = head.fields
        status = head.status.code
        offset = StructuredField.integer(.uploadOffset, in: fields).flatMap { $0 < 0 ? nil : $0 }
        length = StructuredField.integer(.uploadLength, in: fields).flatMap { $0 < 0 ? nil : $0 }
        // Both fields are read for every version, because one server library swaps them.
        isComplete =
            fields.value(of: .uploadComplete).flatMap(StructuredField.boolean(_:))
            ?? fields.value(of: .uploadIncomplete).flatMap(StructuredField.boolean(_:)).map { !$0 }
        location = fields.value(of: .location)
        let limits = StructuredField.integers(.uploadLimit, in: fields)
        maxAppend = limits["max-append-size"].flatMap { $0 > 0 ? $0 : nil }
        minAppend = limits["min-append-size"]
        maxSize = limits["max-size"]
    }

    var knowsUploads: Bool { offset != nil || isComplete != nil || maxSize != nil }
}
