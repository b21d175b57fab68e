// Reused buffers that receive content.

package import SpoolgatePosix

/// A pool of unused buffers, which saves the kernel from mapping new memory for each upload.
package final class BufferPool: Sendable {
    /// The size of a buffer in bytes, and so the most that is written at once.
    private static let capacity = 1 << 20
    private static let most = 16

    /// An unused buffer in the pool.
    ///
    /// Safe to pass between threads, because the buffer is used only outside the pool and its last user kept no
    /// reference.
    private struct Parked: @unchecked Sendable {
        let buffer: ContentBuffer
    }

    private let parked = Monitor<[Parked]>([])

    /// Calls `body` with a buffer that `body` may use until it returns; throws `.exhausted` if there is no memory for a
    /// buffer.
    package func withBuffer<R>(
        _ body: (ContentBuffer) throws(SpoolError) -> R
    ) throws(SpoolError) -> R {
        let buffer = try take()
        defer { put(buffer) }
        return try body(buffer)
    }

    /// Takes an empty buffer out of the pool, or creates one; throws `.exhausted` if there is no memory for it.
    package func take() throws(SpoolError) -> ContentBuffer {
        if let parked = parked.update({ $0.popLast() }) { return parked.buffer }
        do throws(SystemError) { return try ContentBuffer(capacity: Self.capacity) } catch {
            throw .exhausted(error)
        }
    }

    /// Returns a buffer that is no longer used to the pool.
    package func put(_ buffer: ContentBuffer) {
        buffer.removeAll()
        let buffer = Parked(buffer: buffer)
        parked.update { parked in
            if parked.count < Self.most { parked.append(buffer) }
        }
    }
}
