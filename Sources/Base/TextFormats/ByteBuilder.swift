// Heads, records and lines put together as bytes: they have dozens of small parts, and a String, or an Array that
// grows part by part, costs more than the parts.
//
// Pure. Invariant: the memory goes with its one owner.

/// Bytes put one after the other, in memory of its own that grows where it has to.
@usableFromInline package struct ByteBuilder: ~Copyable {
    @usableFromInline var start: UnsafeMutablePointer<UInt8>
    @usableFromInline var room: Int
    @usableFromInline var used = 0

    /// Begins with nothing, and room for so many bytes.
    @usableFromInline package init(room: Int = 512) {
        start = .allocate(capacity: room)
        self.room = room
    }

    deinit { start.deallocate() }

    /// Bytes put so far.
    @inlinable package var count: Int { used }

    /// What was put so far.
    package var array: [UInt8] { Array(UnsafeBufferPointer(start: start, count: used)) }

    /// What was put so far; repaired where it is no UTF-8.
    package var text: String {
        String(decoding: UnsafeBufferPointer(start: start, count: used), as: UTF8.self)
    }

    /// Calls `body` with what was put so far.
    @inlinable package borrowing func withBytes<R>(_ body: (UnsafeBufferPointer<UInt8>) -> R) -> R {
        body(UnsafeBufferPointer(start: start, count: used))
    }

    /// Calls `body` with what was put so far, to be written over.
    @inlinable package mutating func withMutableBytes<R>(
        _ body: (UnsafeMutablePointer<UInt8>) -> R
    ) -> R {
        body(start)
    }

    /// Begins again with nothing; keeps room for at most so many bytes.
    package mutating func removeAll(keeping most: Int) {
        if room > most { self = ByteBuilder(room: most) }
        used = 0
    }

    /// Where `count` bytes go that are put now.
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

// MARK: Putting

extension ByteBuilder {
    /// Puts one byte.
    @inlinable package mutating func put(_ byte: UInt8) { place(1).pointee = byte }

    /// Puts one byte so many times.
    @inlinable package mutating func put(_ byte: UInt8, times: Int) {
        place(times).update(repeating: byte, count: times)
    }

    /// Puts bytes.
    @inlinable package mutating func put(_ bytes: UnsafeBufferPointer<UInt8>) {
        guard let first = bytes.baseAddress else { return }
        place(bytes.count).update(from: first, count: bytes.count)
    }

    /// Puts bytes.
    @inlinable package mutating func put(_ bytes: RawSpan) {
        bytes.withUnsafeBytes { $0.withMemoryRebound(to: UInt8.self) { put($0) } }
    }

    /// Puts the bytes of a literal.
    @inlinable package mutating func put(_ literal: StaticString) {
        put(UnsafeBufferPointer(start: literal.utf8Start, count: literal.utf8CodeUnitCount))
    }

    /// Puts the bytes of a text.
    @inlinable package mutating func put(text: String) {
        var text = text
        text.withUTF8 { put($0) }
    }

    /// Puts the digits of a number.
    @inlinable package mutating func put(decimal number: Int64) {
        // As many as the type's least number has, and its sign.
        let most = 20
        let room = place(most)
        var start = most
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
        room.update(from: room + start, count: most - start)
        used -= start
    }
}
