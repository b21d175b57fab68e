// Media types and their comparison (RFC 9110 §8.3.1).
//
// Compares bytes, not characters.

import HTTPTypes

/// Functions for media types.
package enum MediaType {
    package static let any = "application/octet-stream"

    /// Returns the text if it is a well-formed media type, with or without parameters; otherwise nil.
    package static func wellFormed(_ text: String) -> String? {
        let essence = text.utf8.prefix { $0 != UInt8(ascii: ";") }.split(
            separator: UInt8(ascii: "/"),
            omittingEmptySubsequences: false
        )
        let isType =
            essence.count == 2
            && essence.allSatisfy { HTTPField.Name(String(decoding: $0, as: UTF8.self)) != nil }
        return isType && HTTPField.isValidValue(text) ? text : nil
    }

    /// Whether a media type is a multipart type.
    package static func isMultipart(_ text: String) -> Bool {
        text.utf8.prefix(10).elementsEqual("multipart/".utf8) { ($0 | 0x20) == ($1 | 0x20) }
    }

    /// Whether a `Content-Type` is `expected`, with or without parameters, ignoring case.
    ///
    /// `expected` must be the type and subtype in lower case.
    package static func of(_ value: String, is expected: String) -> Bool {
        guard value.utf8.count >= expected.utf8.count else { return false }
        var rest = value.utf8.makeIterator()
        for wanted in expected.utf8 {
            guard let byte = rest.next() else { return false }
            let isUpper = (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains(byte)
            guard byte == wanted || isUpper && byte | 32 == wanted else { return false }
        }
        while let byte = rest.next(), byte != UInt8(ascii: ";") {
            guard byte == UInt8(ascii: " ") || byte == UInt8(ascii: "\t") else { return false }
        }
        return true
    }
}
