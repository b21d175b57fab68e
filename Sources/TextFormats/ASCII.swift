// White space around the parts of a field value.

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
