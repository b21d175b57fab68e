// Waiting for something to become true, with a deadline: the only way tests wait.

import Foundation

/// What a wait that did not end in time says.
package struct NeverHappened: Error, CustomStringConvertible {
    package var description: String

    package init(description: String) { self.description = description }
}

/// Waits until `condition` gives a value.
///
/// - Parameters:
///   - what: what is waited for, for the error.
///   - seconds: the deadline; generous, since it is only met when something is broken.
///   - condition: asked again and again until it gives one.
/// - Returns: the value.
/// - Throws: `NeverHappened` at the deadline; what `condition` throws.
package func eventually<T>(
    _ what: String,
    seconds: Double = 60,
    _ condition: () throws -> T?
) throws -> T {
    let deadline = Date(timeIntervalSinceNow: seconds)
    while true {
        if let value = try condition() { return value }
        guard Date() < deadline else {
            throw NeverHappened(description: "not within \(seconds) s: \(what)")
        }
        usleep(10_000)
    }
}

/// Waits until `condition` holds.
package func eventually(
    _ what: String,
    seconds: Double = 60,
    _ condition: () throws -> Bool
) throws {
    let _: Bool = try eventually(what, seconds: seconds) { try condition() ? true : nil }
}
