// The limits that the gateway tells, so that no check brings more than it takes.

import HTTPTypes
import SpoolgateUploadProtocol

/// The limits that a creation's answer told (draft-12 §4.1.4).
struct ProbeLimits {
    var maxSize: Int64?
    var maxAppendSize: Int64?
    var minAppendSize: Int64

    /// Reads `Upload-Limit` of an answer's fields.
    init(_ fields: HTTPFields) {
        let members = StructuredField.integers(.uploadLimit, in: fields)
        maxSize = members["max-size"]
        maxAppendSize = members["max-append-size"]
        minAppendSize = members["min-append-size"] ?? 0
    }

    /// The length nearest to `length` that one append may have.
    func fitting(_ length: Int64) -> Int64 {
        max(minAppendSize, min(length, maxSize ?? length, maxAppendSize ?? length))
    }
}
