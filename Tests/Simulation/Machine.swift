// One machine: processes that can crash, power that can fail, a disk that can be full, and clocks that only the driver
// moves.
//
// Deadlines are real time; only lifetimes, pauses and schedules follow the simulated clocks.

import Foundation
import SpoolgatePosix
import SpoolgateTestSupport

final class Machine: Sendable {
    private struct State {
        var processes = 0
        var dead: Set<Int> = []
        var isFull = false
        var wall = WallTime.now.seconds
        var uptime: Int64 = 100_000
        /// Grows with each event, so that the driver can see whether anything still happens.
        var activity = 0
        var files: ModeledDirectory
        /// The number of power failures.
        var cuts = 0
        /// The processes that had died before the last one.
        var lost: Set<Int> = []
        /// The files into which nginx writes, and their sizes that `files` knows.
        var lent: [Int32: Int64] = [:]
        /// By inode number: the process that made a file, until another one writes it.
        var makers: [UInt64: Int] = [:]
        var beforeCall: (@Sendable (String) -> Void)?
    }

    let root: String
    private let state: Monitor<State>

    init() throws {
        root = "\(ScratchDirectory.memory)/simulation-\(UInt64.random(in: 0...(.max)))"
        state = Monitor(State(files: ModeledDirectory(root: root)))
        try FileManager.default.createDirectory(atPath: root, withIntermediateDirectories: true)
    }

    deinit { try? FileManager.default.removeItem(atPath: root) }

    // MARK: Processes

    func start() -> Int {
        state.update {
            $0.processes += 1
            return $0.processes
        }
    }

    func kill(_ process: Int) { state.update { _ = $0.dead.insert(process) } }

    func isDead(_ process: Int) -> Bool { state.updateQuietly { $0.dead.contains(process) } }

    // MARK: The disk

    func disk(of process: Int) -> Disk {
        Disk { call, subject throws(SystemError) in
            try self.check(call, subject, process)
        } observer: { effect in
            self.stamp(effect, by: process)
            self.noteLent()
            self.state.updateQuietly { state in
                // A process that died in the middle of a call may end it after the power failed.
                if !state.lost.contains(process) { state.files.note(effect) }
            }
        }
    }

    /// Whether only this process has written the file.
    func isMaker(_ process: Int, of inode: UInt64) -> Bool {
        state.updateQuietly { $0.makers[inode] == process }
    }

    /// Until `endLoan`, nginx writes into a file; returns a descriptor of it.
    func lend(_ file: Int32, from size: Int64) -> Int32 {
        // A copy of the descriptor would keep the file's lock.
        let file = open("/proc/self/fd/\(file)", O_RDONLY | O_CLOEXEC)
        state.updateQuietly { $0.lent[file] = size }
        return file
    }

    func endLoan(of file: Int32) {
        noteLent()
        state.updateQuietly { _ = $0.lent.removeValue(forKey: file) }
        close(file)
    }

    /// Notes what nginx has written since.
    private func noteLent() {
        state.updateQuietly { state in
            for (file, known) in state.lent {
                let size = Self.size(of: file)
                state.lent[file] = size
                guard size > known else { continue }
                state.files.note(.wrote(file, at: known, count: Int(size - known)))
                let time = timespec(tv_sec: Int(state.wall), tv_nsec: 0)
                _ = futimens(file, [time, time])
            }
        }
    }

    static func size(of file: Int32) -> Int64 {
        var status = stat()
        fstat(file, &status)
        return Int64(status.st_size)
    }

    /// Loses what was not durable, in one of the ways of `PowerCut`; all processes must have ended.
    func cutPower(_ seed: UInt64) throws {
        try state.updateQuietly { state in
            state.cuts += 1
            state.lost = state.dead
            return Result {
                let time = timespec(tv_sec: Int(state.wall), tv_nsec: 0)
                try state.files.rebuild(after: .random(seed), at: time)
            }
        }.get()
    }

    /// Differs after each start of the machine.
    var boot: String { state.updateQuietly { "\($0.cuts)" } }

    var isFull: Bool { state.updateQuietly { $0.isFull } }

    func setFull(_ isFull: Bool) { state.update { $0.isFull = isFull } }

    private func check(
        _ call: Disk.Call,
        _ subject: String,
        _ process: Int
    ) throws(SystemError) -> Int {
        state.updateQuietly { $0.beforeCall }?(subject)
        let errno: Int32? = state.updateQuietly { state in
            state.activity += 1
            if state.dead.contains(process) { return EIO }
            return state.isFull && Self.needsRoom(call) ? ENOSPC : nil
        }
        if let errno { throw SystemError(call: call.rawValue, subject: subject, errno: errno) }
        return .max
    }

