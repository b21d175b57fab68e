// What is asked of a parameter's bytes, without a text made of them: a request has dozens.
//
// Pure.

import Glibc
import SpoolgateTextFormats

/// A parameter's name or value, where libfcgi has it.
package typealias ParameterBytes = UnsafeBufferPointer<UInt8>

extension ParameterBytes {
    /// Whether `byte` is among these.
    func has(_ byte: UInt8) -> Bool {
        guard let baseAddress, !isEmpty else { return false }
        return memchr(baseAddress, Int32(byte), count) != nil
    }

    /// Whether the last of these are the bytes of `text`.
    func hasSuffix(_ text: StaticString) -> Bool {
        ParameterBytes(rebasing: suffix(text.utf8CodeUnitCount)).equals(text)
    }

    /// These bytes without the spaces and tabs around them (OWS, RFC 9110 §5.6.3).
    var trimmed: ParameterBytes { ParameterBytes(rebasing: withoutOuterWhitespace) }

    /// The text that these bytes are; repaired where they are no UTF-8.
    var text: String { String(decoding: self, as: UTF8.self) }

    /// The text that these bytes are; nil where they are no UTF-8.
    var validText: String? {
        // Nearly all are ASCII, which needs none of the costly looking through.
        isASCII ? text : String(validating: self, as: UTF8.self)
    }

    /// Whether no byte is above 0x7F.
    var isASCII: Bool {
        var all: UInt8 = 0
        for byte in self { all |= byte }
        return all < 0x80
    }
}

extension StaticString {
    /// For `switch` over a parameter's name.
    @inline(__always) static func ~= (pattern: StaticString, bytes: ParameterBytes) -> Bool {
        bytes.equals(pattern)
    }
}
