// Operations on a parameter's bytes that create no string, since a request has dozens of parameters.
//
// Pure.

import Glibc
import SpoolgateTextFormats

/// The name or value of a parameter, in libfcgi's memory.
package typealias ParameterBytes = UnsafeBufferPointer<UInt8>

extension ParameterBytes {
    func has(_ byte: UInt8) -> Bool {
        guard let baseAddress, !isEmpty else { return false }
        return memchr(baseAddress, Int32(byte), count) != nil
    }

    func hasSuffix(_ text: StaticString) -> Bool {
        ParameterBytes(rebasing: suffix(text.utf8CodeUnitCount)).equals(text)
    }

    /// The bytes without outer spaces and tabs (OWS, RFC 9110 §5.6.3).
    var trimmed: ParameterBytes { ParameterBytes(rebasing: withoutOuterWhitespace) }

    /// The bytes as text, with invalid UTF-8 repaired.
    var text: String { String(decoding: self, as: UTF8.self) }

    var validText: String? {
        // Nearly all values are ASCII, which needs no costly validation.
        isASCII ? text : String(validating: self, as: UTF8.self)
    }

    var isASCII: Bool {
        var all: UInt8 = 0
        for byte in self { all |= byte }
        return all < 0x80
    }
}

extension StaticString {
    /// Matches a parameter's name in a `switch`.
    @inline(__always) static func ~= (pattern: StaticString, bytes: ParameterBytes) -> Bool {
        bytes.equals(pattern)
    }
}
