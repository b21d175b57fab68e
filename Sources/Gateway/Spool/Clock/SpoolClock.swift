// The spool's clock: the time of day for records and people, and confirmed time for everything that gets
// old.
//
// The processes that work in a spool share what they know of the clock by the file `clock`. Invariant:
// nobody decides by the time of day that something is over.

package import SpoolgatePosix

/// The clock of one spool.
///
/// Any thread.
package final class SpoolClock: Sendable {
    private let system: SystemClock
    private let boot: String
    private let mark: Monitor<ClockMark>
    /// Whether nobody has noted down anything before.
    let isFirst: Bool

    /// Goes on from what the last process has noted down in `root`.
    init(_ system: SystemClock, in root: Directory) throws(SystemError) {
        self.system = system
        // Where it cannot be known, every process begins a run of its own.
        boot = (try? Writer.boot()) ?? ""
        let text = try SpoolLayout.text(of: Self.file, in: root)
        isFirst = text == nil
        let first = ClockMark(boot: boot, uptime: system.uptime, wall: system.now)
        mark = Monitor(text.map { ClockMark(text: $0) ?? .unreadable } ?? first)
    }

    /// The time of day, for records and people.
    package var now: WallTime { system.now }

    /// Seconds since the machine was started; nobody can set them.
    package var uptime: Int64 { system.uptime }

    /// Seconds by which the time of day is ahead of uptime: fewer once it was set back.
    package var offset: Int64 { system.now.seconds - system.uptime }

    /// The time by which things get old: never ahead of the time of day, and not with it where that was
    /// set forward in the last day of uptime.
    package var confirmed: WallTime { look().confirmed }

    /// Seconds by which the time of day is ahead of confirmed time, beyond what is usual; nil: it is
    /// not.
    package var lead: Int64? {
        let mark = look()
        return mark.isDoubted ? mark.lead : nil
    }

    /// How long the time of day must have gone evenly before it is believed again.
    package static let patience = Duration.seconds(ClockMark.patience)

    /// The time beyond which a file's time is wrong; nil while it may be the clock that is wrong.
    var future: WallTime? {
        let mark = look()
        return mark.isSettled ? WallTime(seconds: mark.wall.seconds + ClockMark.tolerance) : nil
    }

    /// A time that a record says, or the present where it lies in a future that the clock has left.
    func mended(_ time: WallTime?) -> WallTime? {
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
    /// Notes down what is known of the clock, for the next process.
    ///
    /// Where that fails, the next one goes on from an earlier note, and keeps things longer.
    package func noteClock() {
        try? layout.replace(SpoolClock.file, with: clock.text, on: disk)
    }

    /// Has the last activity of an upload be now, where it lies in a future that the clock has left: it
    /// would be kept until then.
    ///
    /// - Parameter summary: what was seen of it.
    /// - Returns: whether that was so.
    /// - Throws: `.disk` where its files could not be looked at or changed.
    package func mendTime(of summary: UploadSummary) throws(SpoolError) -> Bool {
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
