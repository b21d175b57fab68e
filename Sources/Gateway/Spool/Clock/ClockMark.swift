// The trusted part of the wall clock, stored in the file `clock` of the spool.
//
// Confirmed time advances with the uptime. If the wall clock is set back, confirmed time follows immediately, which
// only extends lifetimes. It follows a forward jump once both clocks have advanced equally for a day. Invariant:
// confirmed time is never ahead of the wall clock.

import SpoolgatePosix

/// One reading of the clocks, and the time confirmed by this and all earlier readings.
struct ClockMark: Sendable, Equatable {
    var boot: String
    /// Seconds since the machine started.
    var uptime: Int64
    var wall: WallTime
    /// The trusted part of the wall-clock time.
    var confirmed: WallTime
    /// The uptime in seconds at which wall time and uptime began to advance equally.
    var evenSince: Int64

    /// The largest accepted jump of the wall clock, in seconds; normal corrections are smaller.
    static let tolerance: Int64 = 60
    /// The number of seconds of uptime that the clocks must advance equally before a forward jump is trusted.
    static let patience: Int64 = 86_400

    /// Creates the first mark, which trusts the wall clock.
    init(boot: String, uptime: Int64, wall: WallTime) {
        self.boot = boot
        self.uptime = uptime
        self.wall = wall
        confirmed = wall
        evenSince = uptime
    }

    /// The mark used if the stored one is unreadable; nothing expires until the clocks have been observed for
    /// `patience`.
    static let unreadable = ClockMark(boot: "", uptime: .max, wall: WallTime(seconds: 0))

    var isSettled: Bool { uptime - evenSince >= Self.patience }
    /// How far the wall clock is ahead of confirmed time, in seconds.
    var lead: Int64 { wall.seconds - confirmed.seconds }
    var isDoubted: Bool { lead > Self.tolerance }

    mutating func look(boot: String, uptime: Int64, wall: WallTime) {
        // After a restart, it is unknown how long the machine was off.
        let isSameRun = boot == self.boot && !boot.isEmpty && uptime >= self.uptime
        let passed = isSameRun ? uptime - self.uptime : 0
        let step = wall.seconds - self.wall.seconds - passed
        if !isSameRun || abs(step) > Self.tolerance { evenSince = uptime }
        (self.boot, self.uptime, self.wall) = (boot, uptime, wall)
        let due = WallTime(seconds: confirmed.seconds + passed)
        let isBelieved = wall.seconds - due.seconds <= Self.tolerance || isSettled
        confirmed = isBelieved ? wall : due
    }

    // MARK: As text

    /// One line of the file `clock`.
    var text: String {
        "boot=\(boot) uptime=\(uptime) wall=\(wall.seconds) confirmed=\(confirmed.seconds) "
            + "even-since=\(evenSince)\n"
    }

    /// Parses the first line of the file `clock`, or returns nil if the line is invalid.
    init?(text: String) {
        let words = text.split(separator: "\n").first?.split(separator: " ") ?? []
        var values: [Substring: Substring] = [:]
        for word in words {
            let parts = word.split(separator: "=", maxSplits: 1)
            if parts.count == 2 { values[parts[0]] = parts[1] }
        }
        func number(_ name: Substring) -> Int64? {
            // The range is small enough that differences cannot overflow.
            values[name].flatMap { Int64($0) }.flatMap { (0...(1 << 48)).contains($0) ? $0 : nil }
        }
        guard let boot = values["boot"], let uptime = number("uptime"), let wall = number("wall"),
            let confirmed = number("confirmed"), let evenSince = number("even-since"),
            evenSince <= uptime, confirmed <= wall
        else { return nil }
        self.init(boot: String(boot), uptime: uptime, wall: WallTime(seconds: wall))
        self.confirmed = WallTime(seconds: confirmed)
        self.evenSince = evenSince
    }
}
