// Asks for one offset again and again while something else keeps the servers busy.

import Glibc
import Synchronization
import TestSupport

/// The thread that asks for an idle upload's offset 50 times a second.
final class Prober: Sendable {
    private let isOver = Atomic<Bool>(false)
    private let latencies = Mutex<[Double]>([])
    private let failure = Mutex<BenchFailure?>(nil)
    private let thread = Mutex<pthread_t?>(nil)

    /// Creates the upload and starts asking.
    init(_ address: SocketAddress) throws(BenchFailure) {
        let started = try startThread { [self] in
            do throws(BenchFailure) {
                try ask(address)
            } catch {
                failure.withLock { $0 = error }
            }
        }
        thread.withLock { $0 = started }
    }

    /// Ends the asking.
    ///
    /// - Returns: the seconds of each answer, at least one.
    /// - Throws: what went wrong in the thread.
    func stop() throws(BenchFailure) -> [Double] {
        isOver.store(true, ordering: .relaxed)
        if let thread = thread.withLock({ $0 }) { pthread_join(thread, nil) }
        if let failure = failure.withLock({ $0 }) { throw failure }
        return latencies.withLock { $0 }
    }

    private func ask(_ address: SocketAddress) throws(BenchFailure) {
        let connection = try Connection(to: address)
        let upload = try UploadResource.create("/files/probe", connection)
        repeat {
            let start = now()
            try upload.requireOffset(0)
            let seconds = now() - start
            latencies.withLock { $0.append(seconds) }
            pause(0.02 - seconds)
        } while !isOver.load(ordering: .relaxed)
        try upload.cancel()
    }
}
