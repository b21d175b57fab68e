// The field `Content-Range` of a part (RFC 9110 §14.4).
//
// Pure. The invariant: a range is not empty, and lies within the whole if `total` is known.

import HTTPTypes
import SpoolgateTextFormats
import SpoolgateUploadProtocol

struct PartRange: Equatable {
    let start: Int64
    /// The offset after the part's last byte.
    let end: Int64
    /// The length of the whole representation in bytes; nil if unknown.
    let total: Int64?

    var count: Int64 { end - start }

    /// Reads `bytes 5-9/10` or `bytes 5-9/*`; nil for any other value, or a range beyond the whole.
    init?(_ fields: HTTPFields) {
        guard let (range, total) = Self.parts(fields) else { return nil }
        let ends = range.split(separator: "-", omittingEmptySubsequences: false)
        guard ends.count == 2, let start = Int64(digits: ends[0]),
            let last = Int64(digits: ends[1]),
            start <= last, last < .max, last < total ?? .max
        else { return nil }
        (self.start, end, self.total) = (start, last + 1, total)
    }

    /// Reads the length from the `bytes */10` of a 416; nil for any other value.
    static func total(_ fields: HTTPFields) -> Int64? {
        guard let (range, total) = parts(fields), range.hasSameBytes(as: "*") else { return nil }
        return total
    }

    private static func parts(_ fields: HTTPFields) -> (range: Substring, total: Int64?)? {
        guard let value = fields.value(of: .contentRange) else { return nil }
        let words = value.split(separator: " ")
        guard words.count == 2, words[0].lowercased().hasSameBytes(as: "bytes") else { return nil }
        let parts = words[1].split(separator: "/", omittingEmptySubsequences: false)
        guard parts.count == 2 else { return nil }
        if parts[1].hasSameBytes(as: "*") { return (parts[0], nil) }
        return Int64(digits: parts[1]).map { (parts[0], $0) }
    }
}
