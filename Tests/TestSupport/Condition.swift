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

/// The pauses between the attempts of one wait: short at first and for a cheap condition, so that a wait ends in time
/// and its attempts leave the processor to what they wait for.
private struct Attempts {
    private let began = ContinuousClock.now
    private let deadline: ContinuousClock.Instant
    private let failure: NeverHappened
    private var attempted = ContinuousClock.now

    init(_ what: String, seconds: Double) {
        deadline = began + .seconds(seconds)
        failure = NeverHappened(description: "not within \(seconds) s: \(what)")
    }

    /// Returns the pause after an attempt; the next one begins after it.
    mutating func pause() throws -> Duration {
        let now = ContinuousClock.now
        guard now < deadline else { throw failure }
        let pause = max(
            min((now - began) / 20, .milliseconds(50)),
            .milliseconds(10),
            (now - attempted) * 2
        )
        attempted = now + pause
        return pause
    }
}

/// Waits until `condition`, called repeatedly, gives a value; throws `NeverHappened` with `what` at a deadline that
/// only a bug exceeds.
package func eventually<T>(
    _ what: String,
    seconds: Double = 300,
    _ condition: () throws -> T?
) throws -> T {
    var attempts = Attempts(what, seconds: seconds)
    while true {
        if let value = try condition() { return value }
        usleep(useconds_t(try attempts.pause() / .microseconds(1)))
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
    var attempts = Attempts(what, seconds: seconds)
    while try !condition() { try await Task.sleep(for: attempts.pause()) }
}