    private static func needsRoom(_ call: Disk.Call) -> Bool {
        switch call {
        case .create, .write, .copy, .link, .rename: true
        // The directories of the spool exist.
        case .createEmpty, .makeDirectory, .sync, .truncate, .syncDirectory, .syncFileSystem,
            .unlink, .touch:
            false
        }
    }

    /// Gives a changed file the simulated time, and notes its maker.
    private func stamp(_ effect: Disk.Effect, by process: Int) {
        switch effect {
        case .created(let file, _), .wrote(let file, _, _), .truncated(let file, _):
            let time = timespec(tv_sec: Int(state.updateQuietly { $0.wall }), tv_nsec: 0)
            _ = futimens(file, [time, time])
            var status = stat()
            fstat(file, &status)
            let inode = UInt64(status.st_ino)
            state.updateQuietly { state in
                if case .created = effect { state.makers[inode] = process }
                if state.makers[inode] != process { state.makers[inode] = nil }
            }
        case .createdEmpty, .madeDirectory, .synced, .syncedDirectory, .syncedFileSystem, .linked,
            .renamed, .unlinked:
            break
        }
    }

    // MARK: Changes without a `Disk`

    /// Calls `body` with the subject of each call of the disk, before it; `body` may wait.
    func setBeforeCall(_ body: @escaping @Sendable (String) -> Void) {
        state.update { $0.beforeCall = body }
    }

    func makeDirectory(_ path: String) throws {
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: false)
        note(.madeDirectory(path: path), of: [path])
    }

    /// Enters a file that the daemon has put into a directory.
    func adopt(_ path: String, isDurable: Bool) {
        let file = open(path, O_RDONLY | O_CLOEXEC)
        defer { close(file) }
        let names = isDurable ? [path] : []
        // In memory, no file gets the inode number of a removed one.
        if state.updateQuietly({ $0.files.node(file) }) != nil {
            note(.linked(file, path: path), of: names)
        } else {
            note(.created(file, path: path), of: names)
            note(.wrote(file, at: 0, count: Int(Self.size(of: file))), of: [])
        }
        if isDurable { note(.synced(file), of: []) }
    }

    /// Moves a file, or removes it if `place` is nil.
    func change(_ path: String, to place: String?) {
        if let place {
            rename(path, place)
            note(.renamed(from: path, to: place), of: [place, path])
        } else {
            unlink(path)
            note(.unlinked(path: path), of: [path])
        }
    }

    /// Notes a change, and that the names of these paths are durable.
    private func note(_ effect: Disk.Effect, of paths: [String]) {
        state.updateQuietly { state in
            state.files.note(effect)
            for path in paths { state.files.note(.syncedDirectory(path: "\(path)/..")) }
        }
    }

    // MARK: The clocks

    var clock: SystemClock {
        SystemClock(
            wall: { WallTime(seconds: self.wall) },
            uptime: { self.state.updateQuietly { $0.uptime } }
        )
    }

    var wall: Int64 { state.updateQuietly { $0.wall } }

    func pass(_ seconds: Int64) {
        state.update {
            $0.wall += seconds
            $0.uptime += seconds
        }
    }

    /// Sets the wall clock, not the uptime.
    func setClock(by seconds: Int64) { state.update { $0.wall += seconds } }

    // MARK: Waiting

    /// Notes an event that the driver may wait for.
    func note() { state.update { $0.activity += 1 } }

    /// Waits until `isDone`, or until nothing has happened for `quiet`.
    func settle(quiet: Duration = .milliseconds(12), _ isDone: () -> Bool) {
        var seen = -1
        while true {
            let result: Bool? = state.wait(until: .after(quiet), isQuiet: true) { _ in
                isDone() ? true : nil
            }
            let activity = state.updateQuietly { $0.activity }
            if result == true || activity == seen { return }
            seen = activity
        }
    }

    /// Waits until `isDone`; false at the deadline.
    func wait(_ limit: Duration, _ isDone: () -> Bool) -> Bool {
        let end = Deadline.after(limit)
        while !isDone() {
            if end.hasPassed { return false }
            // Not every change of the condition is noted. It may use the disk, which needs this monitor.
            let seen = state.updateQuietly { $0.activity }
            let _: Bool? = state.wait(until: .after(.milliseconds(5)), isQuiet: true) { state in
                state.activity != seen ? true : nil
            }
        }
        return true
    }
}
