// Retrieves one offset repeatedly during other work.

import SpoolgatePosix
import SpoolgateTestSupport
import Synchronization

/// Retrieves the offset of an idle upload 50 times a second.
final class Prober: Sendable {
    private let isEnded = Atomic<Bool>(false)
    /// The seconds of each response, set when the thread ends.
    private let latencies = Monitor<Result<[Double], any Error>?>(nil)

    init(_ address: SocketAddress) throws {
        try Thread.start(name: "prober") { [self] in
            let result = Result { try ask(address) }
            latencies.update { $0 = result }
        }
    }

    /// Stops the thread, and returns the seconds of each response, at least one.
    func stop() throws -> [Double] {
        isEnded.store(true, ordering: .relaxed)
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
        } while !isEnded.load(ordering: .relaxed)
        try upload.cancel()
        return latencies
    }
}
