// The trust in the wall clock, and the file that records it.

import Foundation
import SpoolgatePosix
import Synchronization
import Testing

@testable import SpoolgateSpool

@Suite("The clock mark")
struct ClockMarkTests {
    private static let day: Int64 = 86_400
    private static let start: Int64 = 1_800_000_000

    /// A mark updated for a long time.
    private static var settled: ClockMark {
        var mark = ClockMark(boot: "a", uptime: 100, wall: WallTime(seconds: start - 2 * day))
        mark.look(boot: "a", uptime: 100 + 2 * day, wall: WallTime(seconds: start))
        return mark
    }

    /// Updates the mark after `seconds`; the clock is wrong by `error`.
    private func look(
        _ mark: inout ClockMark,
        after seconds: Int64,
        error: Int64,
        boot: String = "a",
        uptime: Int64? = nil
    ) {
        let uptime = uptime ?? mark.uptime + seconds
        let right = Self.start + uptime - (100 + 2 * Self.day)
        mark.look(boot: boot, uptime: uptime, wall: WallTime(seconds: right + error))
    }

    @Test("time that passes evenly is believed")
    func even() {
        var mark = Self.settled
        #expect(mark.isSettled && !mark.isUncertain)
        for _ in 0..<10 { look(&mark, after: 3600, error: 0) }
        #expect(mark.confirmed == mark.wall)
        #expect(mark.isSettled)
    }

    @Test("a step of a few seconds has no effect")
    func small() {
        var mark = Self.settled
        for error in [30, 60, 20, 0] as [Int64] {
            look(&mark, after: 10, error: error)
            #expect(mark.confirmed == mark.wall && mark.isSettled)
        }
    }

    @Test("a step forward is believed after a day of uptime, and not even in part before")
    func forward() {
        var mark = Self.settled
        look(&mark, after: 1, error: 2 * Self.day)
        #expect(mark.lead == 2 * Self.day && mark.isUncertain)
        look(&mark, after: Self.day - 1, error: 2 * Self.day)
        #expect(mark.lead == 2 * Self.day)
        #expect(mark.confirmed.seconds == Self.start + Self.day)
        // Another step restarts the day.
        look(&mark, after: 1, error: 3 * Self.day)
        look(&mark, after: Self.day - 1, error: 3 * Self.day)
        #expect(mark.lead == 3 * Self.day)
        look(&mark, after: 1, error: 3 * Self.day)
        #expect(mark.lead == 0 && !mark.isUncertain)
    }

    @Test("a clock that is set right again leaves no trace")
    func forwardAndBack() {
        var mark = Self.settled
        look(&mark, after: 1, error: 3_650 * Self.day)
        look(&mark, after: 3600, error: 0)
        #expect(mark.confirmed.seconds == Self.start + 3601)
        #expect(!mark.isUncertain && !mark.isSettled)
    }

    @Test("a step back is followed at once, and a step forward again only after a day")
    func back() {
        var mark = Self.settled
        look(&mark, after: 1, error: -10 * Self.day)
        #expect(mark.confirmed == mark.wall && !mark.isUncertain)
        look(&mark, after: 3600, error: 0)
        #expect(mark.lead == 10 * Self.day)
        look(&mark, after: Self.day, error: 0)
        #expect(mark.lead == 0)
    }

    @Test("the time while the machine was off counts after a day of uptime")
    func restart() {
        var mark = Self.settled
        look(&mark, after: 0, error: 5 * Self.day, boot: "b", uptime: 10)
        let before = mark.confirmed
        #expect(before.seconds == Self.start)
        #expect(mark.isUncertain)
        look(&mark, after: Self.day - 1, error: 5 * Self.day, boot: "b")
        #expect(mark.isUncertain && mark.confirmed.seconds == before.seconds + Self.day - 1)
        look(&mark, after: 1, error: 5 * Self.day, boot: "b")
        #expect(!mark.isUncertain)
    }

    @Test("if the boot is unknown, no two looks belong to one run")
    func unknownBoot() {
        var mark = ClockMark(boot: "", uptime: 10, wall: WallTime(seconds: Self.start))
        mark.look(boot: "", uptime: 20 + Self.day, wall: WallTime(seconds: Self.start + Self.day))
        #expect(mark.confirmed.seconds == Self.start)
        #expect(!mark.isSettled)
    }

    @Test("its line reads back as written, and nothing else is accepted")
    func text() throws {
        var mark = Self.settled
        look(&mark, after: 1, error: 2 * Self.day)
        #expect(ClockMark(text: mark.text) == mark)
        let line = mark.text
        for broken in [
            "", "\n", "boot=a\n", String(line.dropLast(20)), line.replacing("uptime", with: "up"),
            line.replacing("wall=1", with: "wall=-1"),
            line.replacing("wall=1", with: "wall=9999999999"),
        ] where broken != line {
            if let read = ClockMark(text: broken) {
                #expect(read.confirmed <= read.wall, "\(broken)")
            }
        }
        var unreadable = ClockMark.unreadable
        unreadable.look(boot: "a", uptime: 5, wall: WallTime(seconds: Self.start))
        #expect(unreadable.confirmed.seconds == 0)
        unreadable.look(boot: "a", uptime: 5 + Self.day, wall: WallTime(seconds: Self.start))
        #expect(unreadable.confirmed.seconds == Self.day)
        unreadable.look(
            boot: "a",
            uptime: 5 + 3 * Self.day,
            wall: WallTime(seconds: Self.start + 2 * Self.day)
        )
        #expect(!unreadable.isUncertain)
    }

    // MARK: The file

    private func left(in directory: TemporarySpool) throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: "\(directory.path)/tmp")
    }

    @Test("a crash's leftover of a note is removed by a start an hour later, and by none before")
    func leftByDeath() throws {
        let directory = TemporarySpool()
        let passed = Mutex<Int64>(0)
        let clock = SystemClock(
            wall: { WallTime(seconds: WallTime.now.seconds + passed.withLock { $0 }) },
            uptime: { SystemClock.kernelUptime() + passed.withLock { $0 } }
        )
        let scripted = ScriptedDisk()
        let spool = try directory.open(scripted.disk, clock: clock)
        // Created, written and synced, but not yet renamed.
        scripted.die(after: 3)
        spool.noteClock()
        let left = try left(in: directory)
        #expect(left.count == 1 && left.allSatisfy { $0.hasPrefix("clock.") }, "\(left)")
        for (later, expected) in [(0, left), (3_000, left), (4_000, [])] as [(Int64, [String])] {
            passed.withLock { $0 = later }
            let next = try directory.open(clock: clock)
            _ = next.recover()
            #expect(try self.left(in: directory) == expected, "\(later) s later")
        }
    }

    @Test("a note that the disk refuses leaves nothing", arguments: Disk.Call.ofNote)
    func leftByError(_ call: Disk.Call) throws {
        let directory = TemporarySpool()
        let scripted = ScriptedDisk()
        let spool = try directory.open(scripted.disk)
        scripted.refuse(call, on: "clock", errno: ENOSPC)
        scripted.forget()
        spool.noteClock()
        #expect(scripted.calls.contains(call))
        #expect(try left(in: directory) == [])
    }
}

extension Disk.Call {
    /// The calls that write a mark.
    fileprivate static let ofNote: [Disk.Call] = [.create, .write, .sync, .rename]
}
