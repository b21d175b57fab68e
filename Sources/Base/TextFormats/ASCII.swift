// Classes of ASCII bytes, and whitespace around field values.
//
// Generic functions are inlinable, because versions specialised for the caller's types take a tenth of the time.

extension UInt8 {
    @inlinable package var isDigit: Bool { (0x30...0x39).contains(self) }

    @inlinable package var isAlphanumeric: Bool { isDigit || (0x61...0x7a).contains(self | 0x20) }

    /// Whether the byte is unreserved in a URI (RFC 3986 §2.3).
    @inlinable package var isUnreserved: Bool {
        switch self {
        case UInt8(ascii: "-"), UInt8(ascii: "."), UInt8(ascii: "_"), UInt8(ascii: "~"): true
        default: isAlphanumeric
        }
    }

    /// Whether the byte can be in an IPv6 address: a hexadecimal digit, a colon, or a dot.
    package var isOfAddress: Bool {
        Hexadecimal.value(of: self) != nil || ":.".utf8.contains(self)
    }
}

extension FixedWidthInteger {
    /// Parses decimal digits; returns nil for other text, such as a number with a sign, or if the number does not fit.
    @inlinable package init?(digits: some StringProtocol) { self.init(digits: digits.utf8) }

    /// Parses decimal digits; returns nil for other bytes, or if the number does not fit.
    @inlinable package init?(digits: some Collection<UInt8>) {
        guard !digits.isEmpty else { return nil }
        var number: Self = 0
        for digit in digits {
            guard digit.isDigit, let value = Self(exactly: digit - 0x30) else { return nil }
            let (tens, isBeyond) = number.multipliedReportingOverflow(by: 10)
            let (sum, isAbove) = tens.addingReportingOverflow(value)
            guard !isBeyond, !isAbove else { return nil }
            number = sum
        }
        self = number
    }
}

extension BidirectionalCollection<UInt8> {
    /// The host of an authority, including the brackets of an IPv6 address, and the port, or nil without a colon.
    @inlinable package var hostAndPort: (host: SubSequence, port: SubSequence?) {
        // An IPv6 address contains colons and ends with a bracket.
        let isAddress = first == UInt8(ascii: "[")
        let afterAddress = isAddress ? lastIndex(of: UInt8(ascii: "]")) ?? startIndex : startIndex
        guard let colon = self[afterAddress...].firstIndex(of: UInt8(ascii: ":")) else {
            return (self[...], nil)
        }
        return (self[..<colon], self[colon...].dropFirst())
    }

    /// Whether the bytes look like a bracketed IPv6 address (RFC 3986 §3.2.2).
    ///
    /// Only the characters are checked.
    package var isBracketedAddress: Bool {
        let address = dropFirst().dropLast()
        return first == UInt8(ascii: "[") && last == UInt8(ascii: "]")
            && address.contains(UInt8(ascii: ":")) && address.allSatisfy(\.isOfAddress)
    }

    /// The bytes without surrounding spaces and tabs (OWS, RFC 9110 §5.6.3).
    @inlinable package var withoutOuterWhitespace: SubSequence {
        var (start, end) = (startIndex, endIndex)
        while start != end, self[start] == 0x20 || self[start] == 0x09 { formIndex(after: &start) }
        while start != end {
            let last = index(before: end)
            guard self[last] == 0x20 || self[last] == 0x09 else { break }
            end = last
        }
        return self[start..<end]
    }
}

extension Substring {
    /// The text without surrounding spaces and tabs (OWS, RFC 9110 §5.6.3).
    package var withoutOuterWhitespace: Substring {
        let kept = utf8.withoutOuterWhitespace
        return self[kept.startIndex..<kept.endIndex]
    }
}
