// Runs closures concurrently, each on its own thread.

import Foundation
import SpoolgatePosix

/// Concurrent runs of one closure.
package enum Parallel {
    /// Runs `body` with 0, 1, 2 … concurrently; returns the results in that order.
    package static func run<T: Sendable>(
        _ count: Int,
        _ body: @escaping @Sendable (Int) throws -> T
    ) -> [Result<T, any Error>] {
        let results = Monitor<[Int: Result<T, any Error>]>([:])
        for index in 0..<count {
            Foundation.Thread.detachNewThread {
                let result = Result { try body(index) }
                results.update { $0[index] = result }
            }
        }
        let all = results.wait(until: .never) { $0.count == count ? $0 : nil } ?? [:]
        return (0..<count).compactMap { all[$0] }
    }

    /// Runs `body`; returns its value and duration in seconds.
    package static func timed<T>(_ body: () throws -> T) rethrows -> (value: T, seconds: Double) {
        let start = ContinuousClock.now
        let value = try body()
        return (value, (ContinuousClock.now - start) / .seconds(1))
    }
}
