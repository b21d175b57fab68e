// Asks for one offset again and again while something else keeps the servers busy.

import SpoolgatePosix
import SpoolgateTestSupport
import Synchronization

/// The thread that asks for an idle upload's offset 50 times a second.
final class Prober: Sendable {
    private let isOver = Atomic<Bool>(false)
    /// The seconds of each answer, once it has ended.
    private let latencies = Monitor<Result<[Double], any Error>?>(nil)

    /// Creates the upload and starts asking.
    init(_ address: SocketAddress) throws {
        try Thread.start(name: "prober") { [self] in
            let result = Result { try ask(address) }
            latencies.update { $0 = result }
        }
    }

    /// Ends the asking.
    ///
    /// - Returns: the seconds of each answer, at least one.
    /// - Throws: what went wrong in the thread.
    func stop() throws -> [Double] {
        isOver.store(true, ordering: .relaxed)
        guard let result = latencies.wait(until: .never, { $0 }) else { return [] }
        return try result.get()
    }

    private func ask(_ address: SocketAddress) throws -> [Double] {
        let connection = try Connection(to: address)
        let upload = try UploadResource.create("/files/probe", connection)
        var latencies: [Double] = []
        repeat {
            let start = now()
            try upload.requireOffset(0)
            let seconds = now() - start
            latencies.append(seconds)
            pause(0.02 - seconds)
        } while !isOver.load(ordering: .relaxed)
        try upload.cancel()
        return latencies
    }
}
