// The webhook's queue on disk: any process adds lines, and one process sends them in order. See spoolgate-spool(5),
// events.
//
// Lines are added to `pending`. The sender renames that file to `sending`, marks each line when its event is done, and
// removes the file when all lines are marked. One thread of a process writes the lines of all its threads. If another
// process keeps the lock on `pending`, the process adds lines to its own file `late-...`, which the sender processes
// like `pending`. Invariant: a line is added only under the lock on a file that still has its name, and a file is
// removed only under its lock and after all its lines are done.

import SpoolgateCrypto
import SpoolgatePosix
import SpoolgateSpool
import SpoolgateUploadProtocol

/// Any thread of any process may add events; only one thread of one process sends them.
final class EventQueue: Sendable {
    private struct Backlog {
        var lines: [String] = []
        /// The number of lines added, and the number of lines written or lost.
        var noted = 0
        var done = 0
        /// Whether a thread is writing lines; only this thread uses `late`.
        var isWriting = false
        /// Whether a thread left its line in `lines` without waiting.
        var isLeft = false
        /// This process's own file, locked by it, or nil; and the time until which it adds lines.
        var late: AppendedFile?
        var lateEnd = Deadline.after(.zero)

        /// Returns the lines that the thread that added line `number` must write, its own and those of waiting threads;
        /// none if its line is written or lost, and nil if another thread is writing.
        ///
        /// After nil, the thread must wait if `isPatient` is true; otherwise the writing thread writes the line too.
        mutating func turn(for number: Int, isPatient: Bool = true) -> [String]? {
            if done >= number { return [] }
            if isWriting {
                if !isPatient { isLeft = true }
                return nil
            }
            isWriting = true
            return takeLines()
        }

        /// Records that the writing thread has written or lost `count` lines; returns its next lines, or nil to stop.
        mutating func end(_ count: Int) -> [String]? {
            done += count
            guard isLeft, !lines.isEmpty else {
                isWriting = false
                return nil
            }
            return takeLines()
        }

        private mutating func takeLines() -> [String] {
            isLeft = false
            defer { lines = [] }
            return lines
        }
    }

    /// The number of events added by this process since `pending` was renamed, and of events in `sending` that are not
    /// done.
    let added = Counter()
    let left = Counter()
    private let spool: String
    /// How long a line waits for the lock on `pending`, which other processes hold only briefly.
    private let patience: Duration
    private let backlog = Monitor(Backlog())
    private let onLoss: @Sendable (_ count: Int, SystemError) -> Void
    static let fileLimit: Int64 = 32 << 20
    /// How long a thread waits for another to write its line; only a stalled disk takes longer.
    private static let longestWait = Duration.milliseconds(200)
    /// How long this process's own file is used.
    private static let lateSpan = Duration.seconds(1)
    private static let latePrefix = "late-"
    private static let mode: UInt32 = 0o600

    /// Creates the object for the queue of a spool; files are created when the first event is added.
    ///
    /// `onLoss` is called each time events cannot be written, with their number and the reason.
    init(
        spool: String,
        patience: Duration = .milliseconds(10),
        onLoss: @escaping @Sendable (_ count: Int, SystemError) -> Void = { _, _ in }
    ) {
        self.patience = patience
        self.spool = spool
        self.onLoss = onLoss
    }

    // MARK: Adding

    /// Adds an event, which then usually survives a crash of this process, but not a power failure.
    ///
    /// If the disk stalls, this function returns before another thread writes the event. An event that cannot be
    /// written is lost, and `onLoss` is called.
    func add(_ event: String, at time: WallTime) {
        let line = QueuedEvent(time: time, json: event).line
        let number = backlog.updateQuietly { backlog in
            backlog.lines.append(line)
            backlog.noted += 1
            return backlog.noted
        }
        let turn = backlog.wait(until: .after(Self.longestWait), isQuiet: true) {
            $0.turn(for: number)
        }
        // Otherwise the writing thread will write this line too.
        work(turn ?? backlog.updateQuietly { $0.turn(for: number, isPatient: false) } ?? [])
    }

    private func work(_ lines: [String]) {
        var next = lines.isEmpty ? nil : lines
        while let lines = next {
            write(lines)
            next = backlog.update { $0.end(lines.count) }
        }
    }

