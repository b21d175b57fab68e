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
        var essence = value.utf8.prefix { $0 != UInt8(ascii: ";") }
        while let last = essence.last, last == UInt8(ascii: " ") || last == UInt8(ascii: "\t") {
            essence.removeLast()
        }
        return essence.elementsEqual(expected.utf8) { byte, wanted in
            byte == wanted
                || (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains(byte) && byte | 32 == wanted
        }
    }
}
