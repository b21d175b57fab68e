// Classes of ASCII bytes, and what is around the parts of a field value.
//
// What is generic here can be inlined: for the caller's own types it costs a tenth.

extension UInt8 {
    /// `0` to `9`.
    @inlinable package var isDigit: Bool { (0x30...0x39).contains(self) }

    /// A letter of either case, or a digit.
    @inlinable package var isAlphanumeric: Bool { isDigit || (0x61...0x7a).contains(self | 0x20) }

    /// A byte that stands for itself in a URI (unreserved, RFC 3986 §2.3).
    @inlinable package var isUnreserved: Bool {
        switch self {
        case UInt8(ascii: "-"), UInt8(ascii: "."), UInt8(ascii: "_"), UInt8(ascii: "~"): true
        default: isAlphanumeric
        }
    }

    /// A byte of an IPv6 address: a hexadecimal digit, a colon, or a dot.
    package var isOfAddress: Bool {
        Hexadecimal.value(of: self) != nil || ":.".utf8.contains(self)
    }
}

extension FixedWidthInteger {
    /// The number of a text of digits; nil for anything else, a sign among it, and for what does not fit.
    @inlinable package init?(digits: some StringProtocol) { self.init(digits: digits.utf8) }

    /// The same, of the text's bytes.
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
    /// An authority's host, with the brackets of an IPv6 address, and what follows the colon behind it; nil without one.
    @inlinable package var hostAndPort: (host: SubSequence, port: SubSequence?) {
        // An address of IPv6 has colons, and ends in a bracket.
        let isAddress = first == UInt8(ascii: "[")
        let afterAddress = isAddress ? lastIndex(of: UInt8(ascii: "]")) ?? startIndex : startIndex
        guard let colon = self[afterAddress...].firstIndex(of: UInt8(ascii: ":")) else {
            return (self[...], nil)
        }
        return (self[..<colon], self[colon...].dropFirst())
    }

    /// Whether these are an IPv6 address in brackets, as far as its bytes show (RFC 3986 §3.2.2).
    package var isBracketedAddress: Bool {
        let address = dropFirst().dropLast()
        return first == UInt8(ascii: "[") && last == UInt8(ascii: "]")
            && address.contains(UInt8(ascii: ":")) && address.allSatisfy(\.isOfAddress)
    }

    /// These bytes without the spaces and tabs around them (OWS, RFC 9110 §5.6.3).
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
    /// This text without the spaces and tabs around it (OWS, RFC 9110 §5.6.3).
    package var withoutOuterWhitespace: Substring {
        let kept = utf8.withoutOuterWhitespace
        return self[kept.startIndex..<kept.endIndex]
    }
}