    private func write(_ lines: [String]) {
        var lost: (count: Int, error: SystemError)?
        do throws(SystemError) {
            let file = try fileForLines()
            do throws(SystemError) {
                try add(lines.joined(separator: "\n"), to: file)
            } catch {
                for line in lines {
                    do throws(SystemError) { try add(line, to: file) } catch {
                        lost = ((lost?.count ?? 0) + 1, error)
                    }
                }
            }
        } catch {
            lost = (lines.count, error)
        }
        added.add(lines.count - (lost?.count ?? 0))
        if let lost { onLoss(lost.count, lost.error) }
    }

    private func fileForLines() throws(SystemError) -> AppendedFile {
        let late = backlog.updateQuietly { $0.lateEnd.hasPassed ? nil : $0.late }
        if let late { return late }
        let deadline = Deadline.after(patience)
        while true {
            let file = try openPending()
            if try file.descriptor.tryLock(subject: file.path) {
                // Otherwise the file was renamed before it was locked, and the sender may have finished with it.
                guard file.isInPlace else { continue }
                closeLate()
                return file
            }
            if deadline.hasPassed { break }
            Thread.pause(.milliseconds(2))
        }
        // No upload waits for another process, and a crash of that process loses no event.
        let file = try makeLate()
        backlog.updateQuietly { backlog in
            backlog.late = file
            backlog.lateEnd = .after(Self.lateSpan)
        }
        return file
    }

    private func makeLate() throws(SystemError) -> AppendedFile {
        while true {
            // The sender sends these files in the order of their names.
            let name = "\(Self.latePrefix)\(WallTime.now.seconds)-\(RandomToken.make())"
            let file = try open(name)
            // A sender may have found the file before it was locked.
            if try file.descriptor.tryLock(subject: file.path), file.isInPlace { return file }
        }
    }

    /// Leaves this process's own file to the sender if `lateEnd` has passed.
    private func closeLate() {
        // Closes the file after the lock is released.
        let late = backlog.updateQuietly { backlog -> AppendedFile? in
            guard backlog.lateEnd.hasPassed else { return nil }
            defer { backlog.late = nil }
            return backlog.late
        }
        withExtendedLifetime(late) {}
    }

    func settle() {
        let isFree = backlog.updateQuietly { backlog in
            guard !backlog.isWriting, backlog.late != nil, backlog.lateEnd.hasPassed else {
                return false
            }
            backlog.isWriting = true
            return true
        }
        guard isFree else { return }
        closeLate()
        if let lines = backlog.update({ $0.end(0) }) { work(lines) }
    }

    private func openPending() throws(SystemError) -> AppendedFile {
        do throws(SystemError) {
            return try open("pending")
        } catch {
            guard error.errno == SystemError.gone else { throw error }
            try makeDirectory()
            return try open("pending")
        }
    }

    private func open(_ name: String) throws(SystemError) -> AppendedFile {
        try AppendedFile(path: name, in: try directory(), mode: Self.mode)
    }

    /// Opens the queue's directory, but follows no symbolic link, because the spool contains none.
    private func directory() throws(SystemError) -> Directory {
        try Directory("events", in: try Directory(path: spool))
    }

    private func makeDirectory() throws(SystemError) {
        try AppendedFile.makeDirectory(path: "\(spool)/events")
    }

    private func add(_ line: String, to file: AppendedFile) throws(SystemError) {
        let size = file.size
        guard size + Int64(line.utf8.count) < Self.fileLimit else {
            throw SystemError(call: "write", subject: file.path, errno: SystemError.tooLarge)
        }
        do throws(SystemError) { try file.add(line: line) } catch {
            // Removes an incomplete line, which would corrupt the next one. If the removal fails, the sender skips
            // both.
            try? Disk().truncate(file.descriptor, to: size, subject: file.path)
            throw error
        }
    }

    // MARK: Sending

    /// Returns the file whose lock makes this process the sender; nil if another process is the sender.
    func takeSender() throws(SystemError) -> AppendedFile? {
        try makeDirectory()
        let file = try open("sender")
        return try file.descriptor.tryLock(subject: file.path) ? file : nil
    }

    /// Opens the file whose lines are sent next, and renames it to `sending` if necessary; nil if no lines wait.
    func batch() throws(SystemError) -> EventBatch? {
        let directory = try directory()
        if let batch = try EventBatch(in: directory, left: left) { return batch }
        if try !takeLate(in: directory) {
            guard let status = try directory.status(of: "pending"), status.size > 0 else {
                return nil
            }
            added.set(0)
            try Disk().rename("pending", in: directory, to: "sending", in: directory)
        }
        return try EventBatch(in: directory, left: left)
    }

