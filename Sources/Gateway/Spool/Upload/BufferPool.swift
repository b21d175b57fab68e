// The buffers that receive content, reused by later requests.

package import SpoolgatePosix

/// A pool of unused buffers, so that their pages need not be mapped again.
package final class BufferPool: Sendable {
    /// The maximum number of bytes written at once; only fast clients fill it.
    private static let capacity = 1 << 20
    private static let most = 16

    /// A buffer in the pool.
    ///
    /// Safe to pass between threads: it can be used only after taking it out, and its borrower keeps no reference.
    private struct Parked: @unchecked Sendable {
        let buffer: ContentBuffer
    }

    private let parked = Monitor<[Parked]>([])

    /// Lends a buffer to `body`.
    ///
    /// - Throws: what `body` throws; `.exhausted` if there is no memory for a buffer.
    package func withBuffer<R>(
        _ body: (ContentBuffer) throws(SpoolError) -> R
    ) throws(SpoolError) -> R {
        let buffer = try take()
        defer { put(buffer) }
        return try body(buffer)
    }

    /// Takes an empty buffer out of the pool, or creates one; `put` must follow.
    ///
    /// - Throws: `.exhausted` if there is no memory for a buffer.
    package func take() throws(SpoolError) -> ContentBuffer {
        if let parked = parked.update({ $0.popLast() }) { return parked.buffer }
        do throws(SystemError) { return try ContentBuffer(capacity: Self.capacity) } catch {
            throw .exhausted(error)
        }
    }

    /// Returns an unused buffer to the pool.
    package func put(_ buffer: ContentBuffer) {
        buffer.removeAll()
        let buffer = Parked(buffer: buffer)
        parked.update { parked in
            if parked.count < Self.most { parked.append(buffer) }
        }
    }
}
