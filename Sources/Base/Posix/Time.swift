// Wall time, uptime and monotonic deadlines, as values.
//
// Wall time is for records and people, monotonic time for waiting; neither is ever made into the
// other, so setting the clock cannot end or extend a wait. Uptime tells how far wall time may be believed.

import Glibc

/// A moment of wall time.
package struct WallTime: Sendable, Comparable, Hashable, CustomStringConvertible {
    /// Whole seconds since 1970-01-01 UTC.
    package var seconds: Int64

    /// Makes a moment from seconds since 1970-01-01 UTC.
    package init(seconds: Int64) { self.seconds = seconds }

    /// The present moment.
    package static var now: WallTime {
        WallTime(seconds: Int64(read(CLOCK_REALTIME).tv_sec))
    }

    /// The present moment to the millisecond: `2026-11-21T12:31:00.042Z` (RFC 3339).
    package static var preciseNow: String {
        let present = read(CLOCK_REALTIME)
        let whole = WallTime(seconds: Int64(present.tv_sec)).description.dropLast()
        let milliseconds = String(1_000 + present.tv_nsec / 1_000_000).dropFirst()
        return "\(whole).\(milliseconds)Z"
    }

    /// `2026-11-21T12:31:00Z` (RFC 3339).
    package var description: String {
        var moment = time_t(seconds)
        var parts = tm()
        guard gmtime_r(&moment, &parts) != nil else { return "@\(seconds)" }
        func padded(_ number: Int32, _ width: Int = 2) -> String {
            let digits = String(number)
            return String(repeating: "0", count: max(0, width - digits.utf8.count)) + digits
        }
        let date =
            "\(padded(parts.tm_year + 1900, 4))-\(padded(parts.tm_mon + 1))"
            + "-\(padded(parts.tm_mday))"
        return "\(date)T\(padded(parts.tm_hour)):\(padded(parts.tm_min)):\(padded(parts.tm_sec))Z"
    }

    /// Earlier than.
    package static func < (one: WallTime, other: WallTime) -> Bool { one.seconds < other.seconds }
}

/// The machine's clocks that can be set or begin anew: the only place where they are read, but for the
/// times of log lines.
package struct SystemClock: Sendable {
    private let wall: @Sendable () -> WallTime
    private let boot: @Sendable () -> Int64

    /// Makes the clocks; tests give others than the kernel's.
    ///
    /// - Parameters:
    ///   - wall: the time of day.
    ///   - uptime: seconds since the machine was started, those asleep included.
    package init(
        wall: @escaping @Sendable () -> WallTime = { .now },
        uptime: @escaping @Sendable () -> Int64 = SystemClock.kernelUptime
    ) {
        self.wall = wall
        boot = uptime
    }

    /// The time of day.
    package var now: WallTime { wall() }
    /// Seconds since the machine was started, those asleep included; nobody can set them.
    package var uptime: Int64 { boot() }

    /// What the kernel says of the time since it was started.
    package static let kernelUptime: @Sendable () -> Int64 = {
        Int64(read(CLOCK_BOOTTIME).tv_sec)
    }
}

/// An instant of the monotonic clock by which something must have happened.
package struct Deadline: Sendable, Comparable {
    /// Nanoseconds of CLOCK_MONOTONIC.
    package let nanoseconds: UInt64

    /// An instant that does not come.
    package static let never = Deadline(nanoseconds: .max)

    /// The instant `timeout` from now; a negative timeout has passed, a huge one never does.
    package static func after(_ timeout: Duration) -> Deadline {
        let span = timeout.attoseconds / 1_000_000_000
        // A hundred years: far beyond any use, and far from the limits of timespec.
        return Deadline(nanoseconds: now + UInt64(min(max(span, 0), 3_155_760_000_000_000_000)))
    }

    /// Whether the instant has come.
    package var hasPassed: Bool { Deadline.now >= nanoseconds }

    /// Earlier than.
    package static func < (one: Deadline, other: Deadline) -> Bool {
        one.nanoseconds < other.nanoseconds
    }

    /// The time left; zero once it has passed.
    package var remaining: Duration {
        let present = Deadline.now
        return present >= nanoseconds ? .zero : .nanoseconds(Int64(nanoseconds - present))
    }

    /// The instant as the C library wants it.
    var timespec: timespec {
        Glibc.timespec(
            tv_sec: Int(nanoseconds / 1_000_000_000),
            tv_nsec: Int(nanoseconds % 1_000_000_000)
        )
    }

    /// The present instant in nanoseconds.
    static var now: UInt64 {
        let present = read(CLOCK_MONOTONIC)
        return UInt64(present.tv_sec) * 1_000_000_000 + UInt64(present.tv_nsec)
    }
}

extension Duration {
    /// Whole milliseconds, rounded down; as many as fit twice into the type where there are more.
    package var wholeMilliseconds: Int64 {
        min(Int64(clamping: attoseconds / 1_000_000_000_000_000), .max / 2)
    }
}

private func read(_ clock: clockid_t) -> timespec {
    var present = timespec()
    clock_gettime(clock, &present)
    return present
}