    /// Renames the oldest `late-...` file that no process is writing to `sending`; returns false without such a file.
    private func takeLate(in directory: Directory) throws(SystemError) -> Bool {
        settle()
        let names = try directory.names().filter { $0.hasPrefix(Self.latePrefix) }.sorted()
        for name in names {
            guard let file = try directory.open(name, forWriting: true),
                try file.tryLock(subject: directory.path(of: name))
            else { continue }
            guard try file.status(subject: directory.path(of: name)).size > 0 else {
                try Disk().unlink(name, in: directory)
                continue
            }
            try Disk().rename(name, in: directory, to: "sending", in: directory)
            return true
        }
        return false
    }
}

struct QueuedEvent {
    /// The ID under which each attempt sends the event.
    var id: String
    var time: WallTime
    var json: String

    init(time: WallTime, json: String) {
        id = RandomToken.make()
        self.time = time
        self.json = json
    }

    /// Parses a line.
    ///
    /// Returns nil if the event was already sent or dropped, or if the line is invalid.
    init?(line: String) {
        let words = line.split(separator: " ", maxSplits: 3)
        guard words.count == 4, words[0] == "-", words[3].hasPrefix("{"), words[3].hasSuffix("}"),
            let seconds = Int64(words[2])
        else { return nil }
        id = String(words[1])
        time = WallTime(seconds: seconds)
        json = String(words[3])
    }

    /// The event as a line: a mark (`-`, not done), the ID, the time in seconds and the JSON.
    var line: String { "- \(id) \(time.seconds) \(json)" }
}

/// The queue's file `sending`; use it on one thread only.
final class EventBatch {
    enum Step {
        /// Call `advance` after the event was sent or dropped.
        case event(QueuedEvent)
        /// A line that is marked as done or is not an event; call `advance`.
        case skipped
        /// No line is left; call `remove`.
        case end
    }

    private let file: Descriptor
    private let directory: Directory
    private var position: Int64 = 0
    private var next: Int64 = 0
    /// Bytes read ahead, beginning at `position` in the file.
    private var ahead: ArraySlice<UInt8> = []
    /// The maximum length of a line in bytes; longer lines are skipped.
    private static let lineLimit = 256 << 10
    private var path: String { directory.path(of: "sending") }
    private let left: Counter

    /// Opens the file, and sets `left` to the number of events that are not done; returns nil if the file is missing.
    init?(in directory: Directory, left: Counter) throws(SystemError) {
        guard let file = try directory.open("sending", forWriting: true) else { return nil }
        self.file = file
        self.directory = directory
        self.left = left
        left.set(try count())
    }

    private func count() throws(SystemError) -> Int {
        var (count, place, isStart) = (0, Int64(0), true)
        while true {
            let bytes = try file.bytes(at: place, count: Self.lineLimit, subject: path)
            guard !bytes.isEmpty else { return count }
            for byte in bytes {
                if isStart, byte == UInt8(ascii: "-") { count += 1 }
                isStart = byte == UInt8(ascii: "\n")
            }
            place += Int64(bytes.count)
        }
    }

    func look() throws(SystemError) -> Step {
        if !ahead.contains(UInt8(ascii: "\n")) {
            ahead = try file.bytes(at: position, count: Self.lineLimit, subject: path)[...]
        }
        guard let end = ahead.firstIndex(of: UInt8(ascii: "\n")) else {
            // The line is incomplete because it is being written or its writer failed.
            next = position + Int64(ahead.count)
            return ahead.count < Self.lineLimit ? .end : .skipped
        }
        next = position + Int64(end - ahead.startIndex) + 1
        let line = String(decoding: ahead[..<end], as: UTF8.self)
        return QueuedEvent(line: line).map { .event($0) } ?? .skipped
    }

    /// Moves to the next line; if `marking` is true, first marks this one as done.
    func advance(marking: Bool) throws(SystemError) {
        if marking {
            var place = position
            let mark: [UInt8] = [UInt8(ascii: "+")]
            try Disk().write(mark.span.bytes, to: file, at: &place, subject: path)
            left.add(-1)
        }
        ahead = ahead.dropFirst(Int(next - position))
        position = next
    }

    /// Removes the file; returns false and keeps it if a line was added since the last one was read.
    func remove() throws(SystemError) -> Bool {
        guard let locked = try directory.open("sending", forWriting: true) else { return true }
        try locked.lock(subject: path)
        switch try look() {
        case .event, .skipped: return false
        case .end:
            try Disk().unlink("sending", in: directory)
            return true
        }
    }
}
