// The buffer for content between a connection and the disk.
//
// Invariant: the first `count` bytes are the filled part, and pages that were never touched use no memory.

import Glibc

/// A fixed region of memory that is filled from the start.
///
/// Only one thread at a time may use the buffer.
package final class ContentBuffer {
    package let capacity: Int
    // The stored property is private, because each use of another one would need a check of exclusive access.
    private var filled = 0
    package var count: Int { filled }

    /// The number of bytes, counted from the start, whose pages may use memory.
    package private(set) var touched = 0

    private let region: UnsafeMutableRawBufferPointer

    package var free: Int { capacity - count }

    /// Allocates a buffer of `capacity` bytes, which must be at least 1.
    ///
    /// - Throws: `SystemError` if there is no memory left.
    package init(capacity: Int) throws(SystemError) {
        precondition(capacity > 0, "a buffer needs a capacity")
        let start = mmap(
            nil,
            capacity,
            PROT_READ | PROT_WRITE,
            MAP_PRIVATE | MAP_ANONYMOUS,
            -1,
            0
        )
        guard let start, start != MAP_FAILED else {
            throw SystemError("mmap", on: "\(capacity) bytes")
        }
        region = UnsafeMutableRawBufferPointer(start: start, count: capacity)
        self.capacity = capacity
    }

    deinit { munmap(region.baseAddress, region.count) }

    /// Calls `body` with the filled bytes.
    package func withBytes<R, E: Error>(_ body: (RawSpan) throws(E) -> R) throws(E) -> R {
        try body(UnsafeRawBufferPointer(rebasing: region[..<count]).bytes)
    }

    /// Copies the filled bytes from `position` on, until `target` is full or the filled part ends.
    ///
    /// - Returns: the number of bytes copied.
    package func copy(from position: Int, to target: UnsafeMutableRawBufferPointer) -> Int {
        let part = region[position..<count].prefix(target.count)
        target.copyMemory(from: UnsafeRawBufferPointer(rebasing: part))
        return part.count
    }

    /// Calls `body` with the free part of the buffer.
    ///
    /// `body` writes bytes there and returns their number.
    ///
    /// If `body` throws, no bytes are added.
    package func fill<E: Error>(
        _ body: (UnsafeMutableRawBufferPointer) throws(E) -> Int
    ) throws(E) {
        let free = UnsafeMutableRawBufferPointer(rebasing: region[count...])
        let added = try body(free)
        precondition((0...free.count).contains(added), "a buffer was filled past its end")
        filled += added
        touched = max(touched, count)
    }

    /// Empties the buffer.
    package func removeAll() { filled = 0 }

    /// Empties the buffer and releases its pages to the system.
    package func releasePages() {
        filled = 0
        releaseUnusedPages()
    }

    /// Releases the pages after the filled part to the system.
    package func releaseUnusedPages() {
        let page = Int(getpagesize())
        let kept = min(capacity, (count + page - 1) / page * page)
        touched = count
        guard kept < capacity else { return }
        // Only advice: if madvise fails, the memory remains in use.
        _ = madvise(region.baseAddress?.advanced(by: kept), capacity - kept, MADV_DONTNEED)
    }
}
