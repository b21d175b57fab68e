// How far the wall clock is believed: one pure function, and its state as the file `clock` of the spool.
//
// Confirmed time goes on with the uptime. It goes back with the wall clock at once, since that only keeps
// things longer, and follows it forward once both have gone evenly for a day. Invariant: confirmed time is
// never ahead of the wall clock, and no step forward of the wall clock is in it before that day is over.

import SpoolgatePosix

/// What one look at the clocks has shown.
struct ClockMark: Sendable, Equatable {
    /// The kernel's boot identity.
    var boot: String
    /// Seconds since the machine was started.
    var uptime: Int64
    /// The time of day.
    var wall: WallTime
    /// The time that may be believed.
    var confirmed: WallTime
    /// The uptime since which wall time and uptime went evenly.
    var evenSince: Int64

    /// Seconds by which the wall clock may be off without being doubted: it is set by so much in good
    /// order.
    static let tolerance: Int64 = 60
    /// Seconds of uptime for which it must have gone evenly before a step forward is believed.
    static let patience: Int64 = 86_400

    /// The first look ever: the wall clock is all there is.
    init(boot: String, uptime: Int64, wall: WallTime) {
        self.boot = boot
        self.uptime = uptime
        self.wall = wall
        confirmed = wall
        evenSince = uptime
    }

    /// What stands for a mark that cannot be read: nothing is old until the clock was watched for long
    /// enough.
    static let unreadable = ClockMark(boot: "", uptime: .max, wall: WallTime(seconds: 0))

    /// Whether wall time and uptime have gone evenly for long enough.
    var isSettled: Bool { uptime - evenSince >= Self.patience }
    /// Seconds by which the wall clock is ahead of confirmed time.
    var lead: Int64 { wall.seconds - confirmed.seconds }
    /// Whether the wall clock is ahead of what is believed of it.
    var isDoubted: Bool { lead > Self.tolerance }

    /// Takes another look.
    mutating func look(boot: String, uptime: Int64, wall: WallTime) {
        // After another start nobody knows how long the machine was off.
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

    /// One line.
    var text: String {
        "boot=\(boot) uptime=\(uptime) wall=\(wall.seconds) confirmed=\(confirmed.seconds) "
            + "even-since=\(evenSince)\n"
    }

    /// Reads a line; nil for anything else.
    init?(text: String) {
        let words = text.split(separator: "\n").first?.split(separator: " ") ?? []
        var values: [Substring: Substring] = [:]
        for word in words {
            let parts = word.split(separator: "=", maxSplits: 1)
            if parts.count == 2 { values[parts[0]] = parts[1] }
        }
        func number(_ name: Substring) -> Int64? {
            // So far from the limits that differences cannot overflow.
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
