// Comparison of media types (RFC 9110 §8.3.1).
//
// Bytes, not characters: no second spelling passes. Parameters are not read.

/// The comparison of media types.
package enum MediaType {
    /// Whether a `Content-Type` is `expected`, with or without parameters.
    ///
    /// - Parameters:
    ///   - value: the field's value.
    ///   - expected: type and subtype in lower case.
    /// - Returns: whether they are the same but for case.
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
