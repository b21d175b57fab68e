// Base64 (RFC 4648 §4), hexadecimal and percent-encoded text.
//
// Pure. Invariant: decode(encode(bytes)) is `bytes`, and Base64 that no encoder produces decodes to nil.

/// Base64 with the standard alphabet.
package enum Base64 {
    private static let alphabet = Array(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".utf8
    )

    private static let values = Dictionary(uniqueKeysWithValues: zip(alphabet, UInt8(0)...))

    /// Encodes bytes, with padding.
    package static func encode(_ bytes: [UInt8]) -> String {
        var text: [UInt8] = []
        text.reserveCapacity((bytes.count + 2) / 3 * 4)
        var rest = bytes[...]
        while !rest.isEmpty {
            let group = rest.prefix(3)
            rest = rest.dropFirst(3)
            var bits = group.reduce(UInt32(0)) { $0 << 8 | UInt32($1) }
            bits <<= UInt32(8 * (3 - group.count))
            for place in 0..<4 {
                let digit = Int(bits >> UInt32(18 - 6 * place) & 63)
                text.append(place <= group.count ? alphabet[digit] : UInt8(ascii: "="))
            }
        }
        return String(decoding: text, as: UTF8.self)
    }

    /// Decodes a text with or without padding; returns nil if the text is invalid.
    package static func decode(_ text: some StringProtocol) -> [UInt8]? {
        var digits = Array(text.utf8)
        if digits.count % 4 == 0 {
            for _ in 0..<2 where digits.last == UInt8(ascii: "=") { digits.removeLast() }
        }
        var bytes: [UInt8] = []
        bytes.reserveCapacity(digits.count / 4 * 3 + 2)
        var bits: UInt32 = 0
        var held = 0
        for digit in digits {
            guard let value = values[digit] else { return nil }
            bits = bits << 6 | UInt32(value)
            held += 6
            if held >= 8 {
                held -= 8
                bytes.append(UInt8(truncatingIfNeeded: bits >> UInt32(held)))
            }
        }
        // A single digit is not a byte, and the remaining bits must be zero.
        guard digits.count % 4 != 1, bits & (1 << UInt32(held) - 1) == 0 else { return nil }
        return bytes
    }
}

/// Hexadecimal text.
package enum Hexadecimal {
    /// Encodes each byte as two lower-case digits.
    package static func text(_ bytes: [UInt8]) -> String {
        let digits = Array("0123456789abcdef".utf8)
        return String(
            decoding: bytes.flatMap { [digits[Int($0 >> 4)], digits[Int($0 & 15)]] },
            as: UTF8.self
        )
    }

    /// Returns the value of a digit of either case, or nil for another byte.
    package static func value(of digit: UInt8) -> UInt8? {
        switch digit {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): digit - UInt8(ascii: "0")
        case UInt8(ascii: "a")...UInt8(ascii: "f"): digit - UInt8(ascii: "a") + 10
        case UInt8(ascii: "A")...UInt8(ascii: "F"): digit - UInt8(ascii: "A") + 10
        default: nil
        }
    }
}

/// Percent-encoding (RFC 3986 §2.1).
package enum PercentText {
    /// Decodes escapes such as `%20`.
    ///
    /// An invalid escape is left unchanged.
    package static func decode(_ bytes: some Sequence<UInt8>) -> [UInt8] {
        var decoded: [UInt8] = []
        var rest = Array(bytes)[...]
        while let byte = rest.popFirst() {
            if byte == UInt8(ascii: "%"), rest.count > 1,
                let high = Hexadecimal.value(of: rest[rest.startIndex]),
                let low = Hexadecimal.value(of: rest[rest.startIndex + 1])
            {
                decoded.append(high << 4 | low)
                rest = rest.dropFirst(2)
            } else {
                decoded.append(byte)
            }
        }
        return decoded
    }

    /// Escapes all characters of a text except unreserved ones (RFC 3986 §2.3).
    package static func encode(_ text: String) -> String { encode(text.utf8) }

    /// Escapes all bytes except unreserved characters.
    ///
    /// The input need not be valid UTF-8.
    package static func encode(_ bytes: some Sequence<UInt8>) -> String {
        bytes.map { byte in
            byte.isUnreserved
                ? String(Unicode.Scalar(byte)) : "%" + Hexadecimal.text([byte]).uppercased()
        }.joined()
    }
}
