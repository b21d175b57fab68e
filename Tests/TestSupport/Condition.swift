// Waiting for something to become true, with a deadline: the only way tests wait.

import Foundation
import SpoolgatePosix

/// Something closed until a test opens it.
package final class Gate: Sendable {
    private let isOpen = Monitor(false)

    /// Makes it, closed.
    package init() {}

    /// Opens it for good.
    package func open() { isOpen.update { $0 = true } }

    /// Waits until it is open; false at a deadline that only broken code meets.
    @discardableResult
    package func pass() -> Bool {
        isOpen.wait(until: .after(.seconds(300))) { $0 ? true : nil } ?? false
    }

    /// As `pass`, for a task: it leaves its thread to others meanwhile, who may have to open it.
    package func passed() async throws {
        try await comesTrue("a gate is open") { isOpen.update { $0 } }
    }
}

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

/// As `eventually`, for a test that is a task: it leaves its thread to others meanwhile.
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
