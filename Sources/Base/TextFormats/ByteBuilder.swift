// Builds heads, records and lines as bytes.
//
// Heads have dozens of small parts. A String or a growing Array would cost more than the parts.

/// A growing sequence of bytes in memory of its own.
@usableFromInline package struct ByteBuilder: ~Copyable {
    @usableFromInline var start: UnsafeMutablePointer<UInt8>
    @usableFromInline var room: Int
    @usableFromInline var used = 0

    /// Creates an empty builder with room for `room` bytes.
    @usableFromInline package init(room: Int = 512) {
        start = .allocate(capacity: room)
        self.room = room
    }

    deinit { start.deallocate() }

    @inlinable package var count: Int { used }

    package var array: [UInt8] { Array(UnsafeBufferPointer(start: start, count: used)) }

    /// The bytes so far as text; U+FFFD replaces invalid UTF-8.
    package var text: String {
        String(decoding: UnsafeBufferPointer(start: start, count: used), as: UTF8.self)
    }

    /// Calls `body` with the bytes.
    @inlinable package borrowing func withBytes<R>(_ body: (UnsafeBufferPointer<UInt8>) -> R) -> R {
        body(UnsafeBufferPointer(start: start, count: used))
    }

    /// Calls `body` with the bytes, which `body` may overwrite.
    @inlinable package mutating func withMutableBytes<R>(
        _ body: (UnsafeMutablePointer<UInt8>) -> R
    ) -> R {
        body(start)
    }

    /// Removes all bytes, and keeps memory for at most `maximum` bytes.
    package mutating func removeAll(keeping maximum: Int) {
        if room > maximum { self = ByteBuilder(room: maximum) }
        used = 0
    }

    /// Makes room for `count` more bytes, which the caller must write at the returned address.
    @inlinable mutating func place(_ count: Int) -> UnsafeMutablePointer<UInt8> {
        if count > room - used { grow(by: count) }
        defer { used += count }
        return start + used
    }

    @usableFromInline mutating func grow(by count: Int) {
        let larger = max(used + count, 2 * room)
        let memory = UnsafeMutablePointer<UInt8>.allocate(capacity: larger)
        memory.update(from: start, count: used)
        start.deallocate()
        (start, room) = (memory, larger)
    }
}

// MARK: Appending

extension ByteBuilder {
    /// Appends one byte.
    @inlinable package mutating func put(_ byte: UInt8) { place(1).pointee = byte }

    /// Appends the same byte `times` times.
    @inlinable package mutating func put(_ byte: UInt8, times: Int) {
        place(times).update(repeating: byte, count: times)
    }

    /// Appends bytes.
    @inlinable package mutating func put(_ bytes: UnsafeBufferPointer<UInt8>) {
        guard let first = bytes.baseAddress else { return }
        place(bytes.count).update(from: first, count: bytes.count)
    }

    /// Appends bytes.
    @inlinable package mutating func put(_ bytes: RawSpan) {
        bytes.withUnsafeBytes { $0.withMemoryRebound(to: UInt8.self) { put($0) } }
    }

    /// Appends the bytes of a literal.
    @inlinable package mutating func put(_ literal: StaticString) {
        put(UnsafeBufferPointer(start: literal.utf8Start, count: literal.utf8CodeUnitCount))
    }

    /// Appends the bytes of a text.
    @inlinable package mutating func put(text: String) {
        var text = text
        text.withUTF8 { put($0) }
    }

    /// Appends a number in decimal.
    @inlinable package mutating func put(decimal number: Int64) {
        // The number of characters in the type's smallest number, including the sign.
        let maximum = 20
        let room = place(maximum)
        var start = maximum
        var rest = number.magnitude
        repeat {
            start -= 1
            room[start] = UInt8(ascii: "0") + UInt8(truncatingIfNeeded: rest % 10)
            rest /= 10
        } while rest > 0
        if number < 0 {
            start -= 1
            room[start] = UInt8(ascii: "-")
        }
        room.update(from: room + start, count: maximum - start)
        used -= start
    }
}

// MARK: Comparisons and searches

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
