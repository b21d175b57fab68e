// The content of a download as an asynchronous sequence.
//
// The invariant: a run belongs to one iterator, and ends with it.

import SpoolgatePosix

extension Download {
    /// The content of a download in order; it can be read once.
    ///
    /// The first `next()` begins the download on its own thread, which waits while about 1 MiB is unread. If an
    /// interruption cannot be resumed without a gap, the sequence throws a `TransferError`.
    public struct Body: AsyncSequence, Sendable {
        /// A piece of the content; never empty.
        public typealias Element = [UInt8]

        let download: Download

        /// Creates the iterator; no request is sent before its first `next()`.
        public func makeAsyncIterator() -> Iterator { Iterator(reading: DownloadReading(download)) }

        /// The iterator of a body, for one task at a time.
        ///
        /// The download ends when the last copy of its iterator is released.
        public struct Iterator: AsyncIteratorProtocol, Sendable {
            let reading: DownloadReading

            /// Waits for the next bytes, and returns nil at the end of the content.
            ///
            /// - Throws: `TransferError` after the last received bytes if the download did not complete;
            ///   `CancellationError` if the task was cancelled, which ends the download.
            public func next() async throws -> [UInt8]? { try await reading.next() }
        }
    }
}

final class DownloadReading: Sendable {
    private enum State {
        case notBegun, refused
        case running(Task<Void, Never>)
    }

    private let download: Download
    private let state = Monitor(State.notBegun)

    init(_ download: Download) { self.download = download }

    deinit { end() }

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
