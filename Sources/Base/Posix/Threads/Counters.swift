// Numbers that many threads add to and few read: counts, and how long things took.
//
// Nothing here waits for anything but, where a number is looked up by a key, for the moment of another look-up.
// Invariant: what was added is in the number once, whoever reads it when.

import Synchronization

/// A count.
///
/// Any thread. Adding costs one instruction on memory and wakes nobody.
package final class Counter: Sendable {
    private let number = Atomic<Int>(0)

    /// Begins at zero.
    package init() {}

    /// Adds `count`, which is negative where something has ended.
    package func add(_ count: Int = 1) { number.wrappingAdd(count, ordering: .relaxed) }

    /// Puts another count in its place.
    package func set(_ count: Int) { number.store(count, ordering: .relaxed) }

    /// The count so far.
    package var count: Int { number.load(ordering: .relaxed) }
}

/// How long something took, each time: a count for each range of durations, and their sum.
///
/// Any thread. The ranges never change, so that histograms can be added to each other.
package final class Histogram: Sendable {
    /// The upper bounds of the ranges, in seconds, each included in its range; beyond the last there is one
    /// more range.
    package let bounds: [Double]
    private let limits: [Int]
    private let counts: [Counter]
    private let total = Counter()

    /// For what takes from a tenth of a millisecond to seconds: calls on the disk.
    package static let short = [0.000_1, 0.000_5, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5]
    /// For what takes from some milliseconds to minutes: requests to other programs.
    package static let medium = [0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 10, 30, 120, 600]
    /// For what takes from a second to days: uploads.
    package static let long = [1.0, 5, 15, 60, 300, 900, 3_600, 14_400, 86_400]

    /// Begins with nothing; `bounds` grow.
    package init(_ bounds: [Double]) {
        self.bounds = bounds
        limits = bounds.map { Int($0 * 1e9) }
        counts = (0...bounds.count).map { _ in Counter() }
    }

    /// Adds one that took `nanoseconds`.
    package func add(nanoseconds: Int) {
        let place = limits.firstIndex { nanoseconds <= $0 } ?? limits.count
        counts[place].add()
        total.add(nanoseconds)
    }

    /// How many were within each bound, those within a lower one included; the last is how many there were.
    package var cumulated: [Int] {
        var sum = 0
        return counts.map {
            sum += $0.count
            return sum
        }
    }

    /// The sum of all durations, in seconds.
    package var seconds: Double { Double(total.count) / 1e9 }
}

/// Members of one kind, each under its key and made when it is first asked for.
///
/// Any thread. A member is never removed: keys are of a set that is bounded.
package final class Labelled<Key: Hashable & Sendable, Member: Sendable>: Sendable {
    private let members = Monitor<[Key: Member]>([:])
    private let make: @Sendable () -> Member

    /// Begins without a member; `make` makes each.
    package init(_ make: @escaping @Sendable () -> Member) { self.make = make }

    /// The member under `key`.
    package subscript(key: Key) -> Member {
        members.updateQuietly { members in
            if let member = members[key] { return member }
            let member = make()
            members[key] = member
            return member
        }
    }

    /// All there are.
    package var all: [(key: Key, value: Member)] { members.updateQuietly { Array($0) } }
}

/// Counts under keys.
package typealias Counters<Key: Hashable & Sendable> = Labelled<Key, Counter>
/// Durations under keys.
package typealias Histograms<Key: Hashable & Sendable> = Labelled<Key, Histogram>

extension Labelled where Member == Counter {
    /// Begins with nothing counted.
    package convenience init() { self.init { Counter() } }
}

/// Measures how long something takes, by the monotonic clock.
package struct Stopwatch: Sendable {
    private let start = Deadline.now

    /// Begins now.
    package init() {}

    /// Nanoseconds since it began.
    package var nanoseconds: Int { Int(Deadline.now - start) }
}
