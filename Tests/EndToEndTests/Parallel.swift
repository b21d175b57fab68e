// Running things at the same time, each on a thread of its own.

import Foundation

enum Parallel {
    /// Guards what the threads bring back.
    private final class Results<T: Sendable>: @unchecked Sendable {
        private let lock = NSLock()
        private var values: [Int: Result<T, any Error>] = [:]

        func set(_ index: Int, _ value: Result<T, any Error>) {
            lock.withLock { values[index] = value }
        }

        func all(_ count: Int) -> [Result<T, any Error>] {
            lock.withLock { (0..<count).compactMap { values[$0] } }
        }
    }

    /// Runs `body` with 0, 1, 2 … at the same time; what they return, in that order.
    static func run<T: Sendable>(
        _ count: Int,
        _ body: @escaping @Sendable (Int) throws -> T
    ) -> [Result<T, any Error>] {
        let results = Results<T>()
        let group = DispatchGroup()
        for index in 0..<count {
            group.enter()
            Thread.detachNewThread {
                results.set(index, Result { try body(index) })
                group.leave()
            }
        }
        group.wait()
        return results.all(count)
    }

    /// How long `body` takes, in seconds, beside what it returns.
    static func timed<T>(_ body: () throws -> T) rethrows -> (value: T, seconds: Double) {
        let start = ContinuousClock.now
        let value = try body()
        let seconds = (ContinuousClock.now - start) / .seconds(1)
        return (value, seconds)
    }
}
