// The bytes of a download as a sequence.
//
// The invariant: a run belongs to one iterator, and ends with it.

import SpoolgatePosix

extension Download {
    /// The bytes of a download in order, each once, as fast as they are read.
    ///
    /// It can be read once. The first `next()` begins the download, on a thread of its own; that thread waits while some
    /// MiB are not read. Cuts are resumed without a gap; what cannot be resumed ends it with the `TransferError`.
    public struct Body: AsyncSequence, Sendable {
        /// Bytes; never none.
        public typealias Element = [UInt8]

        let download: Download

        /// Begins to read; nothing is sent before `next()`.
        public func makeAsyncIterator() -> Iterator { Iterator(reading: DownloadReading(download)) }

        /// Reads the bytes; used by one task at a time.
        ///
        /// The download ends with its last copy.
        public struct Iterator: AsyncIteratorProtocol, Sendable {
            let reading: DownloadReading

            /// The next bytes, once there are any; nil after the last.
            ///
            /// - Throws: `TransferError`, why not everything came, after the bytes that did; `CancellationError` if the
            ///   task was cancelled, which ends the download.
            public func next() async throws -> [UInt8]? { try await reading.next() }
        }
    }
}

/// One reading of a body.
final class DownloadReading: Sendable {
    private enum State {
        case notBegun, refused
        case running(Task<Void, Never>)
    }

    private let download: Download
    private let state = Monitor(State.notBegun)

    init(_ download: Download) { self.download = download }

    deinit { end() }

    /// As `Iterator.next`.
    func next() async throws -> [UInt8]? {
        try Task.checkCancellation()
        let isMine = state.updateQuietly { state in
            switch state {
            case .running: return true
            case .refused: return false
            case .notBegun:
                let task = download.beginBody()
                state = task.map { .running($0) } ?? .refused
                return task != nil
            }
        }
        guard isMine else { throw download.bodyRefusal }
        return try await withTaskCancellationHandler {
            try await download.channel.next()
        } onCancel: {
            end()
        }
    }

    private func end() {
        guard case .running(let task) = state.updateQuietly({ $0 }) else { return }
        download.channel.close()
        task.cancel()
    }
}
