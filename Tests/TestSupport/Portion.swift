// The portion of a large sample that one run takes.

import Foundation

/// A portion; all portions together are the sample.
package struct Portion: Sendable {
    /// Its number; nil takes everything.
    package var number: Int?

    /// The one that `SPOOLGATE_PORTION` in the environment chooses; without it, everything.
    ///
    /// `make test` derives the number from the commit, so that portions vary and a failure can be repeated.
    package static let ofThisRun = Portion(
        number: ProcessInfo.processInfo.environment["SPOOLGATE_PORTION"].flatMap { Int($0) }
    )

    /// Creates a portion.
    package init(number: Int?) { self.number = number }

    /// Whether this portion, of `count`, includes the case with this index.
    package func includes(_ index: Int, of count: Int) -> Bool {
        guard let number else { return true }
        return (index + number) % count == 0
    }

    /// The values that this portion, of `count`, includes.
    package func taken<Value>(from values: [Value], of count: Int) -> [Value] {
        values.enumerated().filter { includes($0.offset, of: count) }.map(\.element)
    }
}
