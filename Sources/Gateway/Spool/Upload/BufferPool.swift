// The buffers in which content comes, kept from one request to the next.

package import SpoolgatePosix

/// Buffers that wait for the next request, so that their pages need not be mapped anew.
package final class BufferPool: Sendable {
    /// Most content that is written at once; so much is there only if it comes fast.
    private static let capacity = 1 << 20
    private static let most = 16

    /// A buffer in the pool, which no thread uses: taking it out is the only way to it, and the
    /// lender keeps no reference after putting it back.
    ///
    /// That is what makes handing it between threads safe.
    private struct Parked: @unchecked Sendable {
        let buffer: ContentBuffer
    }

    private let parked = Monitor<[Parked]>([])

    /// Lends a buffer for the time of `body`.
    /// - Throws: what `body` throws; `.exhausted` when there is no memory for a buffer.
    package func withBuffer<R>(
        _ body: (ContentBuffer) throws(SpoolError) -> R
    ) throws(SpoolError) -> R {
        let buffer = try take()
        defer { put(buffer) }
        return try body(buffer)
    }

    /// Takes a buffer, empty, out of the pool, or a new one; `put` must follow.
    /// - Throws: `.exhausted` when there is no memory for one.
    package func take() throws(SpoolError) -> ContentBuffer {
        if let parked = parked.update({ $0.popLast() }) { return parked.buffer }
        do throws(SystemError) { return try ContentBuffer(capacity: Self.capacity) } catch {
            throw .exhausted(error)
        }
    }

    /// Puts a buffer back that nobody uses any more.
    package func put(_ buffer: ContentBuffer) {
        buffer.removeAll()
        let buffer = Parked(buffer: buffer)
        parked.update { parked in
            if parked.count < Self.most { parked.append(buffer) }
        }
    }
}
