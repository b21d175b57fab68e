// Comparisons and searches of bytes, eight at a time.

extension UnsafeBufferPointer<UInt8> {
    /// Whether these are the bytes of `text`.
    @inlinable @inline(__always) package func equals(_ text: StaticString) -> Bool {
        count == text.utf8CodeUnitCount && hasPrefix(text)
    }

    /// Whether these bytes start with the bytes of `text`.
    @inlinable @inline(__always) package func hasPrefix(_ text: StaticString) -> Bool {
        begins(with: text.utf8Start, count: text.utf8CodeUnitCount)
    }

    /// Whether these are the bytes of `text`.
    package func equals(_ text: String) -> Bool {
        var text = text
        return text.withUTF8 { equals($0) }
    }

    /// Whether these bytes equal those of `other`.
    package func equals(_ other: UnsafeBufferPointer<UInt8>) -> Bool {
        guard count == other.count, let start = other.baseAddress else {
            return isEmpty && other.isEmpty
        }
        return begins(with: start, count: count)
    }

    func begins(with other: UnsafeBufferPointer<UInt8>) -> Bool {
        guard let start = other.baseAddress else { return true }
        return begins(with: start, count: other.count)
    }

    @inlinable @inline(__always)
    func begins(with other: UnsafePointer<UInt8>, count size: Int) -> Bool {
        guard count >= size else { return false }
        let (here, there) = (UnsafeRawBufferPointer(self), UnsafeRawPointer(other))
        var index = 0
        while index + 8 <= size {
            guard
                here.loadUnaligned(fromByteOffset: index, as: UInt64.self)
                    == there.loadUnaligned(fromByteOffset: index, as: UInt64.self)
            else { return false }
            index += 8
        }
        while index < size {
            guard self[index] == other[index] else { return false }
            index += 1
        }
        return true
    }

    /// Returns the index of the first `byte` from `start` on, or nil if no such byte follows.
    package func index(of byte: UInt8, from start: Int) -> Int? {
        let ones: UInt64 = 0x0101_0101_0101_0101
        let bytes = UnsafeRawBufferPointer(self)
        var index = start
        while index + 8 <= count {
            let word = bytes.loadUnaligned(fromByteOffset: index, as: UInt64.self).littleEndian
            // The lowest zero byte of `differing` has its highest bit set in `found`.
            let differing = word ^ (ones &* UInt64(byte))
            let found = (differing &- ones) & ~differing & (ones << 7)
            if found != 0 { return index + found.trailingZeroBitCount / 8 }
            index += 8
        }
        while index < count {
            if self[index] == byte { return index }
            index += 1
        }
        return nil
    }
}

extension ArraySlice<UInt8> {
    /// Whether these are the bytes of `text`.
    package func equals(_ text: StaticString) -> Bool {
        withUnsafeBufferPointer { $0.equals(text) }
    }
}
