// Counts and durations to which many threads add.
//
// Invariant: each addition is counted exactly once. Only a lookup by key may briefly wait.

import Synchronization

/// A number that many threads can add to.
///
/// Thread-safe. An addition is one atomic instruction.
package final class Counter: Sendable {
    private let number = Atomic<Int>(0)

    /// Creates a counter with the value zero.
    package init() {}

    /// Adds `count`, which may be negative.
    package func add(_ count: Int = 1) { number.wrappingAdd(count, ordering: .relaxed) }

    /// Replaces the count.
    package func set(_ count: Int) { number.store(count, ordering: .relaxed) }

    package var count: Int { number.load(ordering: .relaxed) }
}

/// A thread-safe histogram of durations, with a count for each range, and the sum.
///
/// The ranges never change, so that histograms can be added.
package final class Histogram: Sendable {
    /// The inclusive upper bounds of the ranges in seconds.
    ///
    /// After the last bound, one more range has no bound.
    package let bounds: [Double]
    private let limits: [Int]
    private let counts: [Counter]
    private let total = Counter()

    /// Bounds for disk calls, which take from a tenth of a millisecond to seconds.
    package static let short = [0.000_1, 0.000_5, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5]
    /// Bounds for requests to other programs, which take from milliseconds to minutes.
    package static let medium = [0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 10, 30, 120, 600]
    /// Bounds for uploads, which take from a second to days.
    package static let long = [1.0, 5, 15, 60, 300, 900, 3_600, 14_400, 86_400]

    /// Creates an empty histogram.
    ///
    /// `bounds` must ascend.
    package init(_ bounds: [Double]) {
        self.bounds = bounds
        limits = bounds.map { Int($0 * 1e9) }
        counts = (0...bounds.count).map { _ in Counter() }
    }

    /// Adds one duration.
    package func add(nanoseconds: Int) {
        let place = limits.firstIndex { nanoseconds <= $0 } ?? limits.count
        counts[place].add()
        total.add(nanoseconds)
    }

    /// The number of durations up to each bound, and the total as the last element.
    package var cumulated: [Int] {
        var sum = 0
        return counts.map {
            sum += $0.count
            return sum
        }
    }

    /// The sum of all durations in seconds.
    package var seconds: Double { Double(total.count) / 1e9 }
}

/// Thread-safe counters or histograms by key, each created when its key is first used.
///
/// Members are never removed, so the number of different keys must be limited.
package final class Labelled<Key: Hashable & Sendable, Member: Sendable>: Sendable {
    private let members = Monitor<[Key: Member]>([:])
    private let make: @Sendable () -> Member

    /// Starts empty.
    ///
    /// `make` is called once for each new key and creates the member.
    package init(_ make: @escaping @Sendable () -> Member) { self.make = make }

    /// Returns the member for `key`, creating it if necessary.
    package subscript(key: Key) -> Member {
        members.updateQuietly { members in
            if let member = members[key] { return member }
            let member = make()
            members[key] = member
            return member
        }
    }

    package var all: [(key: Key, value: Member)] { members.updateQuietly { Array($0) } }
}

/// A `Counter` for each key.
package typealias Counters<Key: Hashable & Sendable> = Labelled<Key, Counter>
/// A `Histogram` for each key.
package typealias Histograms<Key: Hashable & Sendable> = Labelled<Key, Histogram>

extension Labelled where Member == Counter {
    /// Starts empty.
    package convenience init() { self.init { Counter() } }
}

/// Measures a duration with the monotonic clock.
package struct Stopwatch: Sendable {
    private let start = Deadline.now

    /// Starts the measurement.
    package init() {}

    package var nanoseconds: Int { Int(Deadline.now - start) }
}
