// The buffer in which content travels from a connection to the disk.
//
// It only holds bytes; reading and writing them is its user's work. Invariant: the filled part is
// always the first `count` bytes, and pages never touched take no memory.

import Glibc

/// A fixed region of memory with a filled front part.
///
/// Used by one thread at a time; pages that were never filled cost no memory.
package final class ContentBuffer {
    /// Bytes it can hold.
    package let capacity: Int
    /// Bytes it holds, from the start.
    package private(set) var count: Int = 0

    /// Bytes from the start whose pages may take memory.
    package private(set) var touched = 0

    private let region: UnsafeMutableRawBufferPointer

    /// Bytes that still fit.
    package var free: Int { capacity - count }

    /// Maps a buffer of `capacity` bytes, > 0.
    /// - Throws: `SystemError` when the process or the system has no memory left.
    package init(capacity: Int) throws(SystemError) {
        precondition(capacity > 0, "a buffer needs room")
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
        let filled = UnsafeRawBufferPointer(rebasing: region[..<count])
        return try body(filled.bytes)
    }

    /// Copies filled bytes from `position` on to `target`, as many as there are and fit.
    /// - Returns: how many.
    package func copy(from position: Int, to target: UnsafeMutableRawBufferPointer) -> Int {
        let part = region[position..<count].prefix(target.count)
        target.copyMemory(from: UnsafeRawBufferPointer(rebasing: part))
        return part.count
    }

    /// Lets `body` fill the free part and say how many bytes it put there; nothing is added if it
    /// throws.
    package func fill<E: Error>(
        _ body: (UnsafeMutableRawBufferPointer) throws(E) -> Int
    ) throws(E) {
        let free = UnsafeMutableRawBufferPointer(rebasing: region[count...])
        let added = try body(free)
        precondition((0...free.count).contains(added), "a buffer was filled beyond its end")
        count += added
        touched = max(touched, count)
    }

    /// Empties the buffer.
    package func removeAll() { count = 0 }

    /// Empties the buffer and gives its pages back to the system.
    package func releasePages() {
        count = 0
        releaseUnusedPages()
    }

    /// Gives the pages behind the filled part back to the system.
    package func releaseUnusedPages() {
        let page = Int(getpagesize())
        let kept = min(capacity, (count + page - 1) / page * page)
        touched = count
        guard kept < capacity else { return }
        // Advice only: when it is not taken, memory stays in use and nothing else changes.
        _ = madvise(region.baseAddress?.advanced(by: kept), capacity - kept, MADV_DONTNEED)
    }
}
