// The protocol's fields of one request, read in one pass.
//
// A malformed or repeated field counts as missing (draft-12 §4.1.1 to §4.1.3). UploadRequest decides on combinations of
// fields.

import HTTPTypes

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
        completeness = markers.value.flatMap(StructuredField.boolean(_:)).map(dialect.completeness)
        hasPartialMediaType =
            types.value.map { MediaType.of($0, is: UploadResources.partialMediaType) } ?? false
    }

    /// Returns the refusal of a request that is neither a creation nor an append; nil if the request may have these
    /// fields.
    func strayRefusal(_ dialect: Dialect) -> Refusal? {
        guard dialect.refusesStrayFields else { return nil }
        if offset != nil { return .strayField(.uploadOffset) }
        if completeness != nil { return .strayField(dialect.completenessField) }
        if length != nil, dialect.tellsLength { return .strayField(.uploadLength) }
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
