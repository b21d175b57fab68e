// The spool's clock: the time of day for records and people, and confirmed time for lifetimes.
//
// The processes of a spool share their knowledge of the clock in the file `clock`. Invariant: nothing expires by the
// time of day.

package import SpoolgatePosix

/// The clock of one spool; thread-safe.
package final class SpoolClock: Sendable {
    private let system: SystemClock
    private let boot: String
    private let mark: Monitor<ClockMark>
    /// Whether the file `clock` was missing, because the spool is new.
    let isFirst: Bool

    /// Creates a clock that continues from the state in the file `clock`.
    init(_ system: SystemClock, in root: Directory) throws(SystemError) {
        self.system = system
        // If the boot identity is unknown, each process counts as a restart of the machine.
        boot = (try? Writer.boot()) ?? ""
        let text = try SpoolLayout.text(of: Self.file, in: root)
        isFirst = text == nil
        let first = ClockMark(boot: boot, uptime: system.uptime, wall: system.now)
        mark = Monitor(text.map { ClockMark(text: $0) ?? .unreadable } ?? first)
    }

    /// The wall-clock time, for records and people.
    package var now: WallTime { system.now }

    /// The number of seconds since the machine started, which cannot be set.
    package var uptime: Int64 { system.uptime }

    /// The wall-clock time minus the uptime, in seconds; decreases if the wall clock is set back.
    package var offset: Int64 { system.now.seconds - system.uptime }

    /// The confirmed time, which measures lifetimes.
    ///
    /// Confirmed time includes no forward jump made in the last day of uptime.
    package var confirmed: WallTime { look().confirmed }

    /// The number of seconds by which the wall clock is ahead of confirmed time, or nil if the difference is normal.
    package var lead: Int64? {
        let mark = look()
        return mark.isUncertain ? mark.lead : nil
    }

    /// How long the clocks must advance equally before the wall clock is trusted again.
    package static let patience = Duration.seconds(ClockMark.patience)

    /// The latest modification time that a file can have; nil while the wall clock may be wrong.
    var future: WallTime? {
        let mark = look()
        return mark.isSettled ? WallTime(seconds: mark.wall.seconds + ClockMark.tolerance) : nil
    }

    /// Returns `time`, or the current time if `time` is later than `future`.
    func corrected(_ time: WallTime?) -> WallTime? {
        guard let time, let future, time > future else { return time }
        return now
    }

    private func look() -> ClockMark {
        mark.update { mark in
            mark.look(boot: boot, uptime: system.uptime, wall: system.now)
            return mark
        }
    }

    fileprivate static let file = "clock"
    fileprivate var text: String { look().text }
}

extension Spool {
    /// Writes the clock's state to the file `clock`, for the next process.
    ///
    /// If the write fails, the next process continues from an earlier state, which only extends lifetimes.
    package func noteClock() {
        try? layout.replace(SpoolClock.file, with: clock.text, on: disk)
    }

    /// Sets an upload's last activity to the current time if a wrong clock has set it in the future.
    ///
    /// Without the correction, the upload would be kept until that time.
    ///
    /// - Returns: false if the time is not in the future or the upload is in use.
    /// - Throws: `.disk` if the upload's files could not be read or changed.
    package func correctTime(of summary: UploadSummary) throws(SpoolError) -> Bool {
        guard let future = clock.future, summary.lastActivity > future,
            let lock = locks.tryLock(summary.id)
        else { return false }
        defer { lock.unlock() }
        return try onDisk { () throws(SystemError) in
            guard let files = try openUnused(summary.id) else { return false }
            try files.touch()
            return true
        }
    }
}

// MARK: The mark

// The trusted part of the wall clock, stored in the file `clock` of the spool.
//
// Confirmed time advances with the uptime. If the wall clock is set back, confirmed time follows immediately, which
// only extends lifetimes. It follows a forward jump once both clocks have advanced equally for a day. Invariant:
// confirmed time is never ahead of the wall clock.

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
    var isUncertain: Bool { lead > Self.tolerance }

    mutating func look(boot: String, uptime: Int64, wall: WallTime) {
        // After a restart, it is unknown how long the machine was off.
        let isSameRun = boot == self.boot && !boot.isEmpty && uptime >= self.uptime
        let passed = isSameRun ? uptime - self.uptime : 0
        let step = wall.seconds - self.wall.seconds - passed
        if !isSameRun || abs(step) > Self.tolerance { evenSince = uptime }
        (self.boot, self.uptime, self.wall) = (boot, uptime, wall)
        let due = WallTime(seconds: confirmed.seconds + passed)
        let isTrusted = wall.seconds - due.seconds <= Self.tolerance || isSettled
        confirmed = isTrusted ? wall : due
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
