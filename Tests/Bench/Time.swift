// The monotonic clock and waiting for a condition.

import Glibc

/// Seconds on the monotonic clock.
func now() -> Double {
    var time = timespec()
    clock_gettime(CLOCK_MONOTONIC, &time)
    return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
}

/// Sleeps for about `seconds`.
func pause(_ seconds: Double) {
    guard seconds > 0 else { return }
    usleep(UInt32(min(seconds, 60) * 1e6))
}

/// Waits until `condition` holds, looking every 5 ms.
///
/// - Throws: `BenchFailure` when it does not hold within `seconds`, or what `condition` throws.
func wait(
    for what: String,
    within seconds: Double,
    until condition: () throws(BenchFailure) -> Bool
) throws(BenchFailure) {
    let deadline = now() + seconds
    while try !condition() {
        guard now() < deadline else {
            throw BenchFailure("waited \(Int(seconds)) s in vain for \(what)")
        }
        pause(0.005)
    }
}
