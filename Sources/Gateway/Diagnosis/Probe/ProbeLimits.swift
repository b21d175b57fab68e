// The gateway's limits, which no check exceeds.

import HTTPTypes
import SpoolgateUploadProtocol

/// The limits in bytes from the response to a creation (`Upload-Limit`, draft-12 §4.1.4).
///
/// A limit of nil means unlimited.
struct ProbeLimits {
    var maxSize: Int64?
    var maxAppendSize: Int64?

    init(_ fields: HTTPFields) {
        let members = StructuredField.integers(.uploadLimit, in: fields)
        maxSize = members["max-size"]
        maxAppendSize = members["max-append-size"]
    }

    /// Returns the greatest length up to `length` that the limits permit for an append.
    func fitting(_ length: Int64) -> Int64 {
        min(length, maxSize ?? length, maxAppendSize ?? length)
    }
}
