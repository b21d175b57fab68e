// Classes of ASCII bytes, and what is around the parts of a field value.

extension UInt8 {
    /// `0` to `9`.
    package var isDigit: Bool { (0x30...0x39).contains(self) }

    /// A letter of either case, or a digit.
    package var isAlphanumeric: Bool { isDigit || (0x61...0x7a).contains(self | 0x20) }

    /// A byte that stands for itself in a URI (unreserved, RFC 3986 §2.3).
    package var isUnreserved: Bool { isAlphanumeric || "-._~".utf8.contains(self) }

    /// A byte of an IPv6 address: a hexadecimal digit, a colon, or a dot.
    package var isOfAddress: Bool {
        Hexadecimal.value(of: self) != nil || ":.".utf8.contains(self)
    }
}

extension FixedWidthInteger {
    /// The number of a text of digits; nil for anything else, a sign among it, and for what does not fit.
    package init?(digits: some StringProtocol) {
        guard !digits.utf8.isEmpty else { return nil }
        var number: Self = 0
        for digit in digits.utf8 {
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
    /// These bytes without the spaces and tabs around them (OWS, RFC 9110 §5.6.3).
    package var withoutOuterWhitespace: SubSequence {
        func isWhitespace(_ byte: UInt8) -> Bool { byte == 0x20 || byte == 0x09 }
        guard let first = firstIndex(where: { !isWhitespace($0) }),
            let last = lastIndex(where: { !isWhitespace($0) })
        else { return self[endIndex..<endIndex] }
        return self[first...last]
    }
}

extension Substring {
    /// This text without the spaces and tabs around it (OWS, RFC 9110 §5.6.3).
    package var withoutOuterWhitespace: Substring {
        let kept = utf8.withoutOuterWhitespace
        return self[kept.startIndex..<kept.endIndex]
    }
}
