// `Content-Range` of requests, which makes the content a part of a representation (RFC 9110 §14.4, §14.5).
//
// Pure. The unit is ignored. Invariant: an unreadable value still makes the content a part.

package import HTTPTypes
import SpoolgateTextFormats

/// The part of a representation that a request contains.
package struct ContentRange: Sendable, Equatable {
    /// The length of the whole representation in bytes; nil if not stated.
    ///
    /// The length is the larger of the number after the slash and the end of the part; at most `Int64.max`.
    package var length: Int64?

    /// Parses a field value; the largest of several lengths is used.
    init(_ value: String) {
        for part in value.utf8.split(separator: UInt8(ascii: ",")) {
            let sides = part.split(
                separator: UInt8(ascii: "/"),
                maxSplits: 1,
                omittingEmptySubsequences: false
            )
            let last = sides[0].split(separator: UInt8(ascii: "-")).last.flatMap(Self.number)
            let end = last.map { $0 == .max ? $0 : $0 + 1 }
            let total = sides.count > 1 ? Self.number(sides[1]) : nil
            length = [length, end, total].compactMap { $0 }.max()
        }
    }

    private static func number(_ bytes: Substring.UTF8View) -> Int64? {
        let digits = bytes.withoutOuterWhitespace
        guard !digits.isEmpty, digits.allSatisfy(\.isDigit) else { return nil }
        return Int64(String(decoding: digits, as: UTF8.self)) ?? .max
    }
}

extension HTTPFields {
    /// The request's `Content-Range`; nil if the field is missing, which means that the content is not partial.
    package var contentRange: ContentRange? {
        // The values of several lines are joined into one list.
        contains(.contentRange) ? self[.contentRange].map { ContentRange($0) } : nil
    }
}
