// What the interop versions make a client say, and how it reads what a server says.
//
// Values only. The invariant: a client that names no version speaks the newest one.

import HTTPTypes
import SpoolgateTextFormats
import SpoolgateUploadProtocol

/// The words of one interop version, from the client's side.
struct WireVersion: Equatable {
    /// As it is named; nil: not at all.
    let named: Int?
    private var dialect: Dialect { named.flatMap { Dialect.known(Int64($0)) } ?? .newest }

    /// Nil for a version that is not spoken.
    init?(_ named: Int?) {
        if let named, !Dialect.versions.contains(named) { return nil }
        self.named = named
    }

    /// The version that servers with a few versions have in common, tried where another one is refused.
    static let common = 6

    /// Adds the version's name.
    func name(in fields: inout HTTPFields) {
        if let named { fields[.uploadDraftInteropVersion] = String(named) }
    }

    /// Adds whether the body ends with this request.
    func mark(_ isComplete: Bool, in fields: inout HTTPFields) {
        let field = dialect.completenessField
        fields[field] = isComplete == (field == .uploadComplete) ? "?1" : "?0"
    }

    /// Makes the fields those of an append; before draft-04 it had no media type of its own.
    func markAppend(at offset: Int64, in fields: inout HTTPFields) {
        fields[.uploadOffset] = String(offset)
        if dialect.requiresPartialMediaType {
            fields[.contentType] = UploadResources.partialMediaType
        }
    }

    /// Whether a 104 is one of this exchange: only with the version that was named (draft-12 Appendix B).
    func isOwn(_ interim: ResponseHead) -> Bool {
        guard interim.status.code == 104 else { return false }
        let echoed = StructuredField.integer(.uploadDraftInteropVersion, in: interim.fields)
        return echoed == named.map { Int64($0) }
    }
}

extension HTTPFields {
    /// Asks whoever forwards the request to do so as it comes (RFC 10036): what is told by 104 meanwhile is waited for.
    mutating func askForIncrementalForwarding() { self[.incremental] = "?1" }
}

/// What the fields of one response say of an upload.
struct UploadAnswer {
    /// The status.
    let status: Int
    /// The offset; nil: none that is valid.
    let offset: Int64?
    /// The whole length; nil: not told.
    let length: Int64?
    /// Whether the response is the target's own, or what came is complete; nil: not said.
    let isComplete: Bool?
    /// Where the upload resource is, as it stands there.
    let location: String?
    /// Most bytes of one append; nil: not told.
    let maxAppend: Int64?
    /// Least bytes of one append that does not complete the upload; nil: not told.
    let minAppend: Int64?
    /// Most bytes of the body; nil: not told.
    let maxSize: Int64?
    /// How long to wait before trying again; nil: not told.
    let retryAfter: Duration?

    init(_ head: ResponseHead, retryAfter: Duration? = nil) {
        self.retryAfter = retryAfter
        let fields = head.fields
        status = head.status.code
        offset = StructuredField.integer(.uploadOffset, in: fields).flatMap { $0 < 0 ? nil : $0 }
        length = StructuredField.integer(.uploadLength, in: fields).flatMap { $0 < 0 ? nil : $0 }
        // Both are read, whatever was named: a library of servers swaps them.
        isComplete =
            fields.value(of: .uploadComplete).flatMap(StructuredField.boolean(_:))
            ?? fields.value(of: .uploadIncomplete).flatMap(StructuredField.boolean(_:)).map { !$0 }
        location = fields.value(of: .location)
        let limits = StructuredField.integers(.uploadLimit, in: fields)
        maxAppend = limits["max-append-size"].flatMap { $0 > 0 ? $0 : nil }
        minAppend = limits["min-append-size"]
        maxSize = limits["max-size"]
    }

    /// Whether it is about an upload resource at all.
    var knowsUploads: Bool { offset != nil || isComplete != nil || maxSize != nil }
}
