// Waits for conditions with a deadline, the only way in which tests wait.

import Foundation
import SpoolgatePosix

/// Closed until a test opens it.
package final class Gate: Sendable {
    private let isOpen = Monitor(false)

    /// Creates a closed gate.
    package init() {}

    /// Opens the gate permanently.
    package func open() { isOpen.update { $0 = true } }

    /// Waits until the gate is open; false at a deadline that only a bug exceeds.
    @discardableResult
    package func pass() -> Bool {
        isOpen.wait(until: .after(.seconds(300))) { $0 ? true : nil } ?? false
    }

    /// As `pass`, for a task: another task on its thread may have to open the gate.
    package func passed() async throws {
        try await comesTrue("a gate is open") { isOpen.update { $0 } }
    }
}

/// The error of a wait that timed out.
package struct NeverHappened: Error, CustomStringConvertible {
    package var description: String

    package init(description: String) { self.description = description }
}

/// Waits until `condition`, called repeatedly, gives a value; throws `NeverHappened` with `what` at a deadline that
/// only a bug exceeds.
package func eventually<T>(
    _ what: String,
    seconds: Double = 300,
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
    seconds: Double = 300,
    _ condition: () throws -> Bool
) throws {
    let _: Bool = try eventually(what, seconds: seconds) { try condition() ? true : nil }
}

/// As `eventually`, for a task: others can use its thread.
package func comesTrue(
    _ what: String,
    seconds: Double = 300,
    _ condition: () throws -> Bool
) async throws {
    let deadline = Date(timeIntervalSinceNow: seconds)
    while try !condition() {
        guard Date() < deadline else {
            throw NeverHappened(description: "not within \(seconds) s: \(what)")
        }
        try await Task.sleep(for: .milliseconds(10))
    }
}
