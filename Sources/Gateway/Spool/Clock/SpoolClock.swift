// The spool's clock: the time of day for records and people, and confirmed time for lifetimes.
//
// The processes of a spool share their knowledge of the clock in the file `clock`. Invariant: nothing expires by the
// time of day.

package import SpoolgatePosix

/// The clock of one spool.
///
/// Thread-safe.
package final class SpoolClock: Sendable {
    private let system: SystemClock
    private let boot: String
    private let mark: Monitor<ClockMark>
    /// Whether no process has written the file `clock` before.
    let isFirst: Bool

    /// Continues from the state that the last process wrote to `root`.
    init(_ system: SystemClock, in root: Directory) throws(SystemError) {
        self.system = system
        // If the boot identity is unknown, each process counts as a restart of the machine.
        boot = (try? Writer.boot()) ?? ""
        let text = try SpoolLayout.text(of: Self.file, in: root)
        isFirst = text == nil
        let first = ClockMark(boot: boot, uptime: system.uptime, wall: system.now)
        mark = Monitor(text.map { ClockMark(text: $0) ?? .unreadable } ?? first)
    }

    /// The time of day, for records and people.
    package var now: WallTime { system.now }

    /// Seconds since the machine started; cannot be set.
    package var uptime: Int64 { system.uptime }

    /// The lead of the time of day over uptime, in seconds; decreases if the clock is set back.
    package var offset: Int64 { system.now.seconds - system.uptime }

    /// The time that lifetimes are measured by.
    ///
    /// It is never ahead of the time of day, and includes no forward step made in the last day of uptime.
    package var confirmed: WallTime { look().confirmed }

    /// The lead of the time of day over confirmed time, in seconds; nil if it is normal.
    package var lead: Int64? {
        let mark = look()
        return mark.isDoubted ? mark.lead : nil
    }

    /// The uptime during which the clocks must advance equally before the time of day is trusted again.
    package static let patience = Duration.seconds(ClockMark.patience)

    /// The time after which a file's time is wrong; nil while the clock itself may be wrong.
    var future: WallTime? {
        let mark = look()
        return mark.isSettled ? WallTime(seconds: mark.wall.seconds + ClockMark.tolerance) : nil
    }

    /// Returns a time from a record, or the present if the time lies in the future because the clock was wrong.
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
    /// Writes the state of the clock for the next process.
    ///
    /// If this fails, the next process continues from an earlier state, which only extends lifetimes.
    package func noteClock() {
        try? layout.replace(SpoolClock.file, with: clock.text, on: disk)
    }

    /// Sets the last activity of an upload to now if it lies in the future because the clock was wrong.
    ///
    /// Otherwise the upload would be kept until that time.
    ///
    /// - Parameter summary: the upload as it was listed.
    /// - Returns: whether the time was changed.
    /// - Throws: `.disk` if its files could not be read or changed.
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
