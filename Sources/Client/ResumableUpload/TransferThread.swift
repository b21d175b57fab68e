// The threads of transfers, for blocking work.

import SpoolgatePosix

enum TransferThread {
    /// Runs `body`, which may block, on a thread of its own.
    ///
    /// Calls `end` with the result on that thread, or on the calling thread if no thread is available.
    static func start<R: Sendable>(
        _ name: String,
        _ body: @escaping @Sendable () -> Result<R, TransferError>,
        end: @escaping @Sendable (Result<R, TransferError>) -> Void
    ) {
        do throws(SystemError) {
            try Thread.start(name: name, stackSize: 512 * 1024) { end(body()) }
        } catch {
            end(.failure(TransferError(.later, "the transfer's thread did not start: \(error)")))
        }
    }

    static func run<R: Sendable>(
        _ name: String,
        _ body: @escaping @Sendable () -> Result<R, TransferError>
    ) async -> Result<R, TransferError> {
        await withCheckedContinuation { continuation in
            start(name, body) { continuation.resume(returning: $0) }
        }
    }
}
