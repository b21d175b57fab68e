// The processor time of the calling thread, which other work on the machine does not change.

import Foundation

/// Processor time.
package enum ProcessorTime {
    /// Returns the result of `body` and the processor time in seconds that this thread spent in it.
    package static func of<R>(_ body: () throws -> R) rethrows -> (result: R, seconds: Double) {
        let before = now
        let result = try body()
        return (result, now - before)
    }

    private static var now: Double {
        var time = timespec()
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
        return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
    }
}
