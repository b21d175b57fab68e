// The limits that the gateway tells, so that no check brings more than it takes.

import TextFormats

/// The limits that a creation's answer told (draft-12 §4.1.4).
struct ProbeLimits {
    var maxSize: Int64?
    var maxAppendSize: Int64?
    var minAppendSize: Int64

    /// Reads `Upload-Limit`.
    init(_ text: String) {
        var members: [String: Int64] = [:]
        for member in text.split(separator: ",").map(\.withoutOuterWhitespace) {
            let parts = member.split(separator: "=", maxSplits: 1)
            if parts.count == 2 { members[String(parts[0])] = Int64(digits: parts[1]) }
        }
        maxSize = members["max-size"]
        maxAppendSize = members["max-append-size"]
        minAppendSize = members["min-append-size"] ?? 0
    }

    /// The length nearest to `length` that one append may have.
    func fitting(_ length: Int64) -> Int64 {
        max(minAppendSize, min(length, maxSize ?? length, maxAppendSize ?? length))
    }
}
