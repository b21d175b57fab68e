// Wall time, uptime and monotonic deadlines, as values.
//
// Wall time is for records and people. Monotonic time is for waiting, so that a change of the clock cannot end or
// extend a wait. Uptime shows how far wall time can be trusted.

import Glibc

/// A moment of wall time.
package struct WallTime: Sendable, Comparable, Hashable, CustomStringConvertible {
    /// Whole seconds since 1970-01-01 UTC.
    package var seconds: Int64

    /// Creates a moment from its seconds.
    package init(seconds: Int64) { self.seconds = seconds }

    package static var now: WallTime {
        WallTime(seconds: Int64(read(CLOCK_REALTIME).tv_sec))
    }

    /// The current time, for example, `2026-11-21T12:31:00.042Z` (RFC 3339).
    package static var preciseNow: String {
        let present = read(CLOCK_REALTIME)
        let whole = WallTime(seconds: Int64(present.tv_sec)).description.dropLast()
        let milliseconds = String(1_000 + present.tv_nsec / 1_000_000).dropFirst()
        return "\(whole).\(milliseconds)Z"
    }

    /// The moment as text, such as `2026-11-21T12:31:00Z` (RFC 3339).
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

    /// Whether one moment is earlier than the other.
    package static func < (one: WallTime, other: WallTime) -> Bool { one.seconds < other.seconds }
}

/// The system's wall clock, which can be set, and its uptime, which starts over at each boot.
///
/// Only this type reads the clocks, except for the times of log lines.
package struct SystemClock: Sendable {
    private let wall: @Sendable () -> WallTime
    private let boot: @Sendable () -> Int64

    /// Creates the clocks.
    ///
    /// Tests replace the kernel's clocks.
    ///
    /// `uptime` returns the seconds since boot, including time asleep.
    package init(
        wall: @escaping @Sendable () -> WallTime = { .now },
        uptime: @escaping @Sendable () -> Int64 = SystemClock.kernelUptime
    ) {
        self.wall = wall
        boot = uptime
    }

    package var now: WallTime { wall() }
    /// Seconds since boot, including time asleep.
    ///
    /// Unaffected by changes of the wall clock.
    package var uptime: Int64 { boot() }

    package static let kernelUptime: @Sendable () -> Int64 = {
        Int64(read(CLOCK_BOOTTIME).tv_sec)
    }
}

/// An instant of the monotonic clock that limits a wait.
package struct Deadline: Sendable, Comparable {
    /// Nanoseconds of CLOCK_MONOTONIC.
    package let nanoseconds: UInt64

    package static let never = Deadline(nanoseconds: .max)

    /// Returns the instant `timeout` from now.
    ///
    /// A negative `timeout` counts as zero.
    package static func after(_ timeout: Duration) -> Deadline {
        let span = timeout.attoseconds / 1_000_000_000
        // A hundred years is more than any use needs, and within the range of timespec.
        return Deadline(nanoseconds: now + UInt64(min(max(span, 0), 3_155_760_000_000_000_000)))
    }

    package var hasPassed: Bool { Deadline.now >= nanoseconds }

    /// Returns the instant `duration` after this one; `duration` must not be negative, and at most a hundred years.
    package func later(by duration: Duration) -> Deadline {
        let (sum, isBeyond) = nanoseconds.addingReportingOverflow(
            UInt64(duration.attoseconds / 1_000_000_000)
        )
        return isBeyond ? .never : Deadline(nanoseconds: sum)
    }

    /// Whether one deadline is earlier than the other.
    package static func < (one: Deadline, other: Deadline) -> Bool {
        one.nanoseconds < other.nanoseconds
    }

    /// The time left until the deadline, or zero after the deadline.
    package var remaining: Duration {
        let present = Deadline.now
        return present >= nanoseconds ? .zero : .nanoseconds(Int64(nanoseconds - present))
    }

    var timespec: timespec {
        Glibc.timespec(
            tv_sec: Int(nanoseconds / 1_000_000_000),
            tv_nsec: Int(nanoseconds % 1_000_000_000)
        )
    }

    static var now: UInt64 {
        let present = read(CLOCK_MONOTONIC)
        return UInt64(present.tv_sec) * 1_000_000_000 + UInt64(present.tv_nsec)
    }
}

extension Duration {
    /// The duration in whole milliseconds, rounded down; at most half of `Int64.max`.
    package var wholeMilliseconds: Int64 {
        min(Int64(clamping: attoseconds / 1_000_000_000_000_000), .max / 2)
    }
}

private func read(_ clock: clockid_t) -> timespec {
    var present = timespec()
    clock_gettime(clock, &present)
    return present
}

// MARK: Waits that may be extended

// A wait that may be extended.

/// A deadline that a function may extend.
///
/// Only one thread may use the limit.
package final class WaitLimit {
    package private(set) var deadline: Deadline
    private let extend: () -> Deadline?

    /// Creates a limit that is never extended.
    package convenience init(_ deadline: Deadline) { self.init(deadline) { nil } }

    /// Creates a limit with a first deadline.
    ///
    /// `extend` is called when the deadline has passed, and returns the next deadline, or nil to end the wait.
    package init(_ deadline: Deadline, extend: @escaping () -> Deadline?) {
        self.deadline = deadline
        self.extend = extend
    }

    /// Whether the wait has ended.
    ///
    /// If the deadline has passed, calls `extend` first.
    package var hasPassed: Bool {
        guard deadline.hasPassed else { return false }
        guard let later = extend() else { return true }
        deadline = later
        return false
    }
}
